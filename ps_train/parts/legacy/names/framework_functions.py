"""Functions of `tf.contrib.framework` and `tf.contrib.nn`; most load a checkpoint with another vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import embedding_ops
from tensorflow.python.training import checkpoint_ops  # its functions have no public names

load_and_remap_matrix_initializer = checkpoint_ops._load_and_remap_matrix_initializer  # noqa: SLF001
load_embedding_initializer = checkpoint_ops._load_embedding_initializer  # noqa: SLF001


def load_variable_slot_initializer(
        ckpt_path: str, old_tensor_name: str, primary_partition_info: Any, new_row_vocab_size: int,
        new_col_vocab_size: int, old_row_vocab_file: str | None = None, new_row_vocab_file: str | None = None,
        old_col_vocab_file: str | None = None, new_col_vocab_file: str | None = None, num_row_oov_buckets: int = 0,
        num_col_oov_buckets: int = 0, initializer: Callable | None = None, max_rows_in_memory: int = -1) -> Callable:
    """Returns `load_and_remap_matrix_initializer` for a slot: its part is that of its variable."""
    load = load_and_remap_matrix_initializer(
        ckpt_path, old_tensor_name, new_row_vocab_size, new_col_vocab_size, old_row_vocab_file=old_row_vocab_file,
        new_row_vocab_file=new_row_vocab_file, old_col_vocab_file=old_col_vocab_file,
        new_col_vocab_file=new_col_vocab_file, num_row_oov_buckets=num_row_oov_buckets,
        num_col_oov_buckets=num_col_oov_buckets, initializer=initializer, max_rows_in_memory=max_rows_in_memory)
    return lambda shape, dtype=tf.float32, partition_info=None: load(
        shape, dtype, partition_info=primary_partition_info)


def load_linear_multiclass_bias_initializer(
        ckpt_path: str, bias_tensor_name: str, new_class_vocab_size: int, old_class_vocab_file: str,
        new_class_vocab_file: str, num_class_oov_buckets: int = 0, initializer: Callable | None = None,
        max_rows_in_memory: int = -1) -> Callable:
    """Returns an initializer of biases [classes, 1] by those of a checkpoint with another vocabulary of classes.

    Classes that it does not have begin with zero, or with what `initializer` says.
    """
    return load_and_remap_matrix_initializer(
        ckpt_path, bias_tensor_name, new_class_vocab_size, 1, old_row_vocab_file=old_class_vocab_file,
        new_row_vocab_file=new_class_vocab_file, num_row_oov_buckets=num_class_oov_buckets,
        initializer=initializer or tf.zeros_initializer(), max_rows_in_memory=max_rows_in_memory)


def contrib_py_func(func: Callable, args: Any = (), kwargs: Mapping[str, Any] | None = None, output_types: Any = None,
                    output_shapes: Any = None, stateful: bool = True, name: str | None = None) -> Any:
    """Returns the results of a Python function of arrays, in the structure of `output_types`.

    `output_types` and `output_shapes` may be functions of the arguments.
    """
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args must be a list or tuple, got {args!r}")
    if not isinstance(kwargs, dict):
        raise TypeError(f"kwargs must be a dict, got {kwargs!r}")
    types, shapes = (given(*args, **kwargs) if callable(given) and not isinstance(given, tf.DType) else given
                     for given in (output_types, output_shapes))

    def call(*values: Any) -> list:
        own_args, own_kwargs = tf.nest.pack_sequence_as((args, kwargs), values)
        result = func(*own_args, **own_kwargs)
        return [part for part, _ in _beside(result, types)]
    results = tf.py_func(call, tf.nest.flatten((args, kwargs)), tf.nest.flatten(types), stateful=stateful, name=name)
    if shapes is not None:
        for result, (shape, _) in zip(results, _beside(shapes, types)):
            result.set_shape(shape)
    return tf.nest.pack_sequence_as(types, results)


def _beside(values: Any, types: Any) -> list[tuple]:
    """Returns (part, type) of a structure that has at least the depth of the types, in their order."""
    if isinstance(types, dict):
        return [pair for key in sorted(types) for pair in _beside(values[key], types[key])]
    if not isinstance(types, (list, tuple)):
        return [(values, types)]
    if not isinstance(values, (list, tuple)) or len(values) != len(types):
        raise ValueError(f"the function must return a structure as {types}, got {values!r}")
    return [pair for value, kind in zip(values, types) for pair in _beside(value, kind)]


def zero_initializer(ref: tf.Variable, use_locking: bool = True, name: str = "zero_initializer") -> tf.Tensor:
    """Returns what gives a variable zeros; it fails if the variable has a value."""
    with tf.name_scope(name), tf.control_dependencies([tf.Assert(
            tf.logical_not(tf.is_variable_initialized(ref)), [f"{ref.op.name} has a value already"])]):
        return tf.assign(ref, tf.zeros(ref.shape, ref.dtype.base_dtype), use_locking=use_locking)


def get_placeholders(graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the placeholders of a graph."""
    if not isinstance(graph, tf.Graph):
        raise TypeError(f"graph must be a tf.Graph, got {graph!r}")
    return [operation.outputs[0] for operation in graph.get_operations() if operation.type == "Placeholder"]


def rank_sampled_softmax_loss(
        weights: Any, biases: Any, labels: tf.Tensor, inputs: tf.Tensor, num_sampled: int, num_resampled: int,
        num_classes: int, num_true: int, sampled_values: tuple | None, resampling_temperature: Any,
        remove_accidental_hits: bool, partition_strategy: str, name: str | None = None) -> tf.Tensor:
    """Returns `tf.nn.sampled_softmax_loss`, [batch], with the most probable of the sampled classes only.

    See https://arxiv.org/abs/1707.03073. A lower temperature prefers classes that are near to single inputs.
    """
    if num_sampled > num_classes:
        raise ValueError(f"num_sampled={num_sampled}: there are only {num_classes} classes to sample")
    if num_sampled <= num_resampled:
        raise ValueError(f"num_resampled={num_resampled}: allowed: fewer than num_sampled={num_sampled}")
    if partition_strategy not in ("div", "mod"):
        raise ValueError(f"partition_strategy={partition_strategy!r}: allowed: div, mod")
    with tf.name_scope(name, "rank_sampled_softmax_loss") as scope:
        sampled, of_true, of_sampled = map(tf.stop_gradient, sampled_values or tf.nn.learned_unigram_candidate_sampler(
            labels, num_true, num_sampled, unique=True, range_max=num_classes))
        sampled, scaled = tf.cast(sampled, tf.int64), inputs / resampling_temperature
        logits = embedding_ops._embedding_lookup_and_transform(  # noqa: SLF001 (computes where the weights are)
            weights, sampled, partition_strategy,
            transform_fn=lambda rows: tf.reduce_logsumexp(tf.matmul(rows, scaled, transpose_b=True), axis=1))
        logits += tf.reshape(tf.nn.embedding_lookup(biases, sampled, partition_strategy), [-1]) / resampling_temperature
        _, best = tf.nn.top_k(logits, num_resampled, sorted=False)
        return tf.nn.sampled_softmax_loss(
            weights, biases, labels, inputs, num_resampled, num_classes, num_true,
            (tf.gather(sampled, best), of_true, tf.gather(of_sampled, best)), remove_accidental_hits,
            partition_strategy, scope)
