"""`ps_train keras`: a Keras model under a tf.distribute strategy, beside the graph road.

    verbs --> flags --> task --> strategies/ --> training/ --> storage/
                         ^
                      plugins

Start with `task.py`. Only `__main__` imports this folder.
"""
