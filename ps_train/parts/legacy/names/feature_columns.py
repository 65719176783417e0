"""Feature columns of tf.contrib.layers, as those of tf.feature_column, and layers of them.

`combiner` of a sparse column is for the linear models of contrib, and embeddings alone load from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column import feature_column, feature_column_v2  # columns' classes are not public

from ps_train.parts.legacy.deeprec.columns import EmbeddingCategoricalColumn
from ps_train.parts.legacy.names.transformed_columns import as_features
from ps_train.parts.legacy.names.wrapped_columns import RawColumn, for_linear_model

_fc = tf.feature_column
SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY = 0xDECAFCAFFE  # of TF1's crosses of hashed features


class IntegerizedColumn(feature_column_v2.IdentityCategoricalColumn):
    """Ids, of which those that are too great begin again at 0."""

    def _transform_input_tensor(self, input_tensor: tf.SparseTensor) -> tf.SparseTensor:
        ids = input_tensor.values
        if ids.dtype.is_integer:  # else it is refused
            ids = tf.math.floormod(tf.cast(ids, tf.int64), self.number_buckets)
        return super()._transform_input_tensor(tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape))


def _with_combiner(column: Any, combiner: str | None) -> Any:
    """Returns a column that tells contrib's linear models how they combine the ids of an example."""
    column.combiner = combiner
    return column


def real_valued_column(column_name: str, dimension: int | None = 1, default_value: Any = None,
                       dtype: tf.DType = tf.float32, normalizer: Callable | None = None) -> Any:
    """`numeric_column` of shape [dimension]."""
    return _fc.numeric_column(column_name, (1 if dimension is None else dimension,), default_value, dtype, normalizer)


def bucketized_column(source_column: Any, boundaries: Sequence[float]) -> Any:
    """`bucketized_column`; the boundaries may be any sequence, and some of them equal."""
    return _fc.bucketized_column(source_column, sorted(set(boundaries)))


def sparse_column_with_hash_bucket(column_name: str, hash_bucket_size: float, combiner: str = "sum",
                                   dtype: tf.DType = tf.string, hash_keys: Any = None) -> Any:
    """`categorical_column_with_hash_bucket`."""
    column = _fc.categorical_column_with_hash_bucket(column_name, int(hash_bucket_size), dtype)
    return _with_combiner(column, combiner)


def sparse_column_with_integerized_feature(column_name: str, bucket_size: int, combiner: str = "sum",
                                           dtype: tf.DType = tf.int64) -> Any:
    """`categorical_column_with_identity` of the ids modulo their number: that refuses greater ones."""
    column = IntegerizedColumn(*_fc.categorical_column_with_identity(column_name, int(bucket_size)))
    return _with_combiner(column, combiner)


def sparse_column_with_keys(column_name: str, keys: Sequence, default_value: int = -1, combiner: str = "sum",
                            dtype: tf.DType = tf.string) -> Any:
    """`categorical_column_with_vocabulary_list`."""
    column = _fc.categorical_column_with_vocabulary_list(column_name, tuple(keys), dtype, default_value)
    return _with_combiner(column, combiner)


def sparse_column_with_vocabulary_file(column_name: str, vocabulary_file: str, num_oov_buckets: int = 0,
                                       vocab_size: int | None = None, default_value: int = -1, combiner: str = "sum",
                                       dtype: tf.DType = tf.string) -> Any:
    """`categorical_column_with_vocabulary_file`."""
    column = _fc.categorical_column_with_vocabulary_file(
        column_name, vocabulary_file, vocab_size, num_oov_buckets, None if num_oov_buckets else default_value, dtype)
    return _with_combiner(column, combiner)


def weighted_sparse_column(sparse_id_column: Any, weight_column_name: str, dtype: tf.DType = tf.float32) -> Any:
    """`weighted_categorical_column`, which is combined as the column itself."""
    column = _fc.weighted_categorical_column(sparse_id_column, weight_column_name, dtype)
    return _with_combiner(column, getattr(sparse_id_column, "combiner", "sum"))


def crossed_column(columns: Sequence, hash_bucket_size: float, combiner: str = "sum",
                   ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None,
                   hash_key: int | None = None) -> Any:
    """`crossed_column` of the raw values of sparse columns, in the order of the columns' names.

    With a `hash_key`, the ids are those of TensorFlow 1; what it hashed without one by is gone.
    """
    ordered = sorted(columns, key=lambda column: getattr(column, "name", column))
    crossed = _fc.crossed_column([_crossable(column) for column in ordered], int(hash_bucket_size), hash_key)
    return _with_combiner(crossed, combiner)


def _crossable(column: Any) -> Any:
    has_raw = isinstance(column, feature_column_v2.CategoricalColumn) and hasattr(column, "key")  # no cross or buckets
    return RawColumn(column) if has_raw else column


def embedding_column(sparse_id_column: Any, dimension: int, combiner: str = "mean",
                     initializer: Callable | None = None, ckpt_to_load_from: str | None = None,
                     tensor_name_in_ckpt: str | None = None, max_norm: float | None = None,
                     trainable: bool = True) -> Any:
    """`embedding_column`, which begins with normal numbers of the deviation 1 / sqrt(number of ids)."""
    return _fc.embedding_column(
        sparse_id_column, int(dimension), combiner, initializer or _first_rows(sparse_id_column), ckpt_to_load_from,
        tensor_name_in_ckpt, max_norm, trainable)


def _first_rows(column: Any) -> Callable | None:
    """Returns the initializer of contrib; today's has the deviation 1 / sqrt(dimension)."""
    if isinstance(getattr(column, "categorical_column", column), EmbeddingCategoricalColumn):
        return None  # DeepRec's, which has no number of ids
    return tf.truncated_normal_initializer(0.0, column.num_buckets ** -0.5)


def contrib_shared_embedding_columns(sparse_id_columns: Sequence, dimension: int, combiner: str = "mean",
                                     shared_embedding_name: str | None = None, initializer: Callable | None = None,
                                     ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None,
                                     max_norm: float | None = None, trainable: bool = True) -> list:
    """`shared_embedding_columns`, whose arguments have another order; it begins as `embedding_column` does."""
    sparse_id_columns = list(sparse_id_columns)
    return _fc.shared_embedding_columns(
        sparse_id_columns, int(dimension), combiner, initializer or _first_rows(sparse_id_columns[0]),
        shared_embedding_name, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable)


def input_from_feature_columns(columns_to_tensors: dict, feature_columns: Sequence,
                               weight_collections: Sequence | None = None, trainable: bool = True,
                               scope: str | None = None) -> tf.Tensor:
    """`input_layer`: float32 [batch, dimensions of all columns]."""
    with tf.variable_scope(scope, "input_from_feature_columns"):
        return _fc.input_layer(as_features(columns_to_tensors), feature_columns, weight_collections, trainable)


def weighted_sum_from_feature_columns(columns_to_tensors: dict, feature_columns: Sequence, num_outputs: int,
                                      weight_collections: Sequence | None = None, trainable: bool = True,
                                      scope: str | None = None) -> tuple[tf.Tensor, dict, tf.Variable]:
    """`linear_model`, with the combiner of each sparse column.

    Returns:
      float32 [batch, num_outputs], the list of variables of each column, and the bias.
    """
    variables: dict = {}
    with tf.variable_scope(scope, "weighted_sum_from_feature_columns"):
        logits = _fc.linear_model(
            as_features(columns_to_tensors), for_linear_model(feature_columns), num_outputs,
            weight_collections=weight_collections, trainable=trainable, cols_to_vars=variables)
    bias = variables.pop("bias")[0]
    return logits, {getattr(column, "column", column): found for column, found in variables.items()}, bias


def sequence_input_layer(features: dict, feature_columns: Sequence, weight_collections: Sequence | None = None,
                         trainable: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float [batch, time, dimensions of all columns], and the length of each sequence, int64 [batch].

    `tf.keras.experimental.SequenceFeatures` does the same, but its variables have other names, and reuse no others.
    """
    inputs, lengths = [], []
    # The functions of tf.feature_column that make variables in a scope have no public name.
    builder = feature_column._LazyBuilder(features)  # noqa: SLF001
    with tf.variable_scope(None, "sequence_input_layer", features.values()):
        for column in sorted(feature_columns, key=lambda column: column.name):
            dense, length = _sequence_of(column, builder, features, weight_collections, trainable)
            size = (column.variable_shape if hasattr(column, "variable_shape")
                    else column._variable_shape).num_elements()  # noqa: SLF001
            inputs.append(tf.reshape(dense, [tf.shape(dense)[0], tf.shape(dense)[1], size]))
            lengths.append(length)
        with tf.control_dependencies([tf.debugging.assert_equal(lengths[0], length) for length in lengths[1:]]):
            return tf.concat(inputs, -1), tf.identity(lengths[0])


def _sequence_of(column: Any, builder: Any, features: dict, collections: Sequence | None, trainable: bool) -> Any:
    """Returns the values of a column [batch, time, ...], and the length of each sequence."""
    if hasattr(column, "_get_sequence_dense_tensor"):
        with tf.variable_scope(None, column._var_scope_name):  # noqa: SLF001
            return column._get_sequence_dense_tensor(builder, collections, trainable)  # noqa: SLF001
    return column.get_sequence_dense_tensor(feature_column_v2.FeatureTransformationCache(features), None)
