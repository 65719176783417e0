"""What can be done with a checkpoint, without a cluster? It is found, exported, and used to predict.

    train_dir, --checkpoint --found--> path --saved_model--> export_dir/STEP/
                                            --predictor----> batches of features --> batches of predictions --> a file

Start with `found.py`. The metrics of a checkpoint come from `training/evaluation.py`.

    found        the checkpoint that the user means
    serving      what a request has: the serving input of a model or dataset
    saved_model  writes a SavedModel
    predictor    predicts with a checkpoint or a SavedModel
    examples     where the features come from: the dataset, a CSV or an npz file
    csv_columns  features in the columns of a CSV file
    outputs      writes predictions as CSV, npz or TFRecord
    processes    predicts in several processes, in order
"""
