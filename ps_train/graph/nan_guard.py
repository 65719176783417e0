"""Stops a step with NaN or infinity on the worker, before any part of its update reaches a ps.

    loss, gradients --> check all of them --> only then push

A NaN that reaches the parameters would be in every worker's next step (tensorflow/tensorflow#14494).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow.compat.v1 as tf

_MARK = "ps_train checked"
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_FEW_ELEMENTS = 1000
_SUMMED = (tf.float32, tf.float64)
_MESSAGE_OF_PART = re.compile(rf"\[{_MARK} the gradient of\] \[(.+?)\] \[([^\]]+)\]")
_MESSAGE = re.compile(rf"{_MARK} (.+?) *: Tensor had ([\w ,]+) values")
# TensorFlow's own message about a tf.summary.histogram in the model.
_IN_SUMMARY = re.compile(r"(Nan|Infinity) in (?:summary histogram|Histogram) for: (\S+)")


def guard(
    loss: tf.Tensor, gradients: Sequence[tuple[Any, tf.Variable]],
    contents: Mapping[Any, Sequence[tf.Variable]] = _NOTHING, of_rows: Mapping[str, tf.Tensor] = _NOTHING,
) -> tuple[list[tuple[Any, tf.Variable]], dict[str, tf.Tensor]]:
    """Returns `gradients` and `of_rows`, which are available only if the scalar loss and every gradient are finite.

    Args:
      gradients: (gradient or None, variable); a gradient is a tensor or IndexedSlices.
      contents: `Packed.contents`; the error names the variable in a packed one.
      of_rows: name of a row parameter -> gradient.
    """
    checks = [_check(loss, "the loss")]
    for gradient, variable in gradients:
        if variable.ref() in contents:
            checks.append(_check_parts(gradient, contents[variable.ref()]))
        elif gradient is not None:
            checks.append(_check(gradient, f"the gradient of {variable.op.name}"))
    checks += [_check(gradient, f"the gradient of table {name}") for name, gradient in of_rows.items()]
    with tf.control_dependencies(checks):
        return ([(None if gradient is None else tf.identity(gradient), variable) for gradient, variable in gradients],
                {name: tf.identity(gradient) for name, gradient in of_rows.items()})


def _check(value: Any, name: str) -> tf.Operation:
    """Returns an operation that fails if the tensor has a NaN or infinity; a large tensor is checked by its sum."""
    # A sum is not finite if an element is not. CheckNumerics checks one element after another, which takes 0.09 ms for
    # 78,400 floats: a local step of the MLP took 0.91 ms of CPU time with it, and 0.81 ms with sums. A sum that
    # overflows counts as infinite, so the 16-bit types, which overflow early, are not summed.
    tensor = value.values if isinstance(value, tf.IndexedSlices) else value
    num_elements = tensor.shape.num_elements()
    if tensor.dtype.base_dtype in _SUMMED and (num_elements is None or num_elements > _FEW_ELEMENTS):
        tensor = tf.reduce_sum(tensor)
    return tf.debugging.check_numerics(tensor, f"{_MARK} {name}").op


def _check_parts(joined: tf.Tensor, parts: Sequence[tf.Variable]) -> tf.Operation:
    """Returns an operation that fails if the concatenated gradients [n] of many variables have a NaN or infinity."""
    is_bad = tf.logical_not(tf.math.is_finite(joined))
    first = tf.argmax(tf.cast(is_bad, tf.uint8))
    ends = list(itertools.accumulate(part.shape.num_elements() for part in parts))
    part = tf.searchsorted(tf.constant(ends, tf.int64), first[tf.newaxis], side="right")[0]
    # Not tf.Assert, which would make it a cond.
    return tf.raw_ops.Assert(condition=tf.logical_not(tf.reduce_any(is_bad)), data=[
        f"{_MARK} the gradient of", tf.gather([part.op.name for part in parts], part), joined[first]])


def nan_in(error: tf.errors.InvalidArgumentError) -> str | None:
    """Returns what was not finite, such as "the gradient of hidden/weights has NaN"; None for another error."""
    if match := _MESSAGE.search(error.message):
        return f"{match[1]} has {match[2]}"
    if match := _MESSAGE_OF_PART.search(error.message):
        return f"the gradient of {match[1]} has {'NaN' if 'nan' in match[2] else 'Inf'}"
    match = _IN_SUMMARY.search(error.message)
    return f"the summary {match[2]} has {match[1]}" if match else None
