"""Functions of tf.contrib that few jobs use: of data, distribute, estimator, framework, nn and sparsemax."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.util import nest as data_nest  # tf.nest takes lists for structures, which these are not
from tensorflow.python.ops import nn_impl  # the logits of sampled classes have no public name

from ps_train.parts.legacy.names.functions import renamed

# Of the self-normalising units (https://arxiv.org/abs/1706.02515): -scale * alpha.
_DROPPED = -1.7580993408473766

conv1d_transpose = renamed(tf.nn.conv1d_transpose, value="input", filter="filters", stride="strides")


def uniform_unit_scaling_initializer(factor: float = 1.0, seed: int | None = None, dtype: tf.DType = tf.float32,
                                     full_shape: Any = None) -> Any:
    """`tf.uniform_unit_scaling_initializer`, which is told the full shape of a partitioned variable today."""
    return tf.uniform_unit_scaling_initializer(factor, seed, dtype)


def assert_variables_initialized(var_list: Sequence[Any] | None = None) -> tf.Tensor | None:
    """Returns a tensor that fails with FailedPreconditionError if a variable is not initialized; None if there is none.

    TensorFlow's own computes the ranks only, for which no variable is read where shapes are known.
    """
    variables = tf.global_variables() + tf.local_variables() if var_list is None else list(var_list)
    if not variables:
        return None
    # Without the copies, graph simplification removes the reads: nothing takes their values.
    with tf.name_scope("assert_variables_initialized"), tf.control_dependencies(
            [tf.identity(variable) for variable in variables]):
        return tf.constant([variable.shape.rank or 0 for variable in variables])


def with_shape(expected_shape: Any, tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor, or one that fails when it is computed, if it is not of a shape; one number may be of shape [1].

    Raises:
      ValueError: it is of another shape for sure.
    """
    if isinstance(expected_shape, tf.Tensor):
        with tf.control_dependencies([tf.assert_equal(tf.shape(tensor), expected_shape)]):
            return tf.identity(tensor)
    expected = tf.TensorShape(expected_shape)
    if expected.rank == 0 and (tensor.shape.is_compatible_with([1]) or not tensor.shape.is_fully_defined()):
        return tf.reshape(tensor, [])
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(f"Invalid shape for tensor {tensor.name}, expected {expected_shape}, got {tensor.shape}.")
    return tensor if tensor.shape.is_fully_defined() else tf.ensure_shape(tensor, expected)


def with_same_shape(expected_tensor: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """`with_shape`, with the shape of another tensor."""
    known = expected_tensor.shape.is_fully_defined()
    return with_shape(expected_tensor.shape if known else tf.shape(expected_tensor), tensor)


def reduce_sum_n(tensors: Sequence[tf.Tensor], name: str | None = None) -> tf.Tensor:
    """Returns the sum of all numbers of all tensors."""
    if not tensors:
        raise ValueError("No tensors provided.")
    with tf.name_scope(name, "reduce_sum_n", tensors):
        return tf.add_n([tf.reduce_sum(tensor) for tensor in tensors])


def assert_scalar_int(tensor: Any, name: str | None = None) -> tf.Tensor:
    """Returns a tensor that is one whole number.

    Raises:
      ValueError: it is not.
    """
    tensor = tf.convert_to_tensor(tensor)
    if not tensor.dtype.is_integer:
        raise ValueError(f"Expected integer type for {tensor.name}, received type: {tensor.dtype}.")
    return tf.assert_scalar(tensor, name=name)


def alpha_dropout(x: Any, keep_prob: Any, noise_shape: Any = None, seed: int | None = None,
                  name: str | None = None) -> tf.Tensor:
    """Dropout that keeps mean 0 and variance 1 (https://arxiv.org/abs/1706.02515, section 3)."""
    if isinstance(keep_prob, numbers.Real) and not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob must be a scalar tensor or a float in the range (0, 1], got {keep_prob:g}")
    with tf.name_scope(name, "alpha_dropout", [x]):
        x = tf.convert_to_tensor(x)
        keep = tf.convert_to_tensor(keep_prob, x.dtype)
        if tf.get_static_value(keep) == 1:
            return x
        chances = tf.random_uniform(tf.shape(x) if noise_shape is None else noise_shape, seed=seed, dtype=x.dtype)
        is_kept = tf.cast(chances >= 1 - keep, x.dtype)
        scale = tf.math.rsqrt(keep + keep * (1 - keep) * _DROPPED ** 2)
        return scale * (x * is_kept + _DROPPED * (1 - is_kept)) - scale * _DROPPED * (1 - keep)


def embedding_lookup_unique(params: Any, ids: Any, partition_strategy: str = "mod",
                            name: str | None = None) -> tf.Tensor:
    """`tf.nn.embedding_lookup`, which takes each row once only: float [*ids, *row]."""
    with tf.name_scope(name, "EmbeddingLookupUnique"):
        ids = tf.convert_to_tensor(ids)
        different, places = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.nn.embedding_lookup(params, different, partition_strategy)
        result = tf.reshape(tf.gather(rows, places), tf.concat([tf.shape(ids), tf.shape(rows)[1:]], 0))
        result.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return result


def scaled_softplus(x: Any, alpha: Any, clip: Any = None, name: str | None = None) -> tf.Tensor:
    """Returns `alpha * softplus(x / alpha)`, at most `clip`."""
    with tf.name_scope(name, "scaled_softplus"):
        x = tf.convert_to_tensor(x)
        alpha = tf.convert_to_tensor(alpha, x.dtype)
        y = alpha * tf.nn.softplus(x / alpha)
        return y if clip is None else tf.minimum(y, tf.convert_to_tensor(clip, x.dtype))


def sampled_sparse_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    sampled_values: Any = None, remove_accidental_hits: bool = True, partition_strategy: str = "mod",
    name: str = "sampled_sparse_softmax_loss",
) -> tf.Tensor:
    """The same as `tf.nn.sampled_softmax_loss` with one label for each row: float [batch]."""
    logits, _ = nn_impl._compute_sampled_logits(  # noqa: SLF001 (it has no public name)
        weights=weights, biases=biases, labels=labels, inputs=inputs, num_sampled=num_sampled,
        num_classes=num_classes, num_true=1, sampled_values=sampled_values, subtract_log_q=True,
        remove_accidental_hits=remove_accidental_hits, partition_strategy=partition_strategy, name=name)
    first = tf.zeros([tf.shape(logits)[0]], tf.int64)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=first, logits=logits)


def sparsemax(logits: Any, name: str | None = None) -> tf.Tensor:
    """Returns probabilities, many of them 0, for logits [batch, classes] (https://arxiv.org/abs/1602.02068)."""
    with tf.name_scope(name, "sparsemax", [logits]):
        z = tf.convert_to_tensor(logits)
        ordered = tf.sort(z, direction="DESCENDING")
        sums = tf.cumsum(ordered, axis=1)
        ranks = tf.range(1, tf.cast(tf.shape(z)[1], z.dtype) + 1, dtype=z.dtype)
        support = tf.reduce_sum(tf.cast(1 + ranks * ordered > sums, tf.int32), 1)  # how many are not 0
        last = tf.gather(sums, tf.maximum(support, 1) - 1, batch_dims=1)
        threshold = (last - 1) / tf.cast(support, z.dtype)
        p = tf.maximum(z - threshold[:, tf.newaxis], 0)
        has_none = tf.equal(support, 0) | tf.math.is_nan(sums[:, -1])
        return tf.where(has_none, tf.fill(tf.shape(p), tf.constant(float("nan"), z.dtype)), p)


def sparsemax_loss(logits: Any, sparsemax: Any, labels: Any, name: str | None = None) -> tf.Tensor:
    """The loss of that paper, float [batch], for logits, their sparsemax and labels: [batch, classes] each."""
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        z, p, q = map(tf.convert_to_tensor, (logits, sparsemax, labels))
        zeros = tf.zeros_like(z)
        # Logits may be infinite where the probability is 0.
        of_predictions = tf.where((p > 0) | tf.math.is_nan(p), p * (z - 0.5 * p), zeros)
        of_labels = tf.where(tf.equal(q, 0) & tf.math.is_inf(z), zeros, q * (0.5 * q - z))
        return tf.reduce_sum(of_predictions + of_labels, 1)


def sliding_window_batch(window_size: int, stride: int | None = None, window_shift: int | None = None,
                         window_stride: int = 1) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Returns a function for `Dataset.apply` that makes batches of elements that follow each other.

    Args:
      window_size: the elements of a batch.
      stride: the older name of the next one.
      window_shift: how far each batch begins behind the one before.
      window_stride: how far the elements of a batch are from each other.

    Raises:
      ValueError: both `stride` and `window_shift` are given.
    """
    if stride is not None and window_shift is not None:
        raise ValueError("Cannot specify both `stride` and `window_shift`")

    def batches(*windows: Any) -> tf.data.Dataset:
        structure = windows if len(windows) > 1 else windows[0]
        return tf.data.Dataset.zip(data_nest.map_structure(lambda window: window.batch(window_size), structure))
    shift = next((given for given in (window_shift, stride) if given is not None), 1)
    return lambda dataset: dataset.window(
        window_size, shift, window_stride, drop_remainder=True).flat_map(batches)


def assert_element_shape(expected_shapes: Any) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Returns a function for `Dataset.apply`; then elements have these shapes, in a structure as that of an element."""
    def checked(*parts: Any) -> Any:
        element = parts if len(parts) > 1 else parts[0]
        return data_nest.map_structure_up_to(element, _of_shape, element, expected_shapes)
    return lambda dataset: dataset.map(checked)


def _of_shape(tensor: tf.Tensor, expected: Any) -> tf.Tensor:
    return tensor if tf.TensorShape(expected).rank is None else tf.ensure_shape(tensor, expected)


def sloppy_interleave(map_func: Callable, cycle_length: int,
                      block_length: int = 1) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """`tf.data.experimental.parallel_interleave`, in whatever order elements come."""
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)


def contrib_data_read_batch_features(
    file_pattern: str, batch_size: int, features: Mapping[str, Any], reader: Any = None, reader_args: Any = None,
    randomize_input: bool = True, num_epochs: int | None = None, capacity: int = 10000,
) -> Any:
    """Returns the tensors of the next batch of `tf.data.experimental.make_batched_features_dataset`."""
    dataset = tf.data.experimental.make_batched_features_dataset(
        file_pattern, batch_size, features, reader=reader or tf.data.TFRecordDataset, reader_args=reader_args,
        num_epochs=num_epochs, shuffle=randomize_input, shuffle_buffer_size=capacity)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def replicate_model_fn(model_fn: Callable, loss_reduction: Any = None, devices: Any = None) -> Callable:
    """Returns a model_fn, which gets each batch as a whole: its gradient is that of the parts for several devices."""
    return model_fn


def tower_optimizer(optimizer_or_optimizer_fn: Any) -> tf.train.Optimizer:
    """Returns an optimizer, or what a function returns, for `replicate_model_fn`."""
    return optimizer_or_optimizer_fn() if callable(optimizer_or_optimizer_fn) else optimizer_or_optimizer_fn


def run_standard_tensorflow_server(session_config: Any = None) -> Any:
    """Starts the `tf.train.Server` of this task, by the environment variable TF_CONFIG, and returns it.

    Raises:
      ValueError: it does not say the cluster and the task.
    """
    settings = json.loads(os.environ.get("TF_CONFIG", "{}"))
    for part in ("cluster", "task"):
        if part not in settings:
            raise ValueError(f'"{part}" is not found in TF_CONFIG.')
    task = settings["task"]
    return tf.train.Server(settings["cluster"], task["type"], int(task["index"]),
                           settings.get("rpc_layer", "grpc"), session_config)


class TPUClusterResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """TensorFlow's; for the name "" it is one of this machine, as a script asks for where it trains without a TPU."""

    def __new__(cls, tpu: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Returns a resolver without a cluster for "", which TensorFlow refuses today."""
        if tpu in ("", b""):
            return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}), master="")
        return super().__new__(cls)


def max_bytes_in_use() -> tf.Tensor:
    """`MaxBytesInUse`: the most bytes that the first GPU of this process had in use, int64 []; 0 without a GPU."""
    return _gpu_bytes("peak")


def bytes_in_use() -> tf.Tensor:
    """`BytesInUse`: the bytes that the first GPU of this process has in use, int64 []; 0 without a GPU."""
    return _gpu_bytes("current")


def _gpu_bytes(kind: str) -> tf.Tensor:
    def read() -> np.int64:
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        return np.int64(tf.config.experimental.get_memory_info("GPU:0")[kind] if has_gpu else 0)
    found = tf.py_func(read, [], tf.int64)
    found.set_shape([])
    return found
