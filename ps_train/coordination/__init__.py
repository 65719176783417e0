"""How tasks know of each other: small variables on ps 0, the blackboard.

    worker --- claim, heartbeat ---> ps 0 <--- state, fingerprint --- chief
                                      |
                                      +---> snapshot: who is alive, where training stands

Start with `state.py` (what is known), then `blackboard.py` (how it is read and written).
"""
