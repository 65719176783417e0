"""How an update differs from the plain optimizer: `--learning_rate_schedule`, `--clip_norm`, `--weight_decay`, ...

    flags    the schedule, clipping, weight decay, and the constants of an optimizer
    part     the formulas, and the optimizer that clips and decays

Without this part, an optimizer has a constant learning rate and TensorFlow's own constants. Start with `part.py`. The
user's page is docs/optimizers.md.
"""
