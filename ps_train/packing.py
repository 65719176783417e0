"""Many small variables of a ps are one while it trains: an operation on 64 numbers costs what one on 10000 does.

    training begins    small variables and their slots --> one packed variable, its slots
    a step             pulls, updates the packed one; the model reads pieces of it
    before a save      packed variable, its slots --> small variables, their slots

So a step of a model of 200 small variables makes one Adam update on its ps instead of 200, and a checkpoint is the
same. Between two saves the values are in the packed variable alone: so a variable is packed only where every read of it
in the graph can be served from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import transfer

_MOST_ELEMENTS = 4096  # of a variable that is small
_FEWEST = 16  # small variables on a ps that are worth it

Pair = tuple[Any, tf.Variable]


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
      empty_op: puts them back, and they stay in the packs too; before a save.
    """

    pairs: list[Pair]
    packs: list[Pack]
    optimizer: Any
    fill_op: tf.Operation
    empty_op: tf.Operation


def pack(
    gradients: Sequence[Pair], optimizer: tf.train.Optimizer, make_another: Callable[[], tf.train.Optimizer],
    wire: transfer.Wire,
) -> Packed:
    """Packs what is worth it, and lets the graph so far read the packed variables.

    Args:
      gradients: (gradient or None, variable); a gradient is a tensor or IndexedSlices.
      optimizer: has the slots that a checkpoint has, or will have them.
      make_another: makes one of the same rule.
      wire: where variables do not travel together, none is packed.
    """
    of_variable = {variable.ref(): gradient for gradient, variable in gradients}
    small = [variable for gradient, variable in gradients if tf.is_tensor(gradient) and _can_be_packed(variable)]
    # By ps, as what a rule keeps besides goes with the first one, and the global step is on ps 0.
    groups = sorted((group for group in transfer.group(small, wire) if len(group.variables) >= _FEWEST),
                    key=lambda group: group.device)
    if not groups:
        return Packed(list(gradients), [], optimizer, tf.no_op(), tf.no_op())
    optimizer.apply_gradients(gradients)  # never run: it makes the slots that a checkpoint has
    packs = [Pack(_whole(group, number), group.variables) for number, group in enumerate(groups)]
    packed = {variable.ref() for group in groups for variable in group.variables}
    pairs = [pair for pair in gradients if pair[1].ref() not in packed]
    for one in packs:
        transfer.serve_all_reads(list(zip(one.variables, _cut(one, one.whole.read_value()))))
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
        self, grads_and_vars: Sequence[Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        packed = [pair for pair in grads_and_vars if pair[1].ref() in self._packed]
        others = [pair for pair in grads_and_vars if pair[1].ref() not in self._packed]
        with tf.variable_creator_scope(_in_no_collection):
            applied = [self._of_packs.apply_gradients(packed)]
        if any(gradient is not None for gradient, _ in others):
            applied.append(self._of_others.apply_gradients(others))
        with tf.control_dependencies(applied):
            return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)


def _with_slots(
    pairs: list[Pair], packs: list[Pack], of_others: tf.train.Optimizer, of_packs: tf.train.Optimizer
) -> Packed:
    """Makes the packed slots, and pairs them with the variables' own."""
    wholes = {one.whole.ref() for one in packs}
    with tf.variable_creator_scope(_in_no_collection):  # never run, either
        of_packs.apply_gradients([pair for pair in pairs if pair[1].ref() in wholes])
    stores = list(packs)
    for name in of_packs.get_slot_names():
        for one in packs:
            whole = of_packs.get_slot(one.whole, name)
            if whole is not None:
                stores.append(Pack(whole, [of_others.get_slot(variable, name) for variable in one.variables]))
    fill, empty = [], []
    for store in stores:
        with tf.device(store.whole.device):
            fill.append(store.whole.assign(_join([variable.read_value() for variable in store.variables])))
            empty += [variable.assign(value) for variable, value in zip(
                store.variables, _cut(store, store.whole.read_value()))]
    # What a rule keeps besides, as Adam's powers; where it updates others, too, it goes on with its own.
    has_others = any(gradient is not None and variable.ref() not in wholes for gradient, variable in pairs)
    for own, kept in zip(of_packs._non_slot_variables(), of_others._non_slot_variables()):  # noqa: SLF001
        with tf.device(own.device):
            fill.append(own.assign(kept.read_value()))
            empty += [] if has_others else [kept.assign(own.read_value())]
    return Packed(pairs, packs, _Both(of_packs, of_others, packs), tf.group(*fill), tf.group(*empty))


def _can_be_packed(variable: tf.Variable) -> bool:
    """Tells whether a variable is small, and nothing but its initialiser and the worker's plain reads knows it."""
    num_elements = variable.shape.num_elements()
    if num_elements is None or num_elements > _MOST_ELEMENTS or variable.constraint is not None:
        return False
    return all(op.type == "VarIsInitializedOp" or op is variable.initializer or transfer.can_be_served(op)
               for op in variable.handle.consumers())


def _whole(group: transfer.Group, number: int) -> tf.Variable:
    shape = [sum(variable.shape.num_elements() for variable in group.variables)]
    with tf.variable_creator_scope(_in_no_collection), tf.device(None), tf.device(group.device):
        return tf.Variable(lambda: tf.zeros(shape, group.dtype), trainable=False, name=f"ps_train/packed_{number}")


def _in_no_collection(next_creator: Callable[..., Any], **kwargs: Any) -> tf.Variable:
    """Makes a variable that TensorFlow neither initialises, checks nor saves: its value comes from others."""
    return next_creator(**{**kwargs, "collections": []})


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


def _cut(pack: Pack, value: tf.Tensor) -> list[tf.Tensor]:
    sizes = [variable.shape.num_elements() for variable in pack.variables]
    return [tf.reshape(part, variable.shape) for part, variable in zip(tf.split(value, sizes), pack.variables)]
