"""The parts: what ps_train can do beyond training dense variables, each feature in a folder of its own.

A part may import the spine and other parts; the spine imports no part. `table.py` names them all, in order.
"""
