"""How does a Keras model train under a tf.distribute strategy? `ps_train keras`, beside graph training.

    flags --> task --> strategies/ --> training/ --> storage/
                ^
             plugins

Start with `task.py`. Only `parts/keras/verb.py` imports this folder. The decisions: docs/decisions/keras.md.

    flags        the flags of `keras`, `launch keras` and `convert`
    task         one process from start to end
    plugins      what a user writes: build_model, train_step, train, make_callbacks
    strategies/  which processes a strategy has, how they meet and how they end
    training/    training by Model.fit, or by a loop of the plug-in
    storage/     the checkpoints, and their conversion to and from those of graph training
"""
