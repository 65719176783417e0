"""What the flags and `make_optimizer` say about the optimizer: its rate, its clipping, its decay.

    OptimizerPlan   plan.py        makes the optimizer as often as an update mode needs one
    rate_at         schedules.py   the learning rate as a function of the global step
    ShapedOptimizer shaped.py      clips by the global norm and decays weights, then applies

Start with `plan.py`. docs/optimizers.md has the rules for users.
"""
