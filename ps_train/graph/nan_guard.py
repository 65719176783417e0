"""Stops a step with NaN or infinity on the worker, before any part of its update reaches a ps.

    loss, gradients --> check all of them --> only then update moving averages and push

A NaN that reaches the parameters would be in every worker's next step (tensorflow/tensorflow#14494).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer

_MARK = "ps_train checked"
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_FEW_ELEMENTS = 1000
_SUMMED = (tf.float32, tf.float64)
_MESSAGE_OF_PART = re.compile(rf"\[{_MARK} the gradient of\] \[(.+?)\] \[([^\]]+)\]")
_MESSAGE = re.compile(rf"{_MARK} (.+?) *: Tensor had ([\w ,]+) values")
_WRITES = re.compile(r"(Resource)?(Sparse)?(Assign|Scatter|Apply|StridedSliceAssign)")
# TensorFlow's own message about a tf.summary.histogram in the model.
_IN_SUMMARY = re.compile(r"(Nan|Infinity) in (?:summary histogram|Histogram) for: (\S+)")


def guard(
    loss: tf.Tensor, gradients: Sequence[tuple[Any, tf.Variable]],
    contents: Mapping[Any, Sequence[tf.Variable]] = _NOTHING, of_rows: Mapping[str, tf.Tensor] = _NOTHING, *,
    waits_for: Sequence[Any] = (), written: Mapping[tf.Operation, str] = _NOTHING, is_judged: bool = False,
) -> tuple[list[tuple[Any, tf.Variable]], dict[str, tf.Tensor]]:
    """Returns `gradients` and `of_rows`, which are available only if the scalar loss and every gradient are finite.

    Args:
      gradients: (gradient or None, variable); a gradient is a tensor or IndexedSlices.
      contents: `Packed.contents`; the error names the variable in a packed one.
      of_rows: name of a row parameter -> gradient.
      waits_for: operations that run before, such as updates of moving averages. They write after the checks.
      written: `op` of a variable that they may write -> its name.
      is_judged: whether the optimizer leaves out updates with such gradients of variables by itself.
    """
    checks = [_check(loss, "the loss")]
    for gradient, variable in () if is_judged else gradients:
        if variable.ref() in contents:
            checks.append(_check_parts(gradient, contents[variable.ref()]))
        elif gradient is not None:
            checks.append(_check(gradient, f"the gradient of {variable.op.name}"))
    checks += [_check(gradient, f"the gradient of table {name}") for name, gradient in of_rows.items()]
    _write_after(checks, waits_for, written)
    with tf.control_dependencies([tf.group(*checks), tf.group(*waits_for)]):
        return ([(None if gradient is None else tf.identity(gradient), variable) for gradient, variable in gradients],
                {name: tf.identity(gradient) for name, gradient in of_rows.items()})


def _write_after(checks: Sequence[tf.Operation], waits_for: Sequence[Any], written: Mapping[Any, str]) -> None:
    """Makes the operations write after all checks that do not need what is written; else the value is checked, too."""
    writes = {op: written[_written_by(op)] for op in transfer.upstream(waits_for)
              if _WRITES.match(op.type) and _written_by(op) in written and _loop_of(op) is _loop_of(checks[0])}
    behind = transfer.downstream(writes)
    before = [check for check in checks if check not in behind]
    passed = tf.group(*before)  # one operation, as each edge to a ps is a transfer
    for op, name in writes.items():
        transfer.add_control_input(op, passed)
        if len(before) < len(checks) and op.inputs[-1].dtype.is_floating:
            with tf.device(op.inputs[-1].device):
                transfer.add_control_input(op, _check(op.inputs[-1], f"the update of {name}"))


def _written_by(op: tf.Operation) -> tf.Operation:
    """Returns the `op` of the variable that an operation writes, also from within a loop or a branch."""
    handle = op.inputs[0].op
    while handle.type in ("Enter", "Switch"):
        handle = handle.inputs[0].op
    return handle


def _loop_of(op: tf.Operation) -> Any:
    context = transfer.context_of(op)
    return context and context.GetWhileContext()


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
