"""Functions of tf.contrib that are a few lines over today's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.client import device_lib
from tensorflow.python.ops import lookup_ops

FLOAT_OPS_OPTIONS = tf.profiler.ProfileOptionBuilder.float_operation()
TRAINABLE_VARS_PARAMS_STAT_OPTIONS = tf.profiler.ProfileOptionBuilder.trainable_variables_parameter()


def print_model_analysis(graph: tf.Graph, run_meta: Any = None, op_log: Any = None, tfprof_cmd: str = "scope",
                         tfprof_options: dict | None = None) -> Any:
    """`tf.profiler.profile`."""
    return tf.profiler.profile(graph, run_meta, op_log, tfprof_cmd,
                               tfprof_options or TRAINABLE_VARS_PARAMS_STAT_OPTIONS)


def index_table_from_tensor(mapping: Any, num_oov_buckets: int = 0, default_value: int = -1,
                            hasher_spec: Any = lookup_ops.FastHashSpec, dtype: tf.DType = tf.string,
                            name: str | None = None) -> Any:
    """A table from the strings of a list or tensor to their positions, int64."""
    return lookup_ops.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """A table from positions, int64, to the strings of a list or tensor."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)


def flipped_softmax_cross_entropy(logits: Any, labels: Any, dim: int = -1, name: str | None = None) -> tf.Tensor:
    """`tf.nn.softmax_cross_entropy_with_logits`; logits come first."""
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


def flipped_sparse_softmax_cross_entropy(logits: Any, labels: Any, name: str | None = None) -> tf.Tensor:
    """`tf.nn.sparse_softmax_cross_entropy_with_logits`; logits come first."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


def flipped_sigmoid_cross_entropy(logits: Any, targets: Any, name: str | None = None) -> tf.Tensor:
    """`tf.nn.sigmoid_cross_entropy_with_logits`; logits come first."""
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)


def lstm_block_cell(num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                    use_peephole: bool = False, dtype: Any = None, reuse: bool | None = None,
                    name: str = "lstm_cell") -> Any:
    """`tf.nn.rnn_cell.LSTMCell`: the same numbers and variables, made of several operations."""
    return tf.nn.rnn_cell.LSTMCell(num_units, use_peepholes=use_peephole, cell_clip=cell_clip, forget_bias=forget_bias,
                                   reuse=reuse, name=name, dtype=dtype)


def transpose_batch_time(x: tf.Tensor) -> tf.Tensor:
    """Swaps the first two axes: [batch, time, ...] <-> [time, batch, ...]."""
    x = tf.convert_to_tensor(x)
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def sequence_loss(logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, average_across_timesteps: bool = True,
                  average_across_batch: bool = True, softmax_loss_function: Callable | None = None,
                  name: str | None = None) -> tf.Tensor:
    """The weighted cross entropy of sequences.

    Args:
      logits: float [batch, time, classes].
      targets: int [batch, time].
      weights: float [batch, time]; 0 for padding.
      average_across_timesteps: whether the result has no time axis.
      average_across_batch: whether the result has no batch axis.
      softmax_loss_function: (labels=, logits=) -> loss, in place of the softmax cross entropy.
      name: of the operations.

    Returns:
      float: [], [batch], [time] or [batch, time].
    """
    function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    axes = [axis for axis, is_averaged in enumerate((average_across_batch, average_across_timesteps)) if is_averaged]
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        flat = function(labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]))
        losses = tf.reshape(flat, tf.shape(targets)) * weights
        if not axes:
            return losses
        # A batch of padding only has the weight 0.
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def embed_sequence(ids: tf.Tensor, vocab_size: int | None = None, embed_dim: int | None = None,
                   unique: bool = False, initializer: Any = None, regularizer: Any = None, trainable: bool = True,
                   scope: str | None = None, reuse: bool | None = None) -> tf.Tensor:
    """Looks up the rows of a new variable "embeddings": int [batch, time] -> float [batch, time, embed_dim]."""
    del unique  # which row is looked up how often changes no number
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = None if reuse else [vocab_size, embed_dim]
        embeddings = tf.get_variable("embeddings", shape, initializer=initializer, regularizer=regularizer,
                                     trainable=trainable)
        return tf.nn.embedding_lookup(embeddings, ids)


def batch_and_drop_remainder(batch_size: Any) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """For `Dataset.apply`: `batch` without the last, smaller batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: Any, padded_shapes: Any, padding_values: Any = None) -> Callable:
    """For `Dataset.apply`: `padded_batch` without the last, smaller batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def mirrored_strategy(devices: Sequence[str] | None = None, num_gpus: int | None = None,
                      num_gpus_per_worker: int | None = None, cross_device_ops: Any = None,
                      cross_tower_ops: Any = None, **ignored: Any) -> Any:
    """`tf.distribute.MirroredStrategy` over the devices, or over the first GPUs."""
    del ignored
    count = num_gpus if num_gpus is not None else num_gpus_per_worker
    if devices is None and count is not None:
        devices = [f"/device:GPU:{index}" for index in range(count)] or ["/device:CPU:0"]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=cross_device_ops or cross_tower_ops)


def collective_all_reduce_strategy(num_gpus_per_worker: int = 0, **ignored: Any) -> Any:
    """`tf.distribute.experimental.MultiWorkerMirroredStrategy`, which takes all GPUs that it finds."""
    del num_gpus_per_worker, ignored
    return tf.distribute.experimental.MultiWorkerMirroredStrategy()


def parameter_server_strategy(num_gpus_per_worker: int = 0, **ignored: Any) -> Any:
    """`tf.distribute.experimental.ParameterServerStrategy`, which takes all GPUs that it finds."""
    del num_gpus_per_worker, ignored
    return tf.distribute.experimental.ParameterServerStrategy()


def list_devices() -> list[str]:
    """Returns the names of this machine's devices."""
    return [device.name for device in device_lib.list_local_devices()]
