"""TensorFlow 1's own classes, with a clean end, waits that name the tasks, and recovery.

    Server                      the server; a ps serves until every worker has ended
    sessions of every kind      join the cluster before their first remote session
    SyncReplicasOptimizer       follows the workers that are alive

Start with `membership.py`. The decision: docs/decisions/scripts.md.

    membership     this process among the others: its claim, its heartbeat, how it leaves, and what ends it meanwhile
    trainings      whether a session goes on with the training that is on the ps
    script_cluster the cluster that a script gives it, and the launcher's addresses for those that are written into it
    server         Server, and how long a ps serves; replica_device_setter, which balances bytes
    clients        when a server ends in a cluster without workers
    sessions       Session, Supervisor, MonitoredTrainingSession; who prepares the parameters
    named_tasks    the other workers that a session needs, because its graph names them
    stop_hook      how a signal ends a monitored session, and its last checkpoint
    session_repairs what is changed in TensorFlow's own sessions
    sync_replicas  SyncReplicasOptimizer
    placement      variables where a script's own device functions want them
    updates        runs its updates on the chief
    ending         what happens when the script ends, fails or receives a signal to stop
    imported_script the same, for one that imports the classes
"""
