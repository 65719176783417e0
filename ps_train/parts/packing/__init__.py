"""Packing: how does a model with hundreds of small variables make one update on a ps, in place of hundreds?

`part.py` has it all. Without this part, each variable is updated by itself; checkpoints are the same. See
docs/decisions/transfers.md.
"""
