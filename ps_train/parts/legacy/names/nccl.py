"""contrib.nccl by plain operations: the sum of a tensor of each device, on each device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf


def _on_each_device(reduce: Callable, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    reduced = []
    for tensor in tensors:
        with tf.device(tensor.device):
            reduced.append(functools.reduce(reduce, tensors))
    return reduced


all_sum, all_prod, all_min, all_max = (
    functools.partial(_on_each_device, reduce) for reduce in (tf.add, tf.multiply, tf.minimum, tf.maximum))


def reduce_sum(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the sum, on the device on which it is used."""
    return tf.add_n(tensors)


def copy_to_users(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor; TensorFlow copies it to each device that uses it."""
    return tf.identity(tensor)
