"""One worker's training, from its graph to its last checkpoint.

    replica_graph --> admission (may I train?) --> supervisor (a session) --> loop --> shutdown
                          ^                                                    |
                          +------------- recovery: the session is lost --------+

Start with `loop.py`, then `recovery.py`.
"""
