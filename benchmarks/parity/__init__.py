"""The same calls of TensorFlow 1 by TensorFlow 1.15 itself and by ps_train: `python -m benchmarks.parity_with_1_15`.

    values.py    computes all cases, in either; it runs as a script, so that ps_train runs it as it runs a user's
    shared.py    inputs that are the same for both, and the values of variables by their names
    jobs.py      trains jobs, which move from one to the other and back
    layers.py, recurrent.py, sequences.py, metrics.py, optimizers.py, functions.py, columns.py    the cases

The files below run on Python 3.7, the last one that TensorFlow 1.15 was built for.
"""
