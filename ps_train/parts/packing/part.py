"""Packs many small variables of a ps into one while training runs.

    training begins    small variables and their slots --> one packed variable and its slots
    a step             pulls and updates the packed variable; the model reads slices of it
    a save             writes slices of it, under the names of the small variables and their slots

An operation on 64 numbers costs as much as one on 10,000. With packing, a step of a model with 200 small variables
makes one Adam update on its ps instead of 200; checkpoints stay the same.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import extensions, optimizers, transfer
from ps_train.graph.devices import is_on_ps
from ps_train.part import Part

_MAX_ELEMENTS = 4096  # of a small variable
_MIN_VARIABLES = 16  # fewer small variables on a ps are not worth packing


class Pack(NamedTuple):
    """A packed variable.

    Attributes:
      whole: shape [number of all their elements], on their ps, in no collection.
      variables: the small variables, in the order of their elements in `whole`.
    """

    whole: tf.Variable
    variables: list[tf.Variable]


class PackingPart(Part):
    """Small variables, in the training graph of one worker."""

    def begin_graph(self) -> None:
        """Makes the graph pack them."""
        extensions.set_packing(SmallVariables())


class PackedVariables(extensions.Packed):
    """What training updates after packing; see `Packed`.

    Attributes:
      packs: the packed variables.
      views: (small variable or slot, its slice of a pack).
    """

    def __init__(
        self, pairs: list[transfer.Pair], optimizer: tf.train.Optimizer, fill_ops: Sequence[tf.Operation],
        packs: Sequence[Pack], views: Sequence[transfer.View],
    ) -> None:
        super().__init__(pairs, optimizer, fill_ops, {pack.whole.ref(): pack.variables for pack in packs})
        self.packs, self.views = packs, views

    def places(self) -> dict[str, str]:
        """Returns small variable -> its place in a pack."""
        return {variable.op.name: f"{pack.whole.op.name}[{begin}:]" for pack in self.packs for variable, begin in zip(
            pack.variables, itertools.accumulate(map(_size, pack.variables), initial=0))}

    def save_from(self, saver: tf.train.Saver) -> None:
        """Makes a Saver write the values in the packs."""
        save = tf.get_default_graph().get_tensor_by_name(saver.saver_def.save_tensor_name)
        transfer.serve_reads(transfer.upstream([save]), self.views)


class SmallVariables(extensions.Packing):
    """Packs the small variables of a ps that has enough of them; see `Packing`."""

    def pack(
        self, loss: tf.Tensor, gradients: Sequence[transfer.Pair], optimizer: tf.train.Optimizer,
        wire: transfer.Wire, others: Sequence[tf.Operation] = (),
    ) -> PackedVariables:
        """Makes the operations of a step read the packs."""
        gradients_by_variable = {variable.ref(): gradient for gradient, variable in gradients}
        step = _what_a_step_runs(loss, gradients, others)
        # Sorted by name: another worker may have created the variables in another order.
        small = sorted((variable for gradient, variable in gradients
                        if transfer.is_dense(gradient) and _can_be_packed(variable, step)),
                       key=lambda variable: variable.op.name)
        # Sorted by ps: variables of an optimizer that are no slots go with the first, and the global step is on ps 0.
        groups = sorted((group for group in transfer.group(small, wire) if len(group.variables) >= _MIN_VARIABLES),
                        key=lambda group: group.device)
        if not groups:
            return PackedVariables(list(gradients), optimizer, (), (), ())
        optimizer.apply_gradients(gradients)  # not run: it creates the slots that checkpoints contain
        packs = [Pack(_whole(group, number), group.variables) for number, group in enumerate(groups)]
        packed = {variable.ref() for group in groups for variable in group.variables}
        pairs = [pair for pair in gradients if pair[1].ref() not in packed]
        for whole, variables in packs:
            transfer.serve_reads(step, zip(variables, _cut(variables, whole.read_value())))
            pairs.append((_join([gradients_by_variable[variable.ref()] for variable in variables]), whole))
        return _with_slots(pairs, packs, optimizer, _without_slots(optimizer))


def _without_slots(optimizer: tf.train.Optimizer) -> tf.train.Optimizer:
    """Returns a copy that has no slots yet, and all else in common with the optimizer, such as a learning rate."""
    # Not a second call of the model's make_optimizer: variables that it makes would exist twice, or fail.
    another = copy.copy(optimizer)
    another._slots, another._non_slot_dict = {}, {}  # noqa: SLF001 (no public name; optimizer.py in TensorFlow)
    return another


class _PackingOptimizer(tf.train.GradientDescentOptimizer):
    """Two optimizers of the same kind, one for packed variables and one for the others."""

    def __init__(self, for_packs: tf.train.Optimizer, for_others: tf.train.Optimizer, packs: Sequence[Pack]) -> None:
        super().__init__(learning_rate=1.0)  # not used: the two optimizers apply the gradients
        self._for_packs = for_packs
        self._for_others = for_others
        self._packed = {pack.whole.ref() for pack in packs}

    def apply_gradients(
        self, grads_and_vars: Sequence[transfer.Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        packed = [pair for pair in grads_and_vars if pair[1].ref() in self._packed]
        others = [pair for pair in grads_and_vars if pair[1].ref() not in self._packed]
        applied = [self._for_packs.apply_gradients(packed)]
        if any(gradient is not None for gradient, _ in others):
            applied.append(self._for_others.apply_gradients(others))
        with tf.control_dependencies(applied):
            return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)


def _with_slots(
    pairs: list[transfer.Pair], packs: list[Pack], for_others: tf.train.Optimizer, for_packs: tf.train.Optimizer
) -> PackedVariables:
    """Creates the slots of the packs, the operations that fill the packs, and the views under which they are saved.

    Args:
      for_others: the optimizer of the variables that are not packed; it has the slots of all, which are in checkpoints.
      for_packs: an optimizer of the same kind, without slots yet.
    """
    wholes = {pack.whole.ref() for pack in packs}
    with tf.variable_creator_scope(_in_no_collection(packs[0].whole.op.name)):  # not run: it creates the slots
        for_packs.apply_gradients([pair for pair in pairs if pair[1].ref() in wholes])
    slots = optimizers.pair_slots(packs, whole_optimizer=for_packs, parts_optimizer=for_others)
    fill_ops, views = [], []
    for whole, variables in [*packs, *slots]:
        with tf.device(whole.device):
            fill_ops.append(whole.assign(_join([variable.read_value() for variable in variables])))
            views += zip(variables, _cut(variables, whole.read_value()))
    # Both optimizers have further variables, such as Adam's powers. Those of `for_others` are current if it has
    # anything to update.
    is_idle = not any(gradient is not None and variable.ref() not in wholes for gradient, variable in pairs)
    for of_packs, of_others in optimizers.pair_non_slots(for_packs, for_others):
        with tf.device(of_packs.device):
            fill_ops.append(of_packs.assign(of_others.read_value()))
            views += [(of_others, of_packs.read_value())] if is_idle else []
    return PackedVariables(pairs, _PackingOptimizer(for_packs, for_others, packs), fill_ops, packs, views)


def _what_a_step_runs(
    loss: tf.Tensor, gradients: Sequence[transfer.Pair], others: Sequence[tf.Operation]
) -> set[tf.Operation]:
    tensors = [tensor for gradient, _ in gradients for tensor in transfer.tensors_of(gradient)]
    return set(transfer.upstream([loss, *tf.get_collection(tf.GraphKeys.SUMMARIES), *others, *tensors]))


def _can_be_packed(variable: tf.Variable, step: set[tf.Operation]) -> bool:
    """Returns whether a variable is a small one on a ps, and only its initialiser and plain reads of a step use it."""
    num_elements = variable.shape.num_elements()
    if num_elements is None or num_elements > _MAX_ELEMENTS or variable.constraint is not None:
        return False
    if not transfer.has_handle(variable):
        return False
    # The small variable keeps its value from the begin of training, so each of its readers must read the pack instead.
    return is_on_ps(variable.device) and all(
        op.type == "VarIsInitializedOp" or op is variable.initializer or _can_be_served(op, step)
        for op in variable.handle.consumers())


def _can_be_served(op: tf.Operation, step: set[tf.Operation]) -> bool:
    """Returns whether an operation reads a variable only for operations of a step that can read a pack instead."""
    return transfer.is_free_read(op) and all(
        user in step and not transfer.is_enclosed(user) and not is_on_ps(user.device)  # to a ps it would have to travel
        for user in op.outputs[0].consumers())


def _whole(group: transfer.Group, number: int) -> tf.Variable:
    # The name depends on the content: the next training on the same servers may pack other variables.
    content = zlib.crc32(repr([(variable.op.name, variable.shape.as_list(), variable.dtype)
                               for variable in group.variables]).encode())
    shape = [sum(map(_size, group.variables))]
    with tf.variable_creator_scope(_in_no_collection("")), tf.device(None), tf.device(group.device):
        return tf.Variable(lambda: tf.zeros(shape, group.dtype), trainable=False,
                           name=f"ps_train/packed_{number}_{content:08x}")


def _in_no_collection(prefix: str) -> Callable[..., tf.Variable]:
    """Returns a variable creator for variables that TensorFlow neither initialises nor checks nor saves.

    Args:
      prefix: put before the names of variables that do not belong to ps_train, such as Adam's powers.
    """
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> tf.Variable:
        name = kwargs["name"]
        full_name = name if name.startswith("ps_train/") else f"{prefix}/{name}"
        return next_creator(**{**kwargs, "collections": [], "name": full_name})

    return create


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


def _cut(variables: Sequence[tf.Variable], value: tf.Tensor) -> list[tf.Tensor]:
    pieces = tf.split(value, list(map(_size, variables)))
    return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, variables)]


def _size(variable: tf.Variable) -> int:
    return variable.shape.num_elements()
