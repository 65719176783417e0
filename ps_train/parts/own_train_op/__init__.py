"""Own train op: how does a model_fn that makes its own train_op, as an Estimator's does, train in every update mode?

    optimizer.minimize(loss)    capture.py    records the optimizer and the gradients; applies nothing yet
    train_op                    effects.py    finds what else it does, such as moving averages
    OwnUpdate                   update.py     applies the optimizer where the update mode needs it
    other optimizers            beside.py     lets hooks and UPDATE_OPS run the updates that the train_op does not need
    training graph              part.py       makes it do so

Start with `update.py`. See docs/decisions/own-train-op.md.
"""
