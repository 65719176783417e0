"""How does one process train under a strategy? By Model.fit, or by a loop of the plug-in.

    trainer --> planning (which epochs) --> inputs --> fitting or custom_loops --> final_report

Start with `trainer.py`.

    trainer       a process that trains, from start to end
    planning      which epochs are left, and what has been trained
    inputs        the batches of the dataset, as each strategy takes them
    data_end      training data that end too early
    fitting       training by Model.fit
    callbacks     Keras' callbacks for a train_dir; progress, heartbeat, stop
    custom_loops  training by the plug-in's `train_step` or `train`
    final_report  the evaluation of the newest checkpoint, and its report
"""
