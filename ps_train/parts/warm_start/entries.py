"""The entries of mutable tables in a warm start: of a MutableHashTable with counts or a vocabulary, for example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError

Pairs = Sequence[tuple[str, str]]
_PARTS = ("-keys", "-values")  # of a table, as TensorFlow saves it


class Entries:
    """Sets the entries of the tables of a graph."""

    def __init__(self, tables: Sequence[Any] = (), local_device: str = "") -> None:
        """Adds the operations to the current graph.

        Args:
          tables: those of `checkpoints.saved_tables`.
          local_device: the CPU of this task, which reads the checkpoint; "" in a graph of one process.
        """
        self._tables = {table.name: table for table in tables}
        self._ops: dict[str, tuple[list[tf.Tensor], tf.Operation]] = {}
        for table in tables:
            with tf.device(None), tf.device(local_device or None):
                given = [tf.placeholder(spec.dtype) for spec in table.specs]
            self._ops[table.name] = given, table.restore(given, None)

    def take(self, pairs: Pairs, shapes: Mapping[str, Any]) -> tuple[dict[str, str], Pairs]:
        """Returns table -> its name in a checkpoint, and the pairs that name no table.

        Args:
          pairs: of --init_map, (name in the checkpoint, name in the model); without any, tables have their own names.
          shapes: of the tensors of the checkpoint, by name.

        Raises:
          ConfigError: a pair names a table that the checkpoint does not have.
        """
        there = {name.removesuffix(_PARTS[0]) for name in shapes if name.endswith(_PARTS[0])}
        if not pairs:
            return {name: name for name in self._tables if name in there}, pairs
        taken = {new: old for old, new in pairs if new in self._tables}
        if missing := sorted({*taken.values()} - there):
            raise ConfigError("variable_missing", f"--init_map: the checkpoint has no mutable table {missing[0]!r}; it "
                              f"has {', '.join(sorted(there)) or 'none'}")
        return taken, [(old, new) for old, new in pairs if new not in taken]

    def problems(self, taken: Mapping[str, str], reader: Any) -> Iterator[str]:
        """Yields the tables with keys or values of another type or shape, or of another class."""
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        for name, saved in taken.items():
            table = self._tables[name]
            value_shape = table.op._value_shape.as_list()  # noqa: SLF001 (nothing public says it)
            is_dense = isinstance(table.op, tf.lookup.experimental.DenseHashTable)  # which saves no scalars
            here = _kind([spec.dtype for spec in table.specs], is_dense, value_shape or [1] * is_dense)
            there = _kind([dtypes[f"{saved}{part}"] for part in _PARTS], len(shapes[f"{saved}{_PARTS[0]}"]) > 1,
                          shapes[f"{saved}{_PARTS[1]}"][1:])
            if here != there:
                yield f"{name} {here} here, {there} there"

    def load(self, session: Any, reader: Any, taken: Mapping[str, str]) -> None:
        """Gives the tables the entries of the checkpoint, and no others."""
        for name, saved in taken.items():
            given, load_op = self._ops[name]
            session.run(load_op, {tensor: reader.get_tensor(f"{saved}{part}") for tensor, part in zip(given, _PARTS)})


def tensor_names(taken: Mapping[str, str]) -> list[str]:
    """Returns the names of all tensors that are read."""
    return [f"{saved}{part}" for saved in taken.values() for part in _PARTS]


def _kind(dtypes: Sequence[tf.DType], is_dense: bool, value_shape: Sequence[int]) -> str:
    key, value = dtypes
    return f"{'dense ' if is_dense else ''}{key.name} -> {value.name} {list(value_shape)}"
