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
_SHARED = "ps_train/shared_embedding_variables"


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
                            "of buckets; allowed: embedding_column in input_layer, and linear_model; for an indicator "
                            "use categorical_column_with_hash_bucket")

    _num_buckets = num_buckets


class VariableEmbeddingColumn(columns.EmbeddingColumn):
    """The rows of such a feature, combined for each example, or for each step of a sequence.

    Attributes:
      shared_name: of the variable that several columns share; None for one of its own.
    """

    shared_name: Optional[str] = None

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

    @property
    def _var_scope_name(self) -> str:
        return self.shared_name or self.name

    def _look_up(self, sparse_tensors: Any, trainable: bool) -> tf.Tensor:
        variable = self._variable(trainable)
        return tf.nn.safe_embedding_lookup_sparse(
            variable, sparse_tensors.id_tensor, sparse_tensors.weight_tensor, self.combiner)

    def _variable(self, trainable: bool) -> variables.EmbeddingVariable:
        key = f"{_SHARED}/{self.shared_name}"
        if self.shared_name and tf.get_collection(key):
            return tf.get_collection(key)[0]
        column = _of_ids(self.categorical_column)
        variable = _make_variable(column, _NAME, self.dimension, self.initializer, trainable)
        if self.shared_name:
            tf.add_to_collection(key, variable)
        return variable


def _of_ids(column: Any) -> EmbeddingCategoricalColumn | None:
    """Returns the column of ids inside one of sequences or weights; None if its ids have no embedding variable."""
    while not isinstance(column, EmbeddingCategoricalColumn) and hasattr(column, "categorical_column"):
        column = column.categorical_column
    return column if isinstance(column, EmbeddingCategoricalColumn) else None


def _make_variable(
    column: EmbeddingCategoricalColumn, name: str, dim: int, initializer: Any, trainable: bool
) -> variables.EmbeddingVariable:
    partitioner = tf.fixed_size_partitioner(column.partition_num) if column.partition_num else None
    return variables.embedding_variable(name, dim, initializer=initializer, trainable=trainable,
                                        ev_option=column.option, partitioner=partitioner)


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


def sequence_categorical_column_with_embedding(
    key: str, dtype: Any = tf.string, partition_num: Optional[int] = None,
    ev_option: Optional[EmbeddingVariableOption] = None,
) -> Any:
    """Returns such a feature of which each example has a sequence, for `sequence_input_layer`."""
    return columns.SequenceCategoricalColumn(categorical_column_with_embedding(key, dtype, partition_num, ev_option))


def variable_embedding_column(
    original: Callable, categorical_column: Any, dimension: int, *args: Any, do_fusion: Any = None,
    coalesced_scope: Any = None, **kwargs: Any,
) -> Any:
    """`tf.feature_column.embedding_column`, also of such a feature; DeepRec's arguments are about speed only."""
    column = original(categorical_column, dimension, *args, **kwargs)
    if _of_ids(categorical_column) is None:
        return column
    if column.max_norm is not None or column.ckpt_to_load_from is not None:
        raise UserCodeError("bad_embedding_column", f"embedding_column of {categorical_column.name!r}: got max_norm or "
                            "ckpt_to_load_from; an embedding variable has neither; leave them out")
    return VariableEmbeddingColumn(*column)


def variable_shared_columns(
    original: Callable, categorical_columns: Any, dimension: int, combiner: str = "mean", initializer: Any = None,
    shared_embedding_collection_name: Optional[str] = None, *args: Any, do_fusion: Any = None,
    coalesced_scope: Any = None, **kwargs: Any,
) -> Any:
    """`tf.feature_column.shared_embedding_columns`, also of such features."""
    with_variable = [_of_ids(column) is not None for column in categorical_columns]
    if not any(with_variable):
        return original(categorical_columns, dimension, combiner, initializer, shared_embedding_collection_name,
                        *args, **kwargs)
    if not all(with_variable):
        raise UserCodeError("bad_embedding_column", "shared_embedding_columns: got some columns with embedding "
                            "variables and some without; allowed: all with them, or none")
    name = shared_embedding_collection_name or "_".join(
        [*sorted(column.name for column in categorical_columns), "shared_embedding"])
    made = [tf.feature_column.embedding_column(column, dimension, combiner, initializer, *args, **kwargs)
            for column in categorical_columns]
    for column in made:
        column.shared_name = name
    return made


def shared_embedding_column(
    categorical_column: Any, dimension: int, shared_name: str, combiner: str = "mean", initializer: Any = None,
    **kwargs: Any,
) -> Any:
    """PAI's form: one of the columns that share the variable of this name."""
    return variable_shared_columns(
        tf.feature_column.shared_embedding_columns, [categorical_column], dimension, combiner, initializer, shared_name,
        **kwargs)[0]


def build_weights(original: Callable, layer: Any, shape: Any) -> None:
    """Makes the weights of a column of `linear_model`; those of such a feature are made where they are looked up."""
    if _of_ids(layer._feature_column) is None:  # noqa: SLF001 (TensorFlow's own layer)
        original(layer, shape)
    else:
        layer._weight_var, layer.built = None, True  # noqa: SLF001


def weighted_sum(
    original: Callable, column: Any, builder: Any, units: int, sparse_combiner: str, weight_collections: Any,
    trainable: bool, weight_var: Any = None,
) -> tf.Tensor:
    """What a categorical column adds to `linear_model`: the weights of its ids, of such a feature from a table."""
    of_ids = _of_ids(column)
    if of_ids is None:
        return original(column, builder, units, sparse_combiner, weight_collections, trainable, weight_var)
    tensors = column._get_sparse_tensors(builder)  # noqa: SLF001 (TensorFlow's own call)
    variable = _make_variable(of_ids, "weights", units, tf.zeros_initializer(), trainable)
    flat = [None if tensor is None else tf.sparse.reshape(tensor, [tensor.dense_shape[0], -1])
            for tensor in variable.without_invalid(tensors.id_tensor, tensors.weight_tensor, sparse_combiner)]
    return variable.lookup_sparse(*flat, sparse_combiner)
