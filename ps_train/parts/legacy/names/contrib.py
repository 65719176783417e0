"""Small functions and tables, most of tf.contrib, whose arguments had other names, or that are several calls today."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops


def one_hot_column(sparse_id_column: Any) -> Any:
    """`indicator_column`."""
    return tf.feature_column.indicator_column(sparse_id_column)


def string_to_index(tensor: tf.Tensor, mapping: Any, default_value: int = -1, name: str | None = None) -> tf.Tensor:
    """Returns the position of each string in a list, int64; `tf.tables_initializer` fills its table."""
    return lookup_ops.index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor: tf.Tensor, mapping: Any, default_value: str = "UNK", name: str | None = None) -> tf.Tensor:
    """Returns the string at each position, int64, of a list; `tf.tables_initializer` fills its table."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


class _Shared:
    """A table that several graphs of a process have under one name."""

    def __init__(self, *args: Any, shared_name: str | None = None, **kwargs: Any) -> None:
        self._given_name = shared_name
        super().__init__(*args, **kwargs)

    def _create_resource(self) -> tf.Tensor:
        self._shared_name = self._given_name or self._shared_name
        return super()._create_resource()


class HashTable(_Shared, lookup_ops.HashTable):
    """`tf.lookup.StaticHashTable`, with the name `init` for its initializer."""

    def __init__(self, initializer: Any, default_value: Any, shared_name: str | None = None,
                 name: str | None = None) -> None:
        super().__init__(initializer, default_value, name, shared_name=shared_name)


class MutableHashTable(_Shared, lookup_ops.MutableHashTable):
    """`tf.lookup.experimental.MutableHashTable`."""


class MutableDenseHashTable(_Shared, lookup_ops.DenseHashTable):
    """`tf.lookup.experimental.DenseHashTable`."""


def resize_images(images: Any, size: Any = None, *args: Any, **kwargs: Any) -> tf.Tensor:
    """`tf.image.resize_images(images, [height, width])`, and `(images, height, width)` of before 1.0."""
    if args and np.ndim(size) == 0 and not (isinstance(size, tf.Tensor) and size.shape.rank):
        size, args = [size, args[0]], args[1:]
    elif "new_height" in kwargs:
        size = [kwargs.pop("new_height"), kwargs.pop("new_width")]
    return tf.image.resize_images(images, size, *args, **kwargs)
