"""Live models: SavedModels whose rows and dense variables are replaced while they are served.

docs/live_models.md is the page for users. Start with `exporting.py`.

    exporting       ps_train export --live: the model, and the signatures that change it
    table           the rows of a table, which change
    dense           all dense variables in one, which a prediction reads once
    pushes          the files of pushes: how they are written, and how a reader follows them
    model           LiveModel: loads a live model, follows a folder, predicts
    predict_calls   the Predict interface of TensorFlow Serving, by gRPC: a client and a server
"""
