"""Many small variables of a ps are one while it trains: an operation on 64 numbers costs what one on 10000 does.

    training begins    small variables and their slots --> one packed variable, its slots
    a step             pulls and updates the packed one; the model reads pieces of it
    a save             reads pieces of it, under the names of the small variables and their slots

So a step of a model of 200 small variables makes one Adam update on its ps instead of 200, and a checkpoint is the
same. The small variables themselves stay as they were when training began: so one is packed only where all that reads
it is a part of a step, and can be given a piece instead.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import optimizers, transfer

_MOST_ELEMENTS = 4096  # of a variable that is small
_FEWEST = 16  # small variables on a ps that are worth it


class Pack(NamedTuple):
    """A packed variable.

    Attributes:
      whole: [all their elements], on their ps, in no collection.
      variables: what is in it, one after the other.
    """

    whole: tf.Variable
    variables: list[tf.Variable]


class Packed(NamedTuple):
    """What training does instead.

    Attributes:
      pairs: (gradient or None, variable) of what is updated: packed variables, and what is not packed.
      packs: of them.
      optimizer: updates these.
      fill_op: takes the values from the variables and their slots; before training begins.
      views: (variable or slot, its value in a pack).
    """

    pairs: list[transfer.Pair]
    packs: list[Pack]
    optimizer: Any
    fill_op: tf.Operation
    views: list[transfer.View]

    def places(self) -> dict[str, str]:
        """Returns variable -> where it is, both by name, of the packed ones."""
        return {variable.op.name: f"{one.whole.op.name}[{begin}:]" for one in self.packs for variable, begin in zip(
            one.variables, itertools.accumulate(map(_size, one.variables), initial=0))}

    def save_from(self, saver: tf.train.Saver) -> None:
        """Lets a Saver write what is in the packs; it restores into the variables."""
        save = tf.get_default_graph().get_tensor_by_name(saver.saver_def.save_tensor_name)
        transfer.serve_reads(transfer.upstream([save]), self.views)


NOTHING = Packed([], [], None, None, [])


def pack(
    loss: tf.Tensor, gradients: Sequence[transfer.Pair], optimizer: tf.train.Optimizer,
    make_another: Callable[[], tf.train.Optimizer], wire: transfer.Wire,
) -> Packed:
    """Packs what is worth it, and lets what a step runs read the packed variables.

    Args:
      loss: scalar.
      gradients: (gradient or None, variable); a gradient is a tensor or IndexedSlices.
      optimizer: has the slots that a checkpoint has, or will have them.
      make_another: makes one of the same rule.
      wire: where variables do not travel together, none is packed.
    """
    of_variable = {variable.ref(): gradient for gradient, variable in gradients}
    step = _what_a_step_runs(loss, gradients)
    # By name: another worker may have made them in another order.
    small = sorted((variable for gradient, variable in gradients
                    if transfer.is_dense(gradient) and _can_be_packed(variable, step)), key=lambda one: one.op.name)
    # By ps: what a rule keeps besides goes with the first one, and the global step is on ps 0.
    groups = sorted((group for group in transfer.group(small, wire) if len(group.variables) >= _FEWEST),
                    key=lambda group: group.device)
    if not groups:
        return Packed(list(gradients), [], optimizer, tf.no_op(), [])
    optimizer.apply_gradients(gradients)  # never run: it makes the slots that a checkpoint has
    packs = [Pack(_whole(group, number), group.variables) for number, group in enumerate(groups)]
    packed = {variable.ref() for group in groups for variable in group.variables}
    pairs = [pair for pair in gradients if pair[1].ref() not in packed]
    for one in packs:
        transfer.serve_reads(step, zip(one.variables, _cut(one, one.whole.read_value())))
        pairs.append((_join([of_variable[variable.ref()] for variable in one.variables]), one.whole))
    return _with_slots(pairs, packs, optimizer, make_another())


class _Both(tf.train.GradientDescentOptimizer):
    """One rule for packed variables and others, each with slots of its own."""

    def __init__(self, of_packs: tf.train.Optimizer, of_others: tf.train.Optimizer, packs: Sequence[Pack]) -> None:
        super().__init__(learning_rate=1.0)  # of no meaning: the two do it
        self._of_packs = of_packs
        self._of_others = of_others
        self._packed = {one.whole.ref() for one in packs}

    def apply_gradients(
        self, grads_and_vars: Sequence[transfer.Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        packed = [pair for pair in grads_and_vars if pair[1].ref() in self._packed]
        others = [pair for pair in grads_and_vars if pair[1].ref() not in self._packed]
        applied = [self._of_packs.apply_gradients(packed)]
        if any(gradient is not None for gradient, _ in others):
            applied.append(self._of_others.apply_gradients(others))
        with tf.control_dependencies(applied):
            return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)


def _with_slots(
    pairs: list[transfer.Pair], packs: list[Pack], of_others: tf.train.Optimizer, of_packs: tf.train.Optimizer
) -> Packed:
    """Makes the packed slots, and finds what is to be filled from where, and saved as what.

    Args:
      of_others: updates what is not packed; its slots, of all variables, are those of a checkpoint.
      of_packs: of the same rule, without slots yet.
    """
    wholes = {one.whole.ref() for one in packs}
    with tf.variable_creator_scope(_in_no_collection(packs[0].whole.op.name)):  # never run, either
        of_packs.apply_gradients([pair for pair in pairs if pair[1].ref() in wholes])
    stores = packs + [Pack(slot, parts) for slot, parts in optimizers.pair_slots(
        [(one.whole, one.variables) for one in packs], whole_optimizer=of_packs, parts_optimizer=of_others)]
    fill, views = [], []
    for store in stores:
        with tf.device(store.whole.device):
            fill.append(store.whole.assign(_join([variable.read_value() for variable in store.variables])))
            views += zip(store.variables, _cut(store, store.whole.read_value()))
    # Both rules keep, say, Adam's powers besides. Where `of_others` has something to update, its own are up to date.
    is_idle = not any(gradient is not None and variable.ref() not in wholes for gradient, variable in pairs)
    for own, theirs in optimizers.pair_non_slots(of_packs, of_others):
        with tf.device(own.device):
            fill.append(own.assign(theirs.read_value()))
            views += [(theirs, own.read_value())] if is_idle else []
    return Packed(pairs, packs, _Both(of_packs, of_others, packs), tf.group(*fill), views)


def _what_a_step_runs(loss: tf.Tensor, gradients: Sequence[transfer.Pair]) -> set[tf.Operation]:
    run = [loss, *tf.get_collection(tf.GraphKeys.SUMMARIES), *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]
    for gradient, _ in gradients:
        run += transfer.tensors_of(gradient)
    return set(transfer.upstream(run))


def _can_be_packed(variable: tf.Variable, step: set[tf.Operation]) -> bool:
    """Tells whether a variable is a small one on a ps, which only its initialiser and plain reads of a step know."""
    num_elements = variable.shape.num_elements()
    if num_elements is None or num_elements > _MOST_ELEMENTS or variable.constraint is not None:
        return False
    if not transfer.has_handle(variable):
        return False
    return tf.DeviceSpec.from_string(variable.device).job == "ps" and all(
        op.type == "VarIsInitializedOp" or op is variable.initializer or transfer.can_be_served(op, step)
        for op in variable.handle.consumers())


def _whole(group: transfer.Group, number: int) -> tf.Variable:
    # Its name says what is in it: the next training on the same servers may have something else.
    content = zlib.crc32(repr([(one.op.name, one.shape.as_list(), one.dtype) for one in group.variables]).encode())
    shape = [sum(map(_size, group.variables))]
    with tf.variable_creator_scope(_in_no_collection("")), tf.device(None), tf.device(group.device):
        return tf.Variable(lambda: tf.zeros(shape, group.dtype), trainable=False,
                           name=f"ps_train/packed_{number}_{content:08x}")


def _in_no_collection(prefix: str) -> Callable[..., tf.Variable]:
    """Returns what makes variables that TensorFlow neither initialises, checks nor saves: others give them values.

    Args:
      prefix: of the names of those that would have names of their own, as what a rule keeps besides slots.
    """
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> tf.Variable:
        name = kwargs["name"]
        full_name = name if name.startswith("ps_train/") else f"{prefix}/{name}"
        return next_creator(**{**kwargs, "collections": [], "name": full_name})

    return create


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


def _cut(pack: Pack, value: tf.Tensor) -> list[tf.Tensor]:
    pieces = tf.split(value, list(map(_size, pack.variables)))
    return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, pack.variables)]


def _size(variable: tf.Variable) -> int:
    return variable.shape.num_elements()
