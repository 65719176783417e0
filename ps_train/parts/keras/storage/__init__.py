"""What is in a train_dir of `ps_train keras`, and how do its checkpoints become those of graph training, and back?

Start with `keras_checkpoints.py`.

    keras_checkpoints  writes, finds, checks and loads `.keras` checkpoints and the backup of a cluster
    backups            sets damaged backups aside
    conversion         `ps_train convert`: a graph checkpoint to a Keras one, and back
    weights            copies weights and optimizer variables between two models
"""
