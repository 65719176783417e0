"""What would prevent a training, here or between machines? `ps_train doctor`.

    machine  this machine: Python, TensorFlow, processor, memory, ports, disk, GPU; defines a `Finding`
    network  the tasks of a cluster: names, reachability, latency, bandwidth and clocks
    examine  runs the checks that the flags ask for, and prints their findings

Start with `examine.py`. Nothing here imports TensorFlow.
"""
