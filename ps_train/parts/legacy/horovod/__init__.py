"""`import horovod.tensorflow as hvd`, or `horovod.keras`, in an unchanged script: Horovod's names, on this cluster.

A Horovod script knows of no cluster: each process has a copy of the variables, and averages its gradients with the
others. Here the variables that a `DistributedOptimizer` trains are on the ps, and its updates are those of
SyncReplicasOptimizer. All other graphs of the script stay on their worker. So do all graphs of a Keras script, whose
ranks have a copy of the variables each, as under Horovod, and exchange their gradients.

    hvd.init()                 the task of TF_CONFIG: its Server; a ps serves until training is over
    hvd.DistributedOptimizer   the graph is trained: its variables are on the ps, its sessions are with the cluster
    hvd.broadcast_...          wait for rank 0, the chief, to prepare the parameters
    hvd.allreduce, allgather   exchange values of all workers, by way of ps 0

Start with `module.py`.

    module       the names of `horovod.tensorflow`
    imports      where `import` finds the modules
    ranks        which rank this task has, from its cluster
    graphs       places the operations of the script's graphs, and knows which of them are trained
    redirection  where its sessions go, and what they run before the first step
    optimizer    DistributedOptimizer
    exchange     the values of all workers; fused: those of operations in a graph

    keras_names, with keras_optimizer, keras_callbacks and keras_values: `horovod.keras` and `horovod.tensorflow.keras`

Documentation: docs/migrate_horovod.md. Tests: tests/*/parts/legacy/horovod/.
"""
