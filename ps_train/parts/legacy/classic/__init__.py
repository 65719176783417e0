"""TensorFlow 1's own classes, which here end, name the tasks they wait for, and recover.

    Server                      the server; a ps serves until every worker has ended
    sessions of every kind      join the cluster before their first remote session
    SyncReplicasOptimizer       follows the workers that are alive

Start with `membership.py`. The decision: docs/decisions/scripts.md.

    membership   this process among the others: its claim, its heartbeat, how it leaves, and what ends it meanwhile
    ps_life      how long a ps serves
    server       Server, and replica_device_setter, which balances bytes
    sessions     Session, Supervisor, MonitoredTrainingSession; who prepares the parameters
    sync_replicas  SyncReplicasOptimizer
    updates      runs its updates on the chief
    ending       what happens when the script ends, fails or receives a signal to stop
"""
