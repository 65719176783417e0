"""Synchronous updates: the mean of several gradients is applied at once.

    worker: push gradients --> enter the gate --> wait for the global step that it awaits
    chief:  wait until enough are in the gate --> take the mean --> apply --> notify all

Start with `aggregation.py`; `quorum.py` says how many gradients are enough, `runner.py` runs the updates on the chief.
"""
