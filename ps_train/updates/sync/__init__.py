"""Synchronous updates: the mean of several workers' gradients is applied at once.

    worker: push gradients --> enter the gate --> wait for the global step that it awaits
    chief:  wait until enough are in the gate --> take the mean --> apply --> notify all

Start with `aggregation.py`. The decision: docs/decisions/sync.md.

    aggregation.py   the operations of workers and chief, and the gate that says which gradients an update has
    runner.py        runs the updates on the chief; how many gradients they wait for, and from which workers
"""
