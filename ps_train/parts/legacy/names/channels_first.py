"""Convolutions and pooling of images whose channels come first, on machines without a GPU.

TensorFlow's kernels for a CPU refuse most of them: code that was written for GPUs fails at its first step there. Here
the operation gets its input with the channels last, and its result comes back with the channels first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_nn_ops  # whose functions tf.nn, tf.layers and Keras call

_OPERATIONS = (
    "conv2d", "conv3d", "depthwise_conv2d_native", "max_pool", "avg_pool", "max_pool3d", "avg_pool3d",
    "fused_batch_norm_v2", "fused_batch_norm_v3")
_TRANSPOSED = ("conv2d_backprop_input", "conv3d_backprop_input_v2")  # tf.nn.conv2d_transpose and the like
_PER_AXIS = ("strides", "dilations", "ksize")
_FORMATS = {"NCHW": "NHWC", "NCDHW": "NDHWC"}


def take_channels_first() -> None:
    """Replaces the operations, unless this process has a GPU, whose kernels know both orders."""
    if tf2.config.list_physical_devices("GPU"):
        return
    for name in _OPERATIONS:
        setattr(gen_nn_ops, name, _with_channels_last(getattr(gen_nn_ops, name), 0))
    for name in _TRANSPOSED:
        setattr(gen_nn_ops, name, _with_channels_last(getattr(gen_nn_ops, name), 2))
    tf.test.is_built_with_cuda = tf2.test.is_built_with_cuda = _is_built_with_cuda


def _is_built_with_cuda() -> bool:
    """Returns False: code chooses the order of the axes by it, and TensorFlow's package for CPUs was built without."""
    return False


def _with_channels_last(original: Callable, number: int) -> Callable:
    """Returns an operation for both orders of the axes; `number` is that of the argument with the images."""
    signature = inspect.signature(original)
    images = list(signature.parameters)[number]

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments.get("data_format")
        given = given.decode() if isinstance(given, bytes) else given
        if given not in _FORMATS:
            return original(*args, **kwargs)
        rank = len(given)
        changed = {**bound.arguments, "data_format": _FORMATS[given]}
        for name in _PER_AXIS:
            if isinstance(changed.get(name), (list, tuple)):
                changed[name] = _last(changed[name])
        if changed.get("explicit_paddings"):
            pairs = list(changed["explicit_paddings"])
            changed["explicit_paddings"] = [
                number for pair in _last(list(zip(pairs[::2], pairs[1::2]))) for number in pair]
        if "input_sizes" in changed:
            sizes = tf.convert_to_tensor(changed["input_sizes"])
            changed["input_sizes"] = tf.concat([sizes[:1], sizes[2:], sizes[1:2]], 0)
        changed[images] = tf.transpose(changed[images], [0, *range(2, rank), 1])
        return _first(original(**changed), rank)
    return call


def _last(values: Sequence) -> list:
    """Returns values of the axes [batch, channels, ...] in the order [batch, ..., channels]."""
    return [values[0], *values[2:], values[1]]


def _first(result: Any, rank: int) -> Any:
    """Returns a result with the channels first; of several, such as the mean beside the images, the first is turned."""
    order = [0, rank - 1, *range(1, rank - 1)]
    if isinstance(result, tf.Tensor):
        return tf.transpose(result, order)
    return type(result)(tf.transpose(result[0], order), *result[1:])
