"""The updates that a model makes beside its train_op: those that its hooks run, or UPDATE_OPS.

    recorded call --> needed by the train_op     update.py applies it; a warning names a hook that may run it again
                  --> run by a hook, UPDATE_OPS  applied where the model made it
                  --> neither                    not applied, so that it makes no slots

A hook need not show what it runs, so one of the user's own counts as running all calls.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import transfer
from ps_train.parts.own_train_op.capture import Captured
from ps_train.plugins.contracts import ModelSpec

_log = logging.getLogger(__name__)


def apply_others(spec: ModelSpec, captured: Sequence[Captured], used: Sequence[Captured]) -> None:
    """Applies the calls that are not in `used`, but that something else may run, where the model made them.

    Raises:
      UserCodeError: UPDATE_OPS need one in the loop of local steps, where it would update the parameters themselves.
    """
    in_step = spec.train_op is None and _needed(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) or set()
    held = _needed([end for hook in _hooks(spec) for end in _held_by(hook)])
    has_own_hook = any(not type(hook).__module__.startswith("tensorflow.") for hook in _hooks(spec))
    for one in captured:
        if any(one is other for other in used):
            continue
        if transfer.context_of(one.after) is not None:
            if one.after in in_step:
                raise UserCodeError("train_op_unsupported", "--communication_period: tf.GraphKeys.UPDATE_OPS have an "
                                    f"update of the model's {type(one.optimizer).__name__}, which a worker's copy "
                                    "cannot make; leave the flag or the update out")
        elif has_own_hook or one.after in in_step or one.after in held:
            one.apply()


def warn_of_whole_updates(spec: ModelSpec, used: Sequence[Captured]) -> None:
    """Warns of hooks that hold an operation after the update of the train_op."""
    for hook in _hooks(spec):
        needed = _needed(_held_by(hook))
        if any(one.after in needed for one in used):
            _log.warning(
                "the model's hook %s has an operation that needs the update of the train_op: if the hook runs it by "
                "itself, that makes a whole update, with all optimizers of the train_op and another mini-batch; let "
                "before_run fetch it, or leave its optimizer out of the train_op", type(hook).__name__)


def _hooks(spec: ModelSpec) -> Sequence[tf.train.SessionRunHook]:
    return [*spec.training_hooks, *spec.training_chief_hooks]


def _needed(ends: Sequence[Any]) -> set[tf.Operation]:
    return set(transfer.upstream(ends))


def _held_by(value: Any, depth: int = 3) -> Iterator[tf.Operation | tf.Tensor]:
    """Yields the operations and tensors in the attributes of a hook, and in lists and dicts there."""
    if isinstance(value, (tf.Operation, tf.Tensor)):
        yield value
        return
    parts: Sequence[Any] = ()
    if isinstance(value, tf.train.SessionRunHook):
        parts = list(vars(value).values())
    elif isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set)):
        parts = list(value)
    for part in parts if depth else ():
        yield from _held_by(part, depth - 1)
