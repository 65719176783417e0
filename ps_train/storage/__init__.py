"""The train_dir: which files are in it, which of them can be trusted, who may write there, and when?

    train_dir/  model.ckpt-N.*  checkpoint  training.json  training.lock  events.out.tfevents.*

Start with `checkpoints.py`.

    checkpoints    finds, checks and removes checkpoints
    saver          saves in a thread, and once more at the end
    schedule       when to save
    deltas         what has changed since a checkpoint, in a file beside it
    event_files    writes summaries for TensorBoard without ever delaying training
    folder_record  training.json: of which model and data the checkpoints are
    folder_lock    holds training.lock while this process trains; decides whether another holder is still alive
"""
