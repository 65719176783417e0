"""What is asked about a training from outside? The flags of the verbs of `control/`; start with `plan.py`.

    plan     the flags of `ps_train plan`
    doctor   the flags of `ps_train doctor`
    running  the flags of `ps_train status`, `save`, `stop` and `resume`
    report   the flags of `ps_train report`
"""
