"""How do tasks know of each other? Through the blackboard: small variables on ps 0.

    worker --- claim, heartbeat ---> ps 0 <--- state, fingerprint --- chief
                                      |
                                      +---> snapshot: which workers are alive, the state of training

Start with `state.py`, then `blackboard.py`. The decision: docs/decisions/blackboard.md.

    state.py         the state of training, a snapshot of the workers, and the claim of a process to be worker i
    blackboard.py    reads and writes the blackboard
    variables.py     the variables that the blackboard consists of, and the terms of chiefs
    heartbeat.py     claims a worker's number and sends its heartbeats
    agreement.py     do all tasks describe the same cluster, and train the same model in the same way?
    sessions.py      session options, closing, the meaning of a TensorFlow error, and calls to the blackboard
"""
