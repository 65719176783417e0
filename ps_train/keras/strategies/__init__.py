"""The strategies of tf.distribute: which processes each has, how they meet, and how they end.

Start with `roles.py` (which processes) and `factory.py` (the strategy itself).
"""
