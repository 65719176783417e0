"""How does an update reach the parameters? Only this folder knows the update modes.

    async          pull, compute, push                          build.py
    sync           the mean of several workers' gradients       sync/
    local steps    several steps on a worker's own copy         local_steps.py, variable_copies.py
    unrolled       several single steps in one session run      unrolled.py

Start with `update.py`: every mode provides an `Update`, so no other folder needs to know the mode.

    update.py      the settings of the updates, what a mode provides, and what the chief does during training
    build.py       builds the update of a model: by which rule, and in which mode
    staleness.py   which workers train, how old the parameters of an update were, and how far a worker may run ahead
"""
