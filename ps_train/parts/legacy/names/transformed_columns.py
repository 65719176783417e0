"""Of `tf.contrib.layers`: what columns make of features before a layer, and the parsing of examples by columns.

    examples --parse--> name -> tensor --transform--> column -> ids or numbers --> input_from_feature_columns
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column import feature_column, feature_column_v2  # columns' classes are not public


def check_feature_columns(feature_columns: Any) -> None:
    """Checks columns.

    Raises:
      ValueError: they are a dictionary, or two are the same.
    """
    if isinstance(feature_columns, dict):
        raise ValueError("feature_columns must be a list; got a dictionary")
    seen: set = set()
    for column in feature_columns:
        if column in seen:
            raise ValueError(f"feature_columns must differ; {column.name} is there twice")
        seen.add(column)


def transform_features(features: Mapping, feature_columns: Iterable) -> dict:
    """Returns column -> what it makes of the features: ids (sparse), numbers of buckets, or normalized numbers.

    An embedding, or a column of ones and zeros, makes ids; a weighted column makes (ids, weights).
    """
    columns = list(feature_columns)
    check_feature_columns(columns)
    # What is transformed already stays; ids and weights are no feature for the builder.
    weighted = {key: value for key, value in features.items() if _is_weighted(value)}
    builder = feature_column._LazyBuilder(  # noqa: SLF001 (it has no public name)
        {key: value for key, value in features.items() if key not in weighted})

    def transformed(column: Any) -> Any:
        if column in features:
            return features[column]
        is_of_ids = isinstance(column, (feature_column_v2.IndicatorColumn, feature_column_v2.EmbeddingColumn))
        source = column.categorical_column if is_of_ids else column
        return weighted[source] if source in weighted else builder.get(source)
    return {column: transformed(column) for column in columns}


def _makes_ids(column: Any) -> bool:
    return isinstance(column, feature_column_v2.IndicatorColumn)


def _is_weighted(value: Any) -> bool:
    """Returns whether it is (ids, weights), which a weighted column makes."""
    return isinstance(value, tuple) and not isinstance(value, tf.SparseTensorValue)


def as_features(features: Mapping) -> dict:
    """Returns features, some of which may be transformed already, as the layers of columns take them."""
    found = {}
    for key, value in features.items():
        if not _is_weighted(value):  # a layer makes ids and weights anew
            found[key.categorical_column if _makes_ids(key) else key] = value
    return found


def parse_feature_columns_from_examples(serialized: tf.Tensor, feature_columns: Iterable, name: str | None = None,
                                        example_names: Any = None) -> dict:
    """Returns name -> tensor of serialized tf.train.Example, string [batch], and column -> what it makes of these."""
    columns = list(feature_columns)
    check_feature_columns(columns)
    features = tf.io.parse_example(
        serialized, tf.feature_column.make_parse_example_spec(columns), name=name, example_names=example_names)
    return {**features, **transform_features(features, columns)}


def infer_real_valued_columns(features: Any) -> list:
    """Returns the columns of one tensor [batch, ...] of numbers, or of a dictionary of some.

    Raises:
      ValueError: a tensor is sparse, or has no numbers.
    """
    named = features if isinstance(features, dict) else {"": features}
    return [_real_valued(name, tensor) for name, tensor in named.items()]


def _real_valued(name: str, tensor: Any) -> Any:
    is_sparse = isinstance(tensor, tf.SparseTensor)
    if is_sparse or not (tensor.dtype.is_integer or tensor.dtype.is_floating):
        raise ValueError(f"no column is inferred for {name or 'the features'}: a column of numbers needs a dense "
                         f"tensor of numbers; got {'a SparseTensor' if is_sparse else tensor.dtype.name}")
    size = tf.TensorShape(tensor.shape[1:]).num_elements()
    return tf.feature_column.numeric_column(name, (size,), dtype=tensor.dtype)


def make_place_holder_tensors_for_base_features(feature_columns: Iterable) -> dict:
    """Returns name -> placeholder for a batch of each feature that the columns read."""
    return {name: tf.sparse_placeholder(spec.dtype, name=f"Placeholder_{name}") if isinstance(spec, tf.VarLenFeature)
            else tf.placeholder(spec.dtype, [None, *spec.shape], f"Placeholder_{name}")
            for name, spec in tf.feature_column.make_parse_example_spec(list(feature_columns)).items()}
