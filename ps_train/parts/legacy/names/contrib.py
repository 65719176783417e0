"""Small functions, most of tf.contrib, whose arguments had other names, or that are several calls today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops


def one_hot_column(sparse_id_column: Any) -> Any:
    """`indicator_column`."""
    return tf.feature_column.indicator_column(sparse_id_column)


def sequence_input_layer(features: dict, feature_columns: Sequence, weight_collections: Sequence | None = None,
                         trainable: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float [batch, time, dimensions of all columns], and the length of each sequence, int64 [batch]."""
    layer = tf.keras.experimental.SequenceFeatures(feature_columns, trainable=trainable)
    return layer(features)


def string_to_index(tensor: tf.Tensor, mapping: Any, default_value: int = -1, name: str | None = None) -> tf.Tensor:
    """Returns the position of each string in a list, int64; `tf.tables_initializer` fills its table."""
    return lookup_ops.index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor: tf.Tensor, mapping: Any, default_value: str = "UNK", name: str | None = None) -> tf.Tensor:
    """Returns the string at each position, int64, of a list; `tf.tables_initializer` fills its table."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


def resize_images(images: Any, size: Any = None, *args: Any, **kwargs: Any) -> tf.Tensor:
    """`tf.image.resize_images(images, [height, width])`, and `(images, height, width)` of before 1.0."""
    if args and np.ndim(size) == 0 and not (isinstance(size, tf.Tensor) and size.shape.rank):
        size, args = [size, args[0]], args[1:]
    elif "new_height" in kwargs:
        size = [kwargs.pop("new_height"), kwargs.pop("new_width")]
    return tf.image.resize_images(images, size, *args, **kwargs)
