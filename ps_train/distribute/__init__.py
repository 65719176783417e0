"""The tf.distribute road: Keras models under a strategy, with the flags, datasets and launcher of ps_train.

    verbs       what __main__ calls
    options     the flags                        roles      which processes a strategy has, and which this one is
    task        one process from start to end: start reading here
    training    a process that trains            serving    a ps or worker of parameter_server
    conversion  checkpoints from one road to the other

It is apart from the core: nothing in ps_train imports it but __main__, for the verbs `keras` and `convert`.
"""
