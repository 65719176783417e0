"""Which variable goes on which ps.

`replica_device_setter` deals variables out in turn, by count: four ps then got 0.7, 93.7, 15.5 and 4.1 million
parameters of one model (tensorflow/tensorflow#24953). Here each variable goes to the ps with the fewest bytes so far.
The order in which a model makes its variables decides, so every worker comes to the same plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import Cluster


class LeastBytes:
    """A `ps_strategy`: called with a variable's operation, returns the index of the ps that it goes to."""

    def __init__(self, num_ps: int) -> None:
        self.load_bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the ps with the fewest bytes, the first of equals, and counts the variable there."""
        index = self.load_bytes.index(min(self.load_bytes))
        self.load_bytes[index] += variable_bytes(op)
        return index


def variable_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable in bytes; a shape that is not known counts as one element."""
    shape = tf.TensorShape(op.get_attr("shape"))
    return (shape.num_elements() or 1) * op.get_attr("dtype").size


@contextlib.contextmanager
def on_cluster(cluster: Cluster, worker_device: str) -> Iterator[None]:
    """Places what is made inside it: global variables on the ps, everything else on this worker.

    `replica_device_setter` would also put local variables (metrics, iterators' state) on the ps, where the workers
    would share them (training/device_setter.py); here they stay on the worker.
    """
    setter = tf.train.replica_device_setter(
        worker_device=worker_device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec(cluster.server_spec),
        ps_strategy=LeastBytes(len(cluster.ps)),
    )
    with tf.device(setter), tf.variable_creator_scope(_keep_local_on(worker_device)):
        yield


def _keep_local_on(worker_device: str) -> Callable[..., Any]:
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        collections = kwargs.get("collections") or ()
        if tf.GraphKeys.LOCAL_VARIABLES not in collections or tf.GraphKeys.GLOBAL_VARIABLES in collections:
            return next_creator(**kwargs)
        with tf.device(worker_device):
            return next_creator(**kwargs)

    return create
