"""Local steps: a worker pulls once, takes several steps on its own copy, and pushes the change.

Start with `rounds.py`. `variable_copies.py` makes the model use the copy, `slots.py` moves optimizer slots between the
worker and the ps, `sharing.py` says by how many workers a change is divided.
"""
