"""Lookups in variables that `--partition_bytes` has cut: they find the rows of the whole variable.

`tf.nn.embedding_lookup` has two strategies. By "div", the parts one after another are the whole variable. By "mod",
its default, the row of an id depends on the number of parts, so a checkpoint would mean something else on another
number of ps, and in evaluation, where nothing is cut. The model has asked for one variable and does not know of the
parts; therefore its lookups by "mod" get ids by which they find the same rows as lookups by "div".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError

_CUT = "ps_train/cut_variables"  # collection of names
_ENTERING = ("Enter", "Switch")  # a loop, a branch
_PASSING = ("Cast", "Identity", "Reshape")


class _ByModulo(NamedTuple):
    """How a lookup by "mod" finds the parts and rows of its ids (embedding_ops.py in TensorFlow).

    Attributes:
      part: the operation `ids % parts`.
      row: the operation `ids // parts`, or another one if the model has divided the ids by itself.
      index: the index of the part that a gather reads.
    """

    part: tf.Operation
    row: tf.Operation
    index: int

    def can_be_changed(self, num_parts: int, index: int) -> bool:
        """Returns whether both have the same ids and the number of parts, for this part."""
        return (self.row.type == "FloorDiv" and self.row.inputs[0] is self.part.inputs[0] and self.index == index and
                all(tf.get_static_value(op.inputs[1]) == num_parts for op in (self.part, self.row)))


def note_cut(name: str) -> None:
    """Notes that a variable of the current graph is cut, of which the model does not know."""
    tf.add_to_collection(_CUT, name)


def remap_lookups(variables: Sequence[tf.Variable]) -> None:
    """Makes lookups by "mod" in cut variables find the rows of the whole variable.

    Raises:
      UserCodeError: a variable which the model itself has partitioned is looked up by "mod".
    """
    cut = set(tf.get_collection(_CUT))
    for name, parts in _parts_by_name(variables).items():
        connected: set[tf.Operation] = set()
        for index, part in enumerate(parts):
            for lookup in filter(None, (_by_modulo(gather.inputs[1]) for gather in _gathers(part.handle))):
                if name not in cut or not lookup.can_be_changed(len(parts), index):
                    raise UserCodeError(
                        f"model_fn: embedding_lookup of {name}, which is partitioned, needs "
                        'partition_strategy="div"; otherwise its rows would depend on the number of parts')
                if lookup.part not in connected:
                    connected.add(lookup.part)
                    _connect(lookup, part._get_save_slice_info().full_shape[0], len(parts))  # noqa: SLF001


def _parts_by_name(variables: Sequence[tf.Variable]) -> dict[str, list[tf.Variable]]:
    """Returns name -> the parts of each partitioned variable, in order."""
    found: dict[str, list[tuple[int, tf.Variable]]] = {}
    for variable in variables:
        part = variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; it has no public name)
        if part is not None:
            found.setdefault(part.full_name, []).append((part.var_offset[0], variable))
    return {name: [variable for _, variable in sorted(parts, key=lambda one: one[0])] for name, parts in found.items()}


def _gathers(handle: tf.Tensor) -> list[tf.Operation]:
    """Returns what looks up rows of a variable, in branches and loops, too."""
    found = []
    for op in handle.consumers():
        if op.type == "ResourceGather":
            found.append(op)
        elif op.type in _ENTERING:
            found += [gather for tensor in op.outputs for gather in _gathers(tensor)]
    return found


def _by_modulo(ids: tf.Tensor) -> _ByModulo | None:
    """Returns how a gather gets its ids from a DynamicPartition by `id % parts`, or None if it does not."""
    partition = _origin(ids)
    if partition.op.type != "DynamicPartition":
        return None
    row, part = (_origin(tensor).op for tensor in partition.op.inputs)
    return _ByModulo(part, row, partition.value_index) if part.type == "FloorMod" else None


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type in _PASSING:
        tensor = tensor.op.inputs[0]
    return tensor


def _connect(lookup: _ByModulo, num_rows: int, num_parts: int) -> None:
    ids = lookup.part.inputs[0]
    with _beside(lookup.part), tf.name_scope("whole_variable"):
        changed = _as_by_modulo(ids, num_rows, num_parts)
    for op in (lookup.part, lookup.row):
        op._update_input(0, changed)  # noqa: SLF001 (there is no public name for it)


def _as_by_modulo(ids: tf.Tensor, num_rows: int, num_parts: int) -> tf.Tensor:
    """Returns the ids by which "mod" finds the rows that "div" finds by `ids` [n]."""
    size, extras = divmod(num_rows, num_parts)  # the first `extras` parts have a row more
    part = tf.maximum(ids // (size + 1), (ids - extras) // size)
    row = tf.where(part < extras, ids % (size + 1), (ids - extras) % size)
    # Other ids stay as they are: they are out of range by "mod", too, so TensorFlow refuses them.
    return tf.where((ids >= 0) & (ids < num_rows), row * num_parts + part, ids)


@contextlib.contextmanager
def _beside(op: tf.Operation) -> Iterator[None]:
    """Creates operations in the branch or loop, and on the device, of this one."""
    graph, device = op.graph, op.device
    outside = graph._get_control_flow_context()  # noqa: SLF001 (there is no public name for it)
    graph._set_control_flow_context(op._get_control_flow_context())  # noqa: SLF001
    try:
        with tf.device(None), tf.device(device):
            yield
    finally:
        graph._set_control_flow_context(outside)  # noqa: SLF001
