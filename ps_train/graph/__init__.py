"""The training graph in any update mode: on which task is each part, and what does a step send over the network?

    model_fn --> variables on the ps, operations on the worker --> gradients --> fewer transfers, fewer operations

Start with `placement.py`.

    plugin_calls  calls model_fn and checks what it returns
    train_ops     what a train_op of the model applies; a part may take it apart
    placement     decides which variable is on which ps
    hooks         runs the SessionRunHooks of a model around its steps
    devices       the tasks and GPUs that devices name
    shaping       the optimizers of --optimizer and `make_optimizer`: schedules, clipping, weight decay, slots
    transfer      sends the dense variables of a ps in one transfer each way
    packing       makes one variable of many small ones while training runs
    row_parameters  parameters that are no variables and that a step reads by the row, if a part brings some
    nan_guard     stops a step with NaN or infinity before it changes a parameter
    simplify      removes redundant reads and transfers from a finished graph
    row_sparse/   updates of tables whose gradients have a few rows only
    input/        the mini-batches of a dataset
"""
