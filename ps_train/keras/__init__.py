"""`ps_train keras`: a Keras model under a tf.distribute strategy, beside the graph road.

    verbs --> flags --> task --> strategies/ --> training --> checkpoints
                                                    ^
                                     inputs, callbacks, plug-in

Start with `task.py`. Only `__main__` imports this folder.
"""
