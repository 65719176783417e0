"""Finds what the train_op of a model does besides applying gradients.

                      +-- upstream of the gradients ------------> runs anyway, in each step
    train_op needs ---+-- independent of the update (`before`) -> runs in each step, before the gradients are applied
                      +-- after the update (`after`) -----------> runs after each update, such as a moving average
                      +-- the count of the global step ---------> ignored: ps_train counts the updates itself
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer
from ps_train.parts.own_train_op.capture import Captured

# Stateful operations that change no state that outlives the step.
_HARMLESS = re.compile(
    r"(VarHandle|VarIsInitialized|ReadVariable|ResourceGather|Random|Truncated|Multinomial|Placeholder|Iterator|.*Dataset"
    r"|.*Iterator|.*QueueV2$|QueueDequeue|QueueSize|.*TableV2$|LookupTableFind|LookupTableSize|VariableV2|Variable$|Reader"
    r"|FIFOQueue|Stack|TensorArray|ParameterizedTruncated|SampleDistortedBoundingBox|.*CandidateSampler)")
_CHANGES_REFERENCE = re.compile(r"(Assign|Scatter|Apply|Sparse.*Apply)")
_READS = {"ReadVariableOp", "VarIsInitializedOp", "IsVariableInitialized", "VariableShape"}
_PASSING = {"Enter", "Identity", "RefEnter", "RefIdentity", "RefSwitch", "Switch"}  # into a loop or a branch
_BATCH = re.compile(r"(.*IteratorGetNext|QueueDequeue|ReaderRead)")


class Effects(NamedTuple):
    """What a train_op does besides applying gradients.

    Attributes:
      before: operations to run in each step, before its gradients are applied.
      after: operations to run after each update.
      needs_batch: whether those after the update need the mini-batch.
      problem: why ps_train cannot separate them, such as "applies gradients twice, one after the other", or None.
    """

    before: list[tf.Operation]
    after: list[tf.Operation]
    needs_batch: bool
    problem: str | None


def find_effects(
    train_op: tf.Operation, loss: tf.Tensor, captured: Sequence[Captured], global_step: tf.Variable,
    created: Collection[tf.Operation],
) -> Effects:
    """Returns what `train_op` does besides applying what was captured.

    Args:
      captured: the calls that `train_op` needs.
      created: the operations of the model; others, such as those of a round of local steps, do not count.
    """
    needed = [op for op in transfer.upstream([train_op]) if op in created]
    gradients = [part for one in captured for gradient, _ in one.pairs for part in transfer.tensors_of(gradient)]
    run_anyway = set(transfer.upstream([loss, *gradients, *(one.before for one in captured)])).intersection(created)
    effects = [op for op in needed if op not in run_anyway and _has_effect(op) and not _writes(op, global_step)]
    behind = transfer.downstream([one.after for one in captured])
    after = [op for op in effects if op in behind]
    before = [op for op in effects if op not in behind]
    return Effects(before, after, needs_batch(after), _problem(captured, run_anyway, effects, global_step))


def needs_batch(ends: Sequence[tf.Tensor | tf.Operation]) -> bool:
    """Returns whether these tensors and operations need the mini-batch."""
    return any(_BATCH.match(op.type) for op in transfer.upstream(ends))


def _problem(
    captured: Sequence[Captured], run_anyway: set[tf.Operation], effects: list[tf.Operation], global_step: tf.Variable
) -> str | None:
    updated = [variable.ref() for one in captured for _, variable in one.pairs]
    if any(one.after in run_anyway for one in captured):
        return "applies gradients that it computes after another update in the same step"
    if len(set(updated)) < len(updated):
        return "applies several gradients to one variable"
    if any(one.counter is not None and one.counter.name != global_step.name for one in captured):
        return "counts its steps in another variable than tf.train.get_global_step()"
    if any(_writes(op, global_step) for op in {*transfer.upstream(effects), *run_anyway}):
        return "does something after it has raised the global step by itself"
    outer_context = transfer.context_of(captured[0].before)
    enclosed = next((op for op in effects if transfer.context_of(op) is not outer_context), None)
    return f"runs {enclosed.name} in a branch or a loop" if enclosed else None


def _has_effect(op: tf.Operation) -> bool:
    if _CHANGES_REFERENCE.match(op.type):
        return True
    return bool(op.op_def and op.op_def.is_stateful) and not _HARMLESS.match(op.type)


def _writes(op: tf.Operation, variable: tf.Variable) -> bool:
    """Returns whether an operation changes a variable."""
    if not _has_effect(op) or not op.inputs:
        return False
    return op.inputs[0].name == _target(variable).name


def may_write(train_op: tf.Operation | tf.Tensor, variable: tf.Variable) -> bool:
    """Returns whether `train_op` needs an operation that is no plain read of a variable, in a function, too."""
    return _is_used(_target(variable), set(transfer.upstream([train_op])))


def _is_used(target: tf.Tensor, needed: set[tf.Operation]) -> bool:
    for op in needed.intersection(target.consumers()):
        if op.type in _PASSING:
            if any(_is_used(passed, needed) for passed in op.outputs if passed.dtype == target.dtype):
                return True
        elif op.type not in _READS:
            return True
    return False


def _target(variable: tf.Variable) -> tf.Tensor:
    """Returns what an operation takes to read or change a variable."""
    return variable.handle if transfer.has_handle(variable) else variable._ref()  # noqa: SLF001 (no public name)
