"""`ps_train doctor`: finds what would prevent a training, on this machine or between machines.

    verb     the flags, and the checks that they ask for
    machine  this machine: Python, TensorFlow, processor, memory, ports, disk, GPU; defines a `Finding`
    store    a train_dir in an object store
    network  the tasks of a cluster: names, reachability, latency, bandwidth and clocks

Start with `verb.py`. Nothing here imports TensorFlow.
"""
