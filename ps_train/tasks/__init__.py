"""What does each role do, from start to end?

    run               picks the role; start here
    ps                serves until training is done
    worker            trains; the chief also prepares, saves and evaluates
    connected_worker  a worker's heartbeat, blackboard and supervised training at a server
    evaluator         evaluates each new checkpoint
    setup             what a process sets before it uses TensorFlow, the plug-ins, and the server
    settings          what the flags mean for a worker
"""
