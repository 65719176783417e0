"""What follows from an evaluation: the best checkpoint is kept, training ends early, models are exported.

    evaluator, or a thread of the chief: checkpoint --> Evaluation --> Selector --> train_dir/best, export_dir
                                                                                --> "stopping" on the blackboard

Start with `selector.py`.

    selector   decides from each evaluation, and remembers it in train_dir/selection.json
    record     that file
    exporting  SavedModels during training
    chief      evaluates in a thread of the chief, if there is no evaluator
    evaluator_part  what an evaluator does for all this
    signals    what evaluator and chief say to each other on ps 0
"""
