"""Joined lookups: how do the rows that a model looks up in ordinary variables travel in few messages?

`part.py` has it all. Without this part, each `tf.nn.embedding_lookup` and each sparse gradient is a transfer. See
docs/decisions/transfers.md.
"""
