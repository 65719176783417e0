"""The strategies of tf.distribute: which processes does each have, how do they meet, and how do they end?

Start with `roles.py` (which processes) and `factory.py` (the strategy itself).

    roles       which processes a strategy has, and which of them this one is
    factory     creates the tf.distribute strategy that --strategy names
    rendezvous  the workers of multi_worker_mirrored find each other before TensorFlow starts
    servers     a ps or worker of parameter_server
    tpu         finds a TPU without TensorFlow
    watchdog    a time limit on training, as TensorFlow waits forever for a worker that hangs
"""
