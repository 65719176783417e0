"""Which workers are alive and train, as ps 0 sees it in the session run of a step itself; each function adds to it.

    bool [MAX_WORKERS]    is_living    its process is there, was heard of, and has not finished
                          takes_part   and trains already: it does not start any more
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables


def is_alive(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns who is there, was heard of within this time, and has not finished."""
    is_heard = variables.read("clock") - variables.read("beats") < heartbeat_timeout_secs
    is_there = tf.logical_and(tf.not_equal(variables.read("claims"), 0), tf.equal(variables.read("finished"), 0))
    return tf.logical_and(is_heard, is_there)


def is_training(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns who lives and has joined."""
    has_joined = tf.equal(variables.read("joined"), variables.read("claims"))
    return tf.logical_and(is_alive(heartbeat_timeout_secs), has_joined)


def others(worker: int, heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns who takes part besides this worker."""
    return besides(worker, is_training(heartbeat_timeout_secs))


def join(worker: int) -> tf.Operation:
    """Notes that the process which has the claim of this number trains; one that comes in its place does not yet."""
    return variables.write_element("joined", worker, variables.read("claims")[worker])


def besides(worker: int, workers: tf.Tensor) -> tf.Tensor:
    """Returns `workers`, bool [MAX_WORKERS], without this one."""
    return tf.logical_and(workers, tf.not_equal(tf.range(variables.MAX_WORKERS), worker))
