"""How an update reaches the parameters. Only this folder asks which update mode is used.

    async         pull, compute, push                      build.py
    sync          the mean of several gradients            sync/
    local steps   several steps on a worker's own copy     local_steps/
    unrolled      several single steps in a session run    unrolled/

Each mode is an `Update` (`update.py`), so no other folder needs to know it. Start with `build.py`.
"""
