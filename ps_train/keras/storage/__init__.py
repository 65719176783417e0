"""What is in a train_dir of `ps_train keras`, and how its checkpoints become those of the graph road and back.

Start with `keras_checkpoints.py`.
"""
