"""Row-sparse updates: how is a table updated whose mini-batch has gradients of a few rows only?

    critical_section       runs operations on a ps so that no other session runs them at the same time
    adam                   Adam that reads and writes only the rows that have a gradient
    joined_lookups         lookups of a step in ordinary variables, and their gradients, in one transfer each
    partitioned_lookups    lookups in variables that are cut into parts

TensorFlow's own optimizers update the touched rows only, and in one operation, but for Adam: see `adam.py`.
"""
