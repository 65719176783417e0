"""What can be asked of a running training from outside, and what does it answer?

    client: `ps_train stop`  --> stop_requested on every ps --> each task stops as if by a signal
    client: `ps_train save`  --> save_requested on ps 0 --> the chief saves --> save_answer on ps 0
    chief: what it trains --> about on ps 0 --> client: `ps_train status`

    control_board  the calls of both sides
"""
