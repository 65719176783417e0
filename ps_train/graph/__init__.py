"""The training graph in any update mode: on which task is each part, and what does a step send over the network?

    dataset, model_fn --> variables on the ps, operations on the worker --> gradients --> fewer transfers and operations

Start with `placement.py`.

    batches       the mini-batches of a dataset plug-in
    arrays        numpy arrays as a dataset, for plug-ins (`ps_train.from_arrays`)
    plugin_calls  calls model_fn, checks what it returns, and runs its SessionRunHooks and queues
    placement     decides which variable is on which ps, and cuts large ones
    devices       the tasks and GPUs that devices name
    optimizers    the optimizers of --optimizer and `make_optimizer`, their slots, and what a rule may add
    adam          Adam that reads and writes only the rows that have a gradient
    transfer      sends the dense variables of a ps in one transfer each way
    nan_guard     stops a step with NaN or infinity before it changes a parameter
    extensions    what a part may bring to a graph: rows of tables, train_ops taken apart, fewer transfers and updates
"""
