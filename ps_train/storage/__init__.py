"""What is in a train_dir: checkpoints and event files, and when they are written.

Start with `checkpoints.py`, which finds and checks what is there. `saver.py` writes checkpoints,
`event_files.py` writes for TensorBoard, and `folder_lock.py` keeps a second training out.
"""
