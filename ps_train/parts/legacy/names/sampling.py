"""`tf.contrib.training`: examples that are chosen by chance, so that a batch has the classes in other proportions.

    rejection_sample     each example is taken with a probability of its own
    stratified_sample    that probability makes the classes' shares of a batch those that are wanted
    resample_at_rate     each example of a batch is repeated, or left out
    weighted_resample    that by weights
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.training import moving_averages  # no public name for the unbiased average

_PRIOR_COUNT = 10  # of each class, before any example was seen
_SUM_TOLERANCE = 1e-3


def rejection_sample(
    tensors: Sequence[Any], accept_prob_fn: Callable[[list], Any], batch_size: int, queue_threads: int = 1,
    enqueue_many: bool = False, prebatch_capacity: int = 16, prebatch_threads: int = 1, runtime_checks: bool = False,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Returns batches of the examples that are accepted.

    Args:
      tensors: of one example, or [n, ...] of n if `enqueue_many`.
      accept_prob_fn: makes the probability, float [], of the tensors of one example.
      batch_size: of the result.
      queue_threads: that fill its queue.
      enqueue_many: see `tensors`.
      prebatch_capacity: of the queue that takes many examples apart.
      prebatch_threads: that fill this one.
      runtime_checks: whether a step fails if the probability is not between 0 and 1.
      name: of the operations.

    Raises:
      ValueError: the tensors of many examples differ in the first axis.
    """
    with tf.name_scope(name, "rejection_sample", tensors):
        example = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if enqueue_many:
            _check_same_length(example)
            example = _one_by_one(example, prebatch_capacity, prebatch_threads)
        probability = accept_prob_fn(example)
        if runtime_checks:
            with tf.control_dependencies([tf.assert_less_equal(0.0, probability),
                                          tf.assert_less_equal(probability, 1.0)]):
                probability = tf.identity(probability, name="prob_with_checks")
        return _taken(example, probability, batch_size, queue_threads)


def stratified_sample(
    tensors: Sequence[Any], labels: Any, target_probs: Any, batch_size: int, init_probs: Any = None,
    enqueue_many: bool = False, queue_capacity: int = 16, threads_per_queue: int = 1, name: str | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns batches of tensors, and of labels, in which the classes have the wanted shares; examples are left out.

    Args:
      tensors: of one example, or [n, ...] of n if `enqueue_many`.
      labels: the class, int [], or int [n].
      target_probs: the wanted share of each class, float [classes].
      batch_size: of the result.
      init_probs: the shares in the data; they are counted if there are none.
      enqueue_many: see `tensors`.
      queue_capacity: of the queue that takes many examples apart.
      threads_per_queue: that fill this and the last queue.
      name: of the operations.

    Raises:
      ValueError: shares do not add up to 1, or the shapes of tensors and labels do not fit.
    """
    with tf.name_scope(name, "stratified_sample", [*tensors, labels]):
        examples, labels = [tf.convert_to_tensor(tensor) for tensor in tensors], tf.convert_to_tensor(labels)
        if not enqueue_many:
            examples, labels = [tensor[tf.newaxis] for tensor in examples], labels[tf.newaxis]
        labels.shape.assert_has_rank(1)
        _check_same_length([*examples, labels])
        wanted = _shares(target_probs)
        present = _counted(labels, wanted.shape.num_elements()) if init_probs is None else _shares(init_probs)
        wanted.shape.assert_is_compatible_with(present.shape)
        in_range = tf.assert_less(labels, tf.cast(tf.size(wanted), labels.dtype), message="labels are below classes")
        is_possible = tf.Assert(tf.reduce_all((present > 0) | tf.equal(wanted, 0)), [
            "All classes with zero initial probability must also have zero target probability", present, wanted])
        with tf.control_dependencies([tf.assert_non_negative(labels), in_range, is_possible]):
            ratios = tf.where(present > 0, wanted / tf.where(present > 0, present, tf.ones_like(present)),
                              tf.zeros_like(present))
        *example, label = _one_by_one([*examples, labels], queue_capacity, threads_per_queue)
        probability = tf.gather(ratios / tf.reduce_max(ratios), label)
        *batch, batch_labels = _taken([*example, label], probability, batch_size, threads_per_queue)
        return batch, batch_labels


def _check_same_length(tensors: Sequence[tf.Tensor]) -> None:
    for tensor in tensors:
        tensor.shape.with_rank_at_least(1)[0].assert_is_compatible_with(tensors[0].shape[0])


def _one_by_one(tensors: Sequence[tf.Tensor], capacity: int, num_threads: int) -> list[tf.Tensor]:
    batch = tf.train.batch(tensors, 1, num_threads, capacity, enqueue_many=True)
    return [tf.squeeze(tensor, [0]) for tensor in (batch if isinstance(batch, list) else [batch])]


def _taken(example: list[tf.Tensor], probability: Any, batch_size: int, num_threads: int) -> list[tf.Tensor]:
    batch = tf.train.maybe_batch(example, tf.random_uniform([]) < probability, batch_size, num_threads)
    return batch if isinstance(batch, list) else [batch]


def _shares(values: Any) -> tf.Tensor:
    """Returns float32 [classes], which must add up to 1."""
    shares = tf.convert_to_tensor(values, tf.float32)
    shares.shape.assert_has_rank(1)
    known = tf.get_static_value(shares)
    if known is not None and abs(np.sum(known) - 1) > _SUM_TOLERANCE:
        raise ValueError(f"stratified_sample: got shares {known.tolist()}; allowed: those that add up to 1")
    near = tf.assert_near(tf.reduce_sum(shares), 1.0, atol=_SUM_TOLERANCE, message="shares add up to 1")
    with tf.control_dependencies([near] if known is None else []):
        return tf.identity(shares)


def _counted(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns the shares of the classes in the labels that were seen until now."""
    seen = tf.Variable([_PRIOR_COUNT] * num_classes, trainable=False, name="class_count", dtype=tf.int64)
    counts = tf.identity(seen.assign_add(tf.reduce_sum(tf.one_hot(labels, num_classes, dtype=tf.int64), 0)))
    return tf.cast(counts / tf.reduce_sum(counts), tf.float32)


def resample_at_rate(inputs: Sequence[Any], rates: Any, scope: str | None = None, seed: int | None = None,
                     back_prop: bool = False) -> list[tf.Tensor]:
    """Returns tensors [n, ...] in which each row stands as often as chance wants it, on average its rate.

    Args:
      inputs: tensors [n, ...].
      rates: float [n].
      scope: of the operations.
      seed: of the Poisson distribution.
      back_prop: whether gradients go to the inputs.
    """
    with tf.name_scope(scope, "resample_at_rate", [*inputs]):
        counts = tf.random.poisson(tf.convert_to_tensor(rates), [], tf.int32, seed)
        rows = tf.repeat(tf.range(tf.size(counts)), counts)
        taken = [tf.gather(tensor, rows) for tensor in inputs]
        return taken if back_prop else [tf.stop_gradient(tensor) for tensor in taken]


def weighted_resample(
    inputs: Sequence[Any], weights: Any, overall_rate: Any, scope: str | None = None, mean_decay: float = 0.999,
    seed: int | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns resampled tensors, see `resample_at_rate`, and the rate of each of their rows.

    Args:
      inputs: tensors [n, ...].
      weights: float [n]; a row's rate is its weight over the mean weight until now, times `overall_rate`.
      overall_rate: how many rows come of one, on average.
      scope: of the operations.
      mean_decay: of the mean weight in each step.
      seed: of chance.
    """
    weights = tf.convert_to_tensor(weights)
    with tf.variable_scope(scope, "weighted_resample"):
        mean = tf.get_local_variable("estimated_mean", initializer=tf.zeros([], weights.dtype), dtype=weights.dtype)
        mean = moving_averages.assign_moving_average(mean, tf.reduce_mean(weights), mean_decay)
        rates = weights * overall_rate / mean
        taken_rates, *taken = resample_at_rate([rates, *inputs], rates, seed=seed)
        return taken, taken_rates
