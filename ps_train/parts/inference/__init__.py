"""How is a checkpoint used without a cluster? It is found, evaluated, exported, and used to predict.

    train_dir, --checkpoint --> path --serving----> export_dir/STEP/
                                     --predictor--> batches of features --> batches of predictions --> a file

Start with `on_checkpoint.py`. The metrics of a checkpoint come from `training/evaluation.py`.

    on_checkpoint  finds the checkpoint that the user means, and evaluates, exports or predicts with it
    request_inputs what a request gives: a placeholder for each feature of the dataset, by its name
    serving        the SavedModel that answers a request
    predictor      predicts with a checkpoint or a SavedModel
    examples       where the features come from: the dataset, a CSV or an npz file
    outputs        writes predictions as CSV, npz or TFRecord
    processes      predicts in several processes, in order
"""
