"""Puts DeepRec's names and behaviour into TensorFlow's place, in this process.

    embedding_lookup, embedding_lookup_sparse      of an embedding variable
    gradients, Optimizer.apply_gradients           with embedding variables
    Saver                                          reads a variable by itself, and drops rows before it writes
    embedding_column                               of `categorical_column_with_embedding`
    ConfigProto                                    takes the fields that DeepRec added, which are about speed
    Session                                        leaves a graph with embedding variables as it is

They behave as before for everything that is not DeepRec's.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.feature_column import feature_column, feature_column_v2
from tensorflow.python.ops import embedding_ops, gradients_impl, variable_scope
from tensorflow.python.ops import gradients as gradients_module
from tensorflow.python.ops import variables as variables_module
from tensorflow.python.training import optimizer as optimizer_module
from tensorflow.python.training import saver as saver_module

from ps_train.errors import UserCodeError
from ps_train.parts.legacy.classic.sync_replicas import SyncReplicasOptimizer
from ps_train.parts.legacy.deeprec import columns, inputs, options, saving, speed, training, variables
from ps_train.parts.legacy.deeprec.variables import EmbeddingVariable
from ps_train.parts.legacy.deeprec.version import install_version


def install_deeprec(wrap: Callable[..., None]) -> None:
    """Wraps TensorFlow's functions; `wrap(name, wrapper, owners...)` replaces a function of the first owner."""
    wrap("embedding_lookup", _lookup, embedding_ops, tf.nn)
    wrap("embedding_lookup_sparse", _lookup, embedding_ops, tf.nn)
    wrap("safe_embedding_lookup_sparse", _safe_lookup, embedding_ops, tf.nn)
    wrap("gradients", training.gradients_with_rows, gradients_impl, gradients_module, tf)
    wrap("_get_processor", training.row_processor, optimizer_module)
    for optimizer in (tf.train.Optimizer, SyncReplicasOptimizer):
        wrap("apply_gradients", training.apply_with_rows, optimizer)
    wrap("bulk_restore", _bulk_restore, saver_module.BulkSaverBuilder)
    wrap("save", _save, tf.train.Saver)
    wrap("__init__", _begin_session, session_lib.BaseSession)
    wrap("embedding_column", columns.variable_embedding_column, feature_column_v2, tf.feature_column)
    wrap("shared_embedding_columns", columns.variable_shared_columns, tf.feature_column)
    wrap("_create_categorical_column_weighted_sum", columns.weighted_sum, feature_column)
    wrap("build", columns.build_weights, feature_column._FCLinearWrapper)  # noqa: SLF001 (a column of linear_model)
    for owner, name in ((tf.feature_column, "linear_model"), (tf.feature_column, "input_layer"),
                        (tf.train.Saver, "__init__"), (tf.train, "MonitoredTrainingSession")):
        wrap(name, speed.without_arguments, owner)
    for message in (config_pb2.OptimizerOptions, config_pb2.GraphOptions, config_pb2.ConfigProto):
        wrap("__setattr__", speed.set_field, message)
    for name in ("fused_embedding_lookup_sparse", "fused_safe_embedding_lookup_sparse"):
        setattr(embedding_ops, name, getattr(speed, name))
    for name in options.NAMES:
        setattr(variables_module, name, getattr(options, name))
    variable_scope.get_embedding_variable = variables.embedding_variable
    install_version()
    for name, module in _modules().items():
        sys.modules[name] = module


def _modules() -> dict[str, types.ModuleType]:
    """Returns the modules inside TensorFlow that only DeepRec has."""
    modules = {}
    for full_name, name, value in (
            ("tensorflow.python.ops.work_queue", "WorkQueue", inputs.WorkQueue),
            ("tensorflow.python.data.experimental.ops.parquet_dataset_ops", "ParquetDataset", inputs.ParquetDataset),
            ("tensorflow.core.framework.embedding.config_pb2", "StorageType", options.StorageType),
            ("tensorflow.python.training.incremental_saver", "_get_incremental_saver", speed.refuse_incremental)):
        modules[full_name] = types.ModuleType(full_name)
        setattr(modules[full_name], name, value)
    package = modules["tensorflow.core.framework.embedding"] = types.ModuleType("tensorflow.core.framework.embedding")
    package.config_pb2 = modules["tensorflow.core.framework.embedding.config_pb2"]
    return modules


def _lookup(original: Callable, *args: Any, **kwargs: Any) -> tf.Tensor:
    """`embedding_lookup` or `embedding_lookup_sparse`, also of embedding variables."""
    variable, ids, bound = _arguments(original, args, kwargs)
    if variable is None:
        return original(*args, **kwargs)
    if isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
        return variable.lookup_sparse(ids, bound.get("sp_weights"), bound.get("combiner"))
    return variable.lookup(ids)


def _safe_lookup(original: Callable, *args: Any, prune: bool = True, **kwargs: Any) -> tf.Tensor:
    """`safe_embedding_lookup_sparse`, also of embedding variables; `prune` of DeepRec says whether ids are left out."""
    variable, ids, bound = _arguments(original, args, kwargs)
    if variable is None:
        return original(*args, **kwargs)
    weights, combiner = bound.get("sparse_weights"), bound.get("combiner")
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_sparse()
    if prune:
        ids, weights = variable.without_invalid(ids, weights, combiner)
    if ids.shape.rank not in (None, 2):
        return _of_many_ranks(variable, ids, weights, combiner)
    return variable.lookup_sparse(ids, weights, combiner)


def _arguments(original: Callable, args: Any, kwargs: Any) -> tuple[EmbeddingVariable | None, Any, dict[str, Any]]:
    """Returns the embedding variable of a lookup, None if it is of another one, its ids, and all arguments by name."""
    bound = dict(inspect.signature(original).bind(*args, **kwargs).arguments)
    params, ids, *_ = bound.values()
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    if not isinstance(params, EmbeddingVariable):
        return None, ids, bound
    for argument in ("max_norm", "default_id"):
        if bound.get(argument) is not None:
            raise UserCodeError("bad_embedding_option", f"embedding variable {params.spec.name}: got {argument}="
                                f"{bound[argument]}; allowed: None")
    return params, ids, bound


def _of_many_ranks(variable: EmbeddingVariable, ids: tf.SparseTensor, weights: Any, combiner: Any) -> tf.Tensor:
    """Returns the combined rows of ids [..., n], float32 [..., dim]."""
    rows = tf.reduce_prod(ids.dense_shape[:-1])
    flat = [None if sparse is None else tf.sparse.reshape(sparse, [rows, sparse.dense_shape[-1]])
            for sparse in (ids, weights)]
    combined = tf.reshape(variable.lookup_sparse(*flat, combiner),
                          tf.concat([ids.dense_shape[:-1], [variable.spec.dim]], 0))
    combined.set_shape([*ids.shape[:-1], variable.spec.dim])
    return combined


def _bulk_restore(
    original: Callable, builder: Any, filename_tensor: tf.Tensor, saveables: Sequence[Any], *args: Any, **kwargs: Any
) -> list:
    """Restores other variables as TensorFlow does; an embedding variable gets the path of the checkpoint."""
    others = [saveable for saveable in saveables if not isinstance(saveable, EmbeddingVariable)]
    read = iter(original(builder, filename_tensor, others, *args, **kwargs) if others else ())
    return [filename_tensor if isinstance(saveable, EmbeddingVariable) else next(read)
            for saveable in saveables for _ in saveable.specs]


def _save(original: Callable, saver: tf.train.Saver, sess: tf.Session | None, *args: Any, **kwargs: Any) -> Any:
    """Drops the rows that an `evict_option` drops, and saves."""
    if sess is not None:  # None where a script runs eagerly
        saving.evict(variables.variables_of_graph(sess.graph), sess)
    return original(saver, sess, *args, **kwargs)


def _begin_session(
    original: Callable, session: Any, target: str = "", graph: tf.Graph | None = None,
    config: tf.ConfigProto | None = None,
) -> None:
    """`tf.Session(target, graph, config)`, without TensorFlow's optimizer where there are embedding variables.

    It took 12 s of CPU for each set of fetches of WDL's graph, and a step was as fast without it, 0.18 s of CPU.
    """
    if variables.variables_of_graph(graph) and not (config and config.graph_options.HasField("rewrite_options")):
        changed = tf.ConfigProto()
        changed.CopyFrom(config or changed)
        changed.graph_options.rewrite_options.disable_meta_optimizer = True
        config = changed
    original(session, target, graph, config)
