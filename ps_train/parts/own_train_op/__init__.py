"""Own train op: how does a model_fn that makes its own train_op, as an Estimator's does, train in every update mode?

    optimizer.minimize(loss)    capture.py    notes the optimizer and the gradients; nothing is applied yet
    train_op                    effects.py    finds what else it does, such as moving averages
    OwnUpdate                   update.py     applies the optimizer where the update mode asks for it
    a training graph            part.py       is told to do so

Start with `update.py`. See docs/decisions/own-train-op.md.
"""
