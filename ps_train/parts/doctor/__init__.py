"""What stands in the way of a training, here and between machines? `ps_train doctor`.

    findings   what a check found: ok, warn or fail, and what to do
    machine    this machine: Python, TensorFlow, processor, memory, ports, disk, GPU
    network    the tasks of a cluster: names, reachability, latency, bandwidth and clocks
    examine    runs the checks that the flags ask for, and prints their findings

Start with `examine.py`. Nothing here imports TensorFlow.
"""
