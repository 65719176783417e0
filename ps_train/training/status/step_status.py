"""The status of training after a step: read on ps 0 as one tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import variables
from ps_train.updates import staleness
from ps_train.updates.update import Update


class StepStatus(NamedTuple):
    """The state of training after a step, in the order of `Execution.progress`.

    Attributes:
      step: the global step.
      state: the training state, a value of `coordination.state.State`.
      num_taken: mini-batches in this worker's last step.
      staleness: of its last update, see updates/staleness.py.
      lead: how many steps it is ahead of the slowest worker; 0 without a staleness bound.
      slowest: the number of the slowest worker.
    """

    step: int
    state: int
    num_taken: int
    staleness: int
    lead: int
    slowest: int


def progress(
    cluster: Cluster, global_step: tf.Variable, update: Update, bound: staleness.Bound | None
) -> tf.Tensor:
    """Returns the `StepStatus` after a step as one tensor, so that a step fetches only one from ps 0."""
    with on_first_ps(cluster):
        begun = global_step.read_value()
        with tf.control_dependencies([update.train_op]):
            reached = global_step.read_value()
            counted = [staleness.count_steps(cluster.worker_number, update.num_taken)] if bound else [reached]
        with tf.control_dependencies(counted):
            age = staleness.measure(begun=begun, reached=reached, num_taken=update.num_taken)
            return tf.stack([[reached, variables.read("state"), update.num_taken, age, *_lead(cluster, bound)]])


def read_status(cluster: Cluster, global_step: tf.Variable, bound: staleness.Bound | None) -> tf.Tensor:
    """Returns int64 [6], a `StepStatus` read on ps 0 without training."""
    with on_first_ps(cluster):
        nothing = tf.constant(0, tf.int64)
        return tf.stack([global_step.read_value(), variables.read("state"), nothing, nothing,
                         *_lead(cluster, bound)])


def _lead(cluster: Cluster, bound: staleness.Bound | None) -> tuple[tf.Tensor, tf.Tensor]:
    if bound is None:
        return tf.constant(0, tf.int64), tf.constant(cluster.worker_number, tf.int64)
    return staleness.lead(cluster.worker_number, bound)


def join_bound(cluster: Cluster, bound: staleness.Bound | None) -> tf.Operation:
    """Returns the operation with which a worker joins the staleness bound, a no-op without one."""
    with on_first_ps(cluster):
        return staleness.join_at_slowest(cluster.worker_number, bound) if bound else tf.no_op()


def on_first_ps(cluster: Cluster) -> Any:
    """Returns the device of ps 0."""
    return tf.device(cluster.ps[0].device + "/cpu:0")
