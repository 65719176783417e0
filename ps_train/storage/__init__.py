"""The train_dir: its files, which of them are sound, and who may write there, and when?

    train_dir/  model.ckpt-N.*  checkpoint  training.json  training.lock  events.out.tfevents.*

Start with `checkpoints.py`.

    checkpoints     finds, checks and removes checkpoints
    saver           saves in a thread, and once more at the end
    merging_saver   writes a checkpoint in several parts
    event_files     writes summaries for TensorBoard without ever delaying training
    journal         journal.jsonl: the events of the training
    folder_record   training.json: the model and data to which the checkpoints belong
    folder_lock     holds training.lock while this process trains; decides whether another holder is still alive
    run_record      cluster.json and launch.json: how the training was started
"""
