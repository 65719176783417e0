"""`tf.contrib.learn.ops`: rows of tables for ids of any shape."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def embedding_lookup(params: Any, ids: Any, name: str = "embedding_lookup") -> tf.Tensor:
    """Returns the rows of ids: [*ids.shape, *row shape].

    Args:
      params: one table [rows, ...], or a list of tables of the same shape that is one tensor [tables, ...].
      ids: int, of any shape.
      name: of the operations.
    """
    with tf.name_scope(name):
        return tf.nn.embedding_lookup(tf.convert_to_tensor(params), tf.convert_to_tensor(ids))


def categorical_variable(tensor_in: Any, n_classes: int, embedding_size: int, name: str) -> tf.Tensor:
    """Returns a trained row for each class in `tensor_in`: float [*tensor_in.shape, embedding_size]."""
    with tf.variable_scope(name):
        return embedding_lookup(tf.get_variable(f"{name}_embeddings", [n_classes, embedding_size]), tensor_in)
