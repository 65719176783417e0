"""Who is in the cluster, which task this process is, and at which addresses.

    flags  ------+
    TF_CONFIG ---+--> resolve --> Cluster (spec): job, index, addresses, devices

Start with `spec.py`. Nothing here imports TensorFlow.
"""
