"""What is in a train_dir of `ps_train keras`, and how a checkpoint crosses over to the graph road and back.

Start with `checkpoints.py`.
"""
