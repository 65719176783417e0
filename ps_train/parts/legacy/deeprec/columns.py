"""`tf.feature_column.categorical_column_with_embedding`: a feature whose ids are looked up in an embedding variable.

    categorical_column_with_embedding(key) --> embedding_column(it, dimension) --> input_layer, DenseFeatures
"""

from __future__ import annotations

from typing import Any, Callable, NoReturn, Optional

import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column import feature_column_v2 as columns  # the classes of columns have no public name

from ps_train.errors import UserCodeError
from ps_train.parts.legacy.deeprec import variables
from ps_train.parts.legacy.deeprec.options import EmbeddingVariableOption
from ps_train.parts.tables.tables import hash_of_strings

_NAME = "embedding_weights"


class EmbeddingCategoricalColumn(columns.HashedCategoricalColumn):
    """A categorical feature of which any int64 or string is an id."""

    option = EmbeddingVariableOption()
    partition_num: Optional[int] = None

    def _transform_input_tensor(self, input_tensor: tf.SparseTensor) -> tf.SparseTensor:
        values = input_tensor.values
        if self.dtype.is_integer != values.dtype.is_integer:
            raise UserCodeError("bad_id_type", f"categorical_column_with_embedding {self.key!r}: the feature has "
                                f"{values.dtype.name}, and the column {self.dtype.name}")
        ids = hash_of_strings(values) if values.dtype == tf.string else tf.cast(values, tf.int64)
        return tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape)

    @property
    def num_buckets(self) -> NoReturn:
        raise UserCodeError("bad_embedding_column", f"categorical_column_with_embedding {self.key!r}: it has no number "
                            "of buckets; allowed: tf.feature_column.embedding_column in input_layer; for a linear "
                            "model or an indicator use categorical_column_with_hash_bucket")

    _num_buckets = num_buckets


class VariableEmbeddingColumn(columns.EmbeddingColumn):
    """The rows of such a feature, combined for each example."""

    def _old_get_dense_tensor_internal(
        self, sparse_tensors: Any, weight_collections: Any, trainable: bool
    ) -> tf.Tensor:
        del weight_collections  # a table is in those of a variable
        return self._look_up(sparse_tensors, self.trainable and trainable)

    def _get_dense_tensor_internal(self, sparse_tensors: Any, state_manager: Any) -> tf.Tensor:
        del state_manager  # it keeps variables of a known shape
        return self._look_up(sparse_tensors, self.trainable)

    def create_state(self, state_manager: Any) -> None:
        """Makes nothing: the variable is made where it is looked up."""

    def _look_up(self, sparse_tensors: Any, trainable: bool) -> tf.Tensor:
        column = self.categorical_column
        partitioner = tf.fixed_size_partitioner(column.partition_num) if column.partition_num else None
        variable = variables.embedding_variable(
            _NAME, self.dimension, initializer=self.initializer, trainable=trainable, ev_option=column.option,
            partitioner=partitioner)
        return variable.lookup_sparse(sparse_tensors.id_tensor, sparse_tensors.weight_tensor, self.combiner)


def categorical_column_with_embedding(
    key: str, dtype: Any = tf.string, partition_num: Optional[int] = None,
    ev_option: Optional[EmbeddingVariableOption] = None,
) -> EmbeddingCategoricalColumn:
    """Returns a categorical feature without a number of buckets.

    Args:
      key: of the feature.
      dtype: integers or strings; a string becomes a 63-bit hash.
      partition_num: parts of the variable in a checkpoint.
      ev_option: of the variable.
    """
    column = EmbeddingCategoricalColumn(key, 2**63 - 1, tf.as_dtype(dtype))
    column.option, column.partition_num = ev_option or EmbeddingVariableOption(), partition_num
    return column


def variable_embedding_column(
    original: Callable, categorical_column: Any, dimension: int, *args: Any, do_fusion: Any = None, **kwargs: Any
) -> Any:
    """`tf.feature_column.embedding_column`, also of such a feature; `do_fusion`, of DeepRec, is about speed only."""
    column = original(categorical_column, dimension, *args, **kwargs)
    if not isinstance(categorical_column, EmbeddingCategoricalColumn):
        return column
    if column.max_norm is not None or column.ckpt_to_load_from is not None:
        raise UserCodeError("bad_embedding_column", f"embedding_column of {categorical_column.key!r}: got max_norm or "
                            "ckpt_to_load_from; an embedding variable has neither; leave them out")
    return VariableEmbeddingColumn(*column)
