"""What does each role do, from start to end?

    run               picks the role; start here
    ps                serves until training is done
    worker            trains; the chief also prepares, saves and evaluates
    evaluator         evaluates each new checkpoint
    without_training  what `ps_train serve` and --download_only do
    setup             what a process sets before it uses TensorFlow, the plug-ins, the server; what the flags mean
"""
