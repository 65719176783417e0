"""The cluster: which tasks are in it, which of them is this process, and at which addresses can they be reached?

    flags  ------+
    TF_CONFIG ---+--> resolve --> Cluster (spec): job, index, addresses, devices

Start with `spec.py`. Nothing here imports TensorFlow.

    spec          the values: Task and Cluster
    resolve       finds the Cluster in the flags or in TF_CONFIG
    tf_config     parses TF_CONFIG in its dense, sparse and dynamic forms
    addresses     parses and checks "host:port"
    ports         checks that a task's port is free; lets a server bind the port that a launcher keeps free for it
    reachability  waits until other tasks accept connections
"""
