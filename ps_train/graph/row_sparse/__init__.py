"""Row-sparse updates: how is a table updated whose mini-batch has gradients of a few rows only?

    adam                   Adam that reads and writes only the rows that have a gradient, in a critical section
    joined_lookups         lookups of a step in ordinary variables, and their gradients, in one transfer each
    partitioned_lookups    lookups in variables that are cut into parts

TensorFlow's own optimizers update the touched rows only, and in one operation, but for Adam: see `adam.py`.
"""
