"""What can a user ask of ps_train on the command line?

    __main__ --> table (name --> Verb) --> a module here, or verb.py of a part --> tasks/, launch/, ...

Start with `table.py`. A verb checks its flags first; TensorFlow, which takes seconds, is imported after that.

    table    the names of the verbs, and where each is defined
    verb     the value that describes a verb
    train    `train` and `serve`: one task of a cluster
    launch   `launch`: a cluster on this machine, also of the verbs of parts that can be launched
    new      `new`: a model and a dataset to start from
    folders  the folder that a verb is about: its first word, --train_dir, or the newest launch
"""
