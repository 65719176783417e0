"""Computes all cases and writes their values, by TensorFlow 1.15 or under `ps_train run`: `values.py OUT [PREFIX ...]`.

A case is a function without arguments in a CASES of one of the modules; its name there begins with that of the module.
What it returns is evaluated once, or several times if it is a pair of that and their number. Trainable variables have
values by their names, so a case with other names has other values, too.
"""

from __future__ import annotations

import pickle
import sys

import columns
import functions
import layers
import metrics
import numpy as np
import optimizers
import recurrent
import sequences
import tensorflow as tf
from shared import flattened, waves

MODULES = (layers, recurrent, sequences, metrics, optimizers, functions, columns)
COLLECTIONS = ("regularization_losses", "losses", "update_ops", "model_variables", "moving_average_variables")


def evaluate(build):
    """Returns what a case came to: names and shapes of its variables, sizes of collections, and its values."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(7)
        built = build()
        value, runs = built if isinstance(built, tuple) and len(built) == 2 and type(built[1]) is int else (built, 1)
        named = flattened(value)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        for variable in tf.trainable_variables():
            new = waves(variable.op.name, variable.shape.as_list())
            variable.load(new.astype(variable.dtype.base_dtype.as_numpy_dtype), session)
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        # Updates of metrics come before their values, which have no order in one call.
        updates = [tensor for path, tensor in named if path.endswith("/update")]
        values = [tensor for path, tensor in named if not path.endswith("/update")]
        results = []
        for _ in range(runs):
            session.run(updates)
            results.append([np.asarray(result) for result in session.run(values)])
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
        return {"paths": [path for path, _ in named if not path.endswith("/update")], "values": results,
                "variables": sorted((v.op.name, v.shape.as_list()) for v in tf.global_variables()),
                "trainable": sorted(variable.op.name for variable in tf.trainable_variables()),
                "collections": {name: len(tf.get_collection(name)) for name in COLLECTIONS}}


def main(path, *prefixes):
    """Writes the values of the cases that begin with one of the prefixes, or of all; a failure is text."""
    cases = {f"{module.__name__}.{name}": build for module in MODULES for name, build in module.CASES.items()}
    results = {}
    for name, build in cases.items():
        if not prefixes or name.startswith(tuple(prefixes)):
            try:
                results[name] = evaluate(build)
            except Exception as error:  # noqa: BLE001 (it is reported with the others)
                results[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    with open(path, "wb") as file:
        pickle.dump(results, file, protocol=2)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*sys.argv[1:])
