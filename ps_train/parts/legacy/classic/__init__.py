"""TensorFlow 1's own classes, which here end, name whom they wait for, and recover.

    Server                      the server; a ps serves until every worker has ended
    sessions of every kind      join the cluster before their first remote session
    SyncReplicasOptimizer       follows the workers that are alive

Start with `membership.py`. The decision: docs/decisions/scripts.md.

    membership   this process among the others: its claim, its heartbeat, and how it leaves
    watch        what ends a worker that waits for something that does not come
    ps_life      how long a ps serves
    server       Server
    sessions     Session, Supervisor, MonitoredTrainingSession; who prepares the parameters
    filters      which tasks a session talks to
    placement    replica_device_setter, by bytes
    updates      runs the updates of SyncReplicasOptimizer on the chief
    ending       what happens when the script ends, fails or is told to stop
    install      puts these classes in the place of TensorFlow's
"""
