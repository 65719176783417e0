"""What can a user ask of ps_train on the command line?

    __main__ --> table (name --> Verb) --> a module here --> tasks/, launch/, or in a part

Start with `table.py`. A verb checks its flags first; TensorFlow, which takes seconds, is imported after that.

    table    the names of the verbs, and where each is defined
    verb     the value that describes a verb
    train    `train` and `serve`: one task of a cluster
    launch   `launch`, also of `run` and `keras`: a cluster on this machine
    scripts  `run`: one task of an unchanged TensorFlow 1 script
    control  `status`, `save`, `stop` and `resume`: a training that runs
    before   `plan` and `doctor`: before a training
    new      `new`: a model and a dataset to start from
    keras    `keras` and `convert`
    checkpoints  `evaluate`, `predict` and `export`
"""
