"""How does unchanged TensorFlow 1 code run? `ps_train run script.py`.

    names/ --> what `import tensorflow as tf` finds        estimator/ --> tf.estimator
    classic/ --> Server, Supervisor, MonitoredTrainingSession, SyncReplicasOptimizer

Start with `run.py`. Nothing in the core imports this folder.

    run.py        runs a script as one task, from the mode of TensorFlow to the exit code
    launching.py  runs all tasks of a script, here or on other machines
    source.py     looks into a script before it runs
    joining.py    reports that TensorFlow's own servers and strategies have made the cluster
    global_step.py  finds a global step that the script made by hand
    conversion/   Python 2, and paths that are written into a script
    names/        TensorFlow 1's names, on today's TensorFlow
    classic/      TensorFlow 1's classes, which here end, name whom they wait for, and recover
    estimator/    tf.estimator on TensorFlow 2.16 and later
"""
