"""Functions whose arguments had another order or other names, and small functions and classes of tf.contrib.

    renamed or in another order   both forms work, that of before TensorFlow 1.0 too
    placement                     the strategies of tf.contrib.training for replica_device_setter
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import device_lib
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops import lookup_ops


def renamed(function: Callable, **old_to_new: str) -> Callable:
    """Returns the function, which also takes the old names of its arguments."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{old_to_new.get(name, name): value for name, value in kwargs.items()})
    return call


# Of contrib.framework, whose arguments had other names than those of `tf.train`.
load_checkpoint = renamed(tf.train.load_checkpoint, filepattern="ckpt_dir_or_file")
list_variables = renamed(tf.train.list_variables, checkpoint_dir="ckpt_dir_or_file")
load_variable = renamed(tf.train.load_variable, checkpoint_dir="ckpt_dir_or_file")
init_from_checkpoint = renamed(tf.train.init_from_checkpoint, checkpoint_dir="ckpt_dir_or_file")


def _is_axis(value: Any) -> bool:
    """Returns whether an argument is the number of an axis: no list, no array, no tensor with axes."""
    if isinstance(value, tf.Tensor):
        return value.shape.rank == 0 and value.dtype.is_integer
    return isinstance(value, (int, np.integer, np.ndarray)) and not isinstance(value, bool) and np.ndim(value) == 0


def _with_output_shape(function: Callable) -> Callable:
    """Returns the function, whose result has the static shape of its third argument, `output_shape`."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> tf.Tensor:
        result = function(*args, **kwargs)
        shape = kwargs["output_shape"] if "output_shape" in kwargs else args[2]
        result.set_shape(tensor_util.constant_value_as_shape(tf.convert_to_tensor(shape, tf.int32)))
        return result
    return call


conv2d_transpose, conv3d_transpose = map(_with_output_shape, (tf.nn.conv2d_transpose, tf.nn.conv3d_transpose))


def concat(values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None) -> tf.Tensor:
    """`tf.concat(values, axis)` of 1.0, and `tf.concat(concat_dim, values)` of before."""
    if concat_dim is not None:
        values, axis = values if values is not None else axis, concat_dim
    elif _is_axis(values) and not _is_axis(axis):
        values, axis = axis, values
    return tf.concat(values, axis, name)


def split(value: Any = None, num_or_size_splits: Any = None, axis: Any = 0, num: Any = None, name: str = "split",
          split_dim: Any = None, num_split: Any = None, size_splits: Any = None) -> list[tf.Tensor]:
    """`tf.split(value, num_or_size_splits, axis)` of 1.0, and `tf.split(split_dim, num_split, value)` of before.

    `tf.split_v` of 0.12 names the sizes `size_splits`.
    """
    num_or_size_splits = next(filter(lambda given: given is not None, (num_split, size_splits)), num_or_size_splits)
    if split_dim is not None:
        axis = split_dim
    elif _is_axis(value) and not _is_axis(axis):
        value, axis = axis, value
    return tf.split(value, num_or_size_splits, axis, num, name)


def reverse(tensor: Any, axis: Any = None, name: str | None = None, dims: Any = None) -> tf.Tensor:
    """`tf.reverse(tensor, axis)` of 1.0, and `tf.reverse(tensor, dims)` of before: a bool for each axis."""
    axis = dims if axis is None else axis
    if isinstance(axis, (list, tuple)) and any(isinstance(flag, (bool, np.bool_)) for flag in axis):
        axis = [index for index, is_reversed in enumerate(axis) if is_reversed]
    return tf.reverse(tensor, axis, name)


def select(condition: Any, t: Any = None, e: Any = None, name: str | None = None) -> tf.Tensor:
    """`tf.where` with both values."""
    return tf.where(condition, t, e, name)


def batch_matmul(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None) -> tf.Tensor:
    """`tf.matmul`, which multiplies the last two axes."""
    return tf.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)


def _by_position(function: Callable, *names: str) -> Callable:
    """Returns a cross entropy that takes arguments by position, as before 1.0; 1.0 refuses that."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> tf.Tensor:
        if args and args[0] is not None:
            kwargs.update(zip(names, args))
            args = ()
        return function(*args, **kwargs)
    return call


softmax_cross_entropy_with_logits = _by_position(
    tf.nn.softmax_cross_entropy_with_logits, "logits", "labels", "dim", "name")
sparse_softmax_cross_entropy_with_logits = _by_position(
    tf.nn.sparse_softmax_cross_entropy_with_logits, "logits", "labels", "name")
sigmoid_cross_entropy_with_logits = _by_position(
    renamed(tf.nn.sigmoid_cross_entropy_with_logits, targets="labels"), "logits", "labels", "name")


def ctc_loss(labels: Any, inputs: Any = None, *args: Any, **kwargs: Any) -> tf.Tensor:
    """`tf.nn.ctc_loss` of (labels, inputs, ...); before 1.0 the inputs came first."""
    if isinstance(inputs, tf.SparseTensor):
        labels, inputs = inputs, labels
    return tf.nn.ctc_loss(labels, inputs, *args, **kwargs)


def _labels_third(function: Callable) -> Callable:
    """Returns a sampled loss of (weights, biases, labels, inputs); before 1.0 the inputs came first."""
    @functools.wraps(function)
    def call(weights: Any, biases: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        kinds = [tf.convert_to_tensor(value).dtype for value in args[:2]]
        if len(kinds) == 2 and kinds[0].is_floating and kinds[1].is_integer:
            args = (args[1], args[0], *args[2:])
        return function(weights, biases, *args, **kwargs)
    return call


nce_loss, sampled_softmax_loss = _labels_third(tf.nn.nce_loss), _labels_third(tf.nn.sampled_softmax_loss)

scalar_summary = renamed(tf.summary.scalar, tags="name", values="tensor")
histogram_summary = renamed(tf.summary.histogram, tag="name")
image_summary = renamed(tf.summary.image, tag="name", max_images="max_outputs")
audio_summary = renamed(tf.summary.audio, tag="name")


class _OfShape(type):
    """Makes a class that is called with a shape, as the functions of its name were before 1.0, return a tensor."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], (list, tuple, tf.TensorShape)):
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype", tf.float32)
            return super().__call__()(args[0], dtype)
        return super().__call__(*args, **kwargs)


class zeros_initializer(tf.zeros_initializer, metaclass=_OfShape):  # noqa: N801 (TensorFlow's name)
    """`tf.zeros_initializer`; with a shape, zeros."""


class ones_initializer(tf.ones_initializer, metaclass=_OfShape):  # noqa: N801 (TensorFlow's name)
    """`tf.ones_initializer`; with a shape, ones."""


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


def transpose_batch_time(x: tf.Tensor) -> tf.Tensor:
    """Swaps the first two axes: [batch, time, ...] <-> [time, batch, ...]."""
    x = tf.convert_to_tensor(x)
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def sequence_loss(logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, average_across_timesteps: bool = True,
                  average_across_batch: bool = True, *others: Any, sum_over_timesteps: bool = False,
                  sum_over_batch: bool = False, softmax_loss_function: Callable | None = None,
                  name: str | None = None) -> tf.Tensor:
    """The weighted cross entropy of sequences: float [], [batch], [time] or [batch, time].

    Args:
      logits: float [batch, time, classes].
      targets: int [batch, time].
      weights: float [batch, time]; 0 for padding.
      average_across_timesteps: whether the result has no time axis, and is divided by the sum of the weights.
      average_across_batch: the same of the batch axis.
      sum_over_timesteps: whether it has no time axis, and is divided by the number of weights that are not 0.
      sum_over_batch: the same of the batch axis; these two since 1.14.
      softmax_loss_function: (labels=, logits=) -> loss, instead of the softmax cross entropy.
      name: of the operations.

    Raises:
      ValueError: an axis is both averaged and summed.
    """
    if len(others) > 2 or others and isinstance(others[0], bool):  # since 1.14
        sum_over_timesteps, sum_over_batch, softmax_loss_function, name = (*others, None, None, None)[:4]
    elif others:
        softmax_loss_function, name = (*others, None)[:2]
    averaged, summed = (average_across_batch, average_across_timesteps), (sum_over_batch, sum_over_timesteps)
    if any(map(all, zip(averaged, summed))):
        raise ValueError("sequence_loss: give average_across_... or sum_over_..., not both, for an axis")
    axes = [axis for axis, is_gone in enumerate(averaged) if is_gone]
    counted = [axis for axis, is_gone in enumerate(summed) if is_gone]
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        flat = function(labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]))
        losses = tf.reshape(flat, tf.shape(targets)) * weights
        if axes:  # as in TensorFlow 1, sums are made only where nothing is averaged
            return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), tf.reduce_sum(weights, axes))
        if counted:
            return tf.math.divide_no_nan(tf.reduce_sum(losses, counted), tf.cast(
                tf.math.count_nonzero(weights, counted), losses.dtype))
        return losses


def _embeddings(shape: list, initializer: Any, regularizer: Any, trainable: bool) -> tf.Variable:
    """Returns the model variable "embeddings" of the scope; the shape of one that is there may be unknown."""
    return tf.get_variable(
        "embeddings", None if None in shape else shape, initializer=initializer, regularizer=regularizer,
        trainable=trainable, collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES])


def embed_sequence(ids: tf.Tensor, vocab_size: int | None = None, embed_dim: int | None = None,
                   unique: bool = False, initializer: Any = None, regularizer: Any = None, trainable: bool = True,
                   scope: str | None = None, reuse: bool | None = None) -> tf.Tensor:
    """Looks up the rows of a new variable "embeddings": int [batch, time] -> float [batch, time, embed_dim]."""
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        return tf.nn.embedding_lookup(_embeddings([vocab_size, embed_dim], initializer, regularizer, trainable), ids)


def bow_encoder(ids: Any, vocab_size: int, embed_dim: int, sparse_lookup: bool = True, initializer: Any = None,
                regularizer: Any = None, trainable: bool = True, scope: str | None = None,
                reuse: bool | None = None) -> tf.Tensor:
    """Returns the mean of the rows of a new variable "embeddings", float [batch, embed_dim].

    Args:
      ids: int [batch, time], a tensor or a sparse one.
      sparse_lookup: whether zeros of a tensor are left out, as padding.
    """
    with tf.variable_scope(scope, "bow_encoder", [ids], reuse=reuse):
        embeddings = _embeddings([vocab_size, embed_dim], initializer, regularizer, trainable)
        if not sparse_lookup:
            return tf.reduce_mean(tf.nn.embedding_lookup(embeddings, ids), 1)
        sparse = ids if isinstance(ids, tf.SparseTensor) else tf.sparse.from_dense(ids)
        return tf.nn.safe_embedding_lookup_sparse(embeddings, sparse, combiner="mean", default_id=0)


def optimize_loss(loss: Any, global_step: Any, learning_rate: Any, optimizer: Any, gradient_noise_scale: Any = None,
                  gradient_multipliers: Any = None, clip_gradients: Any = None, *args: Any, **kwargs: Any) -> tf.Tensor:
    """TF-Slim's `optimize_loss`, which refuses a norm that is an int."""
    from tf_slim.layers import optimizers  # noqa: PLC0415 (only with the extra `legacy`)

    norm = float(clip_gradients) if isinstance(clip_gradients, int) else clip_gradients
    return optimizers.optimize_loss(loss, global_step, learning_rate, optimizer, gradient_noise_scale,
                                    gradient_multipliers, norm, *args, **kwargs)


def mirrored_strategy(devices: Sequence[str] | None = None, num_gpus: int | None = None,
                      num_gpus_per_worker: int | None = None, cross_device_ops: Any = None,
                      cross_tower_ops: Any = None, **ignored: Any) -> Any:
    """`tf.distribute.MirroredStrategy` over the devices, or over the first GPUs."""
    count = num_gpus_per_worker if num_gpus is None else num_gpus
    if devices is None and count is not None:
        devices = [f"/device:GPU:{index}" for index in range(count)] or ["/device:CPU:0"]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=cross_device_ops or cross_tower_ops)


def collective_all_reduce_strategy(num_gpus_per_worker: int = 0, **ignored: Any) -> Any:
    """`tf.distribute.experimental.MultiWorkerMirroredStrategy`, which takes all GPUs that it finds."""
    return tf.distribute.experimental.MultiWorkerMirroredStrategy()


def parameter_server_strategy(num_gpus_per_worker: int = 0, **ignored: Any) -> Any:
    """`tf.distribute.experimental.ParameterServerStrategy`, which learns of the cluster where it is used."""
    here = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({}), num_accelerators={"GPU": num_gpus_per_worker})
    return tf.distribute.experimental.ParameterServerStrategy(here)


def list_devices() -> list[str]:
    """Returns the names of this machine's devices."""
    return [device.name for device in device_lib.list_local_devices()]


class GreedyLoadBalancingStrategy:
    """Places each variable on the first of the ps with the least load so far; `load_fn` is that of an operation."""

    def __init__(self, num_tasks: int, load_fn: Callable[[tf.Operation], float]) -> None:
        self._loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: tf.Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """Places each variable on a random ps; every worker draws the same, from the same seed."""

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_ps_tasks = num_ps_tasks
        self._random = random.Random(seed)

    def __call__(self, op: tf.Operation) -> int:
        return self._random.randrange(self._num_ps_tasks)


def byte_size_load_fn(op: tf.Operation) -> int:
    """Returns the bytes of the variable that an operation makes; of its output if that is another operation.

    Raises:
      ValueError: the shape is not fully defined.
    """
    # The output of a resource variable's operation is a handle: the variable's shape and type are attributes.
    if op.type in ("VarHandleOp", "VariableV2", "Variable"):
        shape, dtype = tf.TensorShape(op.get_attr("shape")), tf.as_dtype(op.get_attr("dtype"))
    else:
        shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
    shape.assert_is_fully_defined()
    return shape.num_elements() * dtype.size
