"""Metrics of a binary model, as sums that can be added over the shares of a held-out set: AUC, log loss, calibration.

    labels, logits [batch] --> counts of positives and of negatives in each bin of the logit --> AUC
                           --> sums of losses, probabilities and labels                      --> log loss, calibration

The value of a metric depends on its sums only, so several workers can evaluate a part each (--evaluate_with=workers).
"""

from __future__ import annotations

import math

import tensorflow.compat.v1 as tf

NUM_BINS = 2**16

# A bin is about 3e-7 wide at a logit of 0, where those of a model that has just begun lie, and 0.03 % of the logit
# further away. Logits beyond the limit share the outermost bins.
_LIMIT = 32.0
_RESOLUTION = 1000.0
_MAX_SCALED = math.asinh(_LIMIT * _RESOLUTION)

Metric = tuple[tf.Tensor, tf.Operation]


def binary_metrics(labels: tf.Tensor, logits: tf.Tensor) -> dict[str, Metric]:
    """Returns the `eval_metric_ops` of a binary model: "auc", "log_loss" and "calibration".

    Args:
      labels: [batch], 1 for a positive example and 0 for a negative one.
      logits: float32 [batch], log(p / (1 - p)) of the predicted probability p.
    """
    labels, logits = tf.cast(labels, tf.float64), tf.stop_gradient(logits)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits, tf.float64))
    probabilities = tf.sigmoid(tf.cast(logits, tf.float64))
    return {
        "auc": auc(labels, logits),
        "log_loss": _ratio("log_loss", losses, tf.ones_like(labels)),
        "calibration": _ratio("calibration", probabilities, labels),
    }


def auc(labels: tf.Tensor, logits: tf.Tensor) -> Metric:
    """Returns the area under the ROC curve: how often a positive example has a higher logit than a negative one.

    Two examples in one bin count as a tie, a half. The value is NaN until both classes were seen.

    Args:
      labels: [batch], 0 or 1.
      logits: float32 [batch].
    """
    with tf.variable_scope("auc"):
        counts = _sums("counts", [2 * NUM_BINS], tf.int64)  # of negatives in each bin, then of positives
        slots = bin_of(logits) + NUM_BINS * tf.cast(labels > 0.5, tf.int64)
        update_op = counts.scatter_add(tf.IndexedSlices(tf.ones_like(slots), slots))
        negatives, positives = tf.split(tf.cast(counts.read_value(), tf.float64), 2)
        below = tf.cumsum(negatives, exclusive=True)
        wins = tf.reduce_sum(positives * (below + negatives / 2))
        value = wins / (tf.reduce_sum(positives) * tf.reduce_sum(negatives))
    return value, _operation(update_op)


def bin_of(logits: tf.Tensor) -> tf.Tensor:
    """Returns the bin of each logit, int64 in [0, NUM_BINS), in the order of the logits."""
    scaled = tf.asinh(tf.clip_by_value(logits, -_LIMIT, _LIMIT) * _RESOLUTION) / _MAX_SCALED  # in [-1, 1]
    return tf.clip_by_value(tf.cast((scaled + 1) * (NUM_BINS / 2), tf.int64), 0, NUM_BINS - 1)


def _ratio(name: str, numerators: tf.Tensor, denominators: tf.Tensor) -> Metric:
    """Returns the sum of `numerators` over that of `denominators`, both float64 [batch]; NaN or infinite over 0."""
    with tf.variable_scope(name):
        sums = _sums("sums", [2], tf.float64)
        update_op = sums.assign_add(tf.stack([tf.reduce_sum(numerators), tf.reduce_sum(denominators)]))
        numerator, denominator = tf.unstack(sums.read_value())
        return numerator / denominator, _operation(update_op)


def _sums(name: str, shape: list[int], dtype: tf.DType) -> tf.Variable:
    """Returns a variable of this process that begins at zero."""
    # Not tf.get_variable, which refuses a second one of the same name: local steps build a model twice in a graph.
    return tf.Variable(
        lambda: tf.zeros(shape, dtype), trainable=False, use_resource=True, name=name,
        collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])


def _operation(update: tf.Tensor) -> tf.Operation:
    # A session that fetches the tensor would read the whole variable after each batch.
    return update.op if hasattr(update, "op") else update
