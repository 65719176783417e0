"""Which workers are alive, and which of them train: computed on ps 0 in the session run of a step.

    bool [MAX_WORKERS]   alive_workers      the process is there, its heartbeat is current, it has not finished
                         training_workers   alive, and has begun its first round or step

Each function adds operations to the current graph; place them on ps 0.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables


def alive_workers(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns which workers are alive: a heartbeat within this time, and not finished."""
    is_current = variables.read("clock") - variables.read("heartbeats") < heartbeat_timeout_secs
    is_here = tf.logical_and(tf.not_equal(variables.read("claims"), 0), tf.equal(variables.read("finished"), 0))
    return tf.logical_and(is_current, is_here)


def training_workers(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns which workers are alive and have joined."""
    has_joined = tf.equal(variables.read("joined"), variables.read("claims"))
    return tf.logical_and(alive_workers(heartbeat_timeout_secs), has_joined)


def without(worker: int, workers: tf.Tensor) -> tf.Tensor:
    """Returns `workers`, bool [MAX_WORKERS], with this one set to false."""
    return tf.logical_and(workers, tf.not_equal(tf.range(variables.MAX_WORKERS), worker))


def join(worker: int) -> tf.Operation:
    """Records that this worker trains."""
    # The claim says which process: the next process with the same number has not joined yet.
    return variables.write_element("joined", worker, variables.read("claims")[worker])
