"""What can a user ask of ps_train on the command line?

    __main__ --> table (name --> Verb) --> a module here, or verb.py of a part --> tasks/, launch/, ...

Start with `table.py`. A verb checks its flags first; TensorFlow, which takes seconds, is imported after that.

    table    the names of the verbs, and where each is defined
    verb     the value that describes a verb; which training a verb is about
    train    `train` and `serve`: one task of a cluster
    launch   `launch`: a whole cluster, of `train` or of a part such as `run`
    new      `new`: a model and a dataset to start from
"""
