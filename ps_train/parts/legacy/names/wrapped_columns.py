"""Columns around a sparse column, by its name: its raw values for a cross, and its ids combined for a linear model.

    crossed_column  RawColumn       the values of the feature, not the ids that the column makes of them
    linear models   CombinedColumn  its ids, with weights of which the sum is the mean or "sqrtn"
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column import feature_column, feature_column_v2  # columns' classes are not public

_Pair = feature_column_v2.CategoricalColumn.IdWeightPair


class _Around(feature_column_v2.CategoricalColumn, feature_column._CategoricalColumn,  # noqa: SLF001
              collections.namedtuple("_Around", ["column"])):
    """A column that says of itself what another does; each method exists for both of TensorFlow's column interfaces."""

    _is_v2_column = property(lambda self: getattr(self.column, "_is_v2_column", False))
    name = property(lambda self: self.column.name)
    num_buckets = _num_buckets = property(lambda self: self.column.num_buckets)
    parse_example_spec = _parse_example_spec = property(lambda self: self.column.parse_example_spec)
    parents = property(lambda self: [self.column])

    def transform_feature(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Returns the ids of the column."""
        return self.column.transform_feature(transformation_cache, state_manager)

    def _transform_feature(self, inputs: Any) -> Any:
        return self.column._transform_feature(inputs)  # noqa: SLF001

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` takes."""
        return {"column": self.column}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None, columns_by_name: Any = None) -> _Around:
        """Returns a column of `get_config`."""
        return cls(config["column"])


class RawColumn(_Around):
    """The values of a feature, as contrib.layers crosses them: it crossed no ids."""

    def get_sparse_tensors(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Returns the feature, [batch, ...], for the ids."""
        return _Pair(transformation_cache.get(self.column.key, state_manager), None)

    def _get_sparse_tensors(self, inputs: Any, weight_collections: Any = None, trainable: Any = None) -> Any:
        return _Pair(inputs.get(self.column.key), None)


class CombinedColumn(_Around):
    """A column with weights of which the sum is what its combiner is without them."""

    def get_sparse_tensors(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Returns the ids and the weights, each [batch, ...]."""
        return _combined(self.column.combiner, self.column.get_sparse_tensors(transformation_cache, state_manager))

    def _get_sparse_tensors(self, inputs: Any, weight_collections: Any = None, trainable: Any = None) -> Any:
        pair = self.column._get_sparse_tensors(inputs, weight_collections, trainable)  # noqa: SLF001
        return _combined(self.column.combiner, pair)


def _combined(combiner: str | None, pair: Any) -> Any:
    """Returns ids with the weights w / sum(w), or w / sqrt(sum(w ** 2)), over the valid ids of each example."""
    ids, weights = pair
    values = tf.ones_like(ids.values, tf.float32) if weights is None else tf.cast(weights.values, tf.float32)
    # `safe_embedding_lookup_sparse` leaves out the others.
    values = tf.where((ids.values >= 0) & (values > 0), values, tf.zeros_like(values))
    is_mean = combiner != "sqrtn"  # None is "mean"
    sums = tf.math.unsorted_segment_sum(values if is_mean else tf.square(values), ids.indices[:, 0], ids.dense_shape[0])
    norms = tf.gather(sums if is_mean else tf.sqrt(sums), ids.indices[:, 0])
    return _Pair(ids, tf.SparseTensor(ids.indices, tf.math.divide_no_nan(values, norms), ids.dense_shape))


def for_linear_model(columns: Iterable) -> list:
    """Returns the columns for a model that sums; those that are combined otherwise get weights.

    Raises:
      ValueError: a sparse column with another combiner than "sum", "mean" and "sqrtn".
    """
    return [_for_linear_model(column) for column in columns]


def _for_linear_model(column: Any) -> Any:
    combiner = getattr(column, "combiner", "sum")
    if combiner == "sum" or not isinstance(column, feature_column_v2.CategoricalColumn):
        return column
    if combiner not in (None, "mean", "sqrtn"):
        raise ValueError(f"column {column.name!r}: got combiner={combiner!r}; allowed: sum, mean, sqrtn")
    return CombinedColumn(column)
