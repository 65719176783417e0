"""Metrics of a binary model, as sums that can be added over the shares of a held-out set: AUC, AUC by group, log loss,
calibration.

    labels, logits [batch] --> counts of positives and of negatives in each bin of the logit --> AUC
    with groups [batch]    --> the same counts for each slot, and which slots have one group --> AUC by group
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
_HASHES = 2**52  # of groups: a float64 has them exactly
_MOST_VARIANCE = 1e-8  # of the hashes, as parts of 1, in a slot with one group: rounding makes less of 10^7 examples

Metric = tuple[tf.Tensor, tf.Operation]


def binary_metrics(
    labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor | None = None
) -> dict[str, Metric]:
    """Returns the `eval_metric_ops` of a binary model: "auc", "log_loss" and "calibration".

    Args:
      labels: [batch], 1 for a positive example and 0 for a negative one.
      logits: float32 [batch], log(p / (1 - p)) of the predicted probability p.
      weights: [batch], how many examples each one counts as, from 0; None for 1.
    """
    labels, logits = tf.cast(labels, tf.float64), tf.stop_gradient(logits)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits, tf.float64))
    probabilities = tf.sigmoid(tf.cast(logits, tf.float64))
    counted = tf.ones_like(labels) if weights is None else tf.cast(weights, tf.float64)
    return {
        "auc": auc(labels, logits, weights),
        "log_loss": _ratio("log_loss", counted * losses, counted),
        "calibration": _ratio("calibration", counted * probabilities, counted * labels),
    }


def auc(labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor | None = None) -> Metric:
    """Returns the area under the ROC curve: how often a positive example has a higher logit than a negative one.

    Two examples in one bin count as a tie, a half. The value is NaN until both classes were seen.

    Args:
      labels: [batch], 0 or 1.
      logits: float32 [batch].
      weights: as in `binary_metrics`.
    """
    with tf.variable_scope("auc"):
        negatives, positives, update_op = _counts(labels, bin_of(logits), NUM_BINS, weights)
        value = _wins(negatives, positives) / (tf.reduce_sum(positives) * tf.reduce_sum(negatives))
    return value, update_op


def group_auc(
    labels: tf.Tensor, logits: tf.Tensor, groups: tf.Tensor, *, weights: tf.Tensor | None = None,
    num_groups: int = 4096, num_bins: int = 256,
) -> Metric:
    """Returns the AUC by group (GAUC, Zhu et al. 2017, arxiv.org/abs/1703.02091): the mean of the AUC of each group, as
    a user or a session, weighted by its examples. Groups without a positive or without a negative example do not count.

    Logits within one bin count as a tie. It takes 16 * num_groups * num_bins bytes.

    Args:
      labels: [batch], 0 or 1.
      logits: float32 [batch].
      groups: integers or strings [batch]. A group has the slot of its number, or of a hash of its text, modulo
        `num_groups`. Groups that share a slot do not count: an AUC over the examples of several would be another
        number. So with as many groups as slots a third of them count, and with ten times as many none: the value is
        NaN then. Give several times as many slots as there are groups.
      weights: as in `binary_metrics`.
      num_groups: the slots.
      num_bins: of the logits; a bin is 8.3 / num_bins wide at a logit of 0, and the |logit|-fold of that further away.
    """
    slots, hashes = _slots_and_hashes(groups, num_groups)
    with tf.variable_scope("group_auc"):
        bins = slots * num_bins + bin_of(tf.stop_gradient(logits), num_bins, resolution=1.0)
        negatives, positives, count_op = _counts(labels, bins, num_groups * num_bins, weights)
        has_one_group, moments_op = _slots_with_one_group(slots, hashes, num_groups)
        negatives, positives = (tf.reshape(counts, [num_groups, num_bins]) for counts in (negatives, positives))
        num_pairs = tf.reduce_sum(positives, 1) * tf.reduce_sum(negatives, 1)
        is_counted = (num_pairs > 0) & has_one_group
        sizes = tf.where(is_counted, tf.reduce_sum(positives + negatives, 1), tf.zeros_like(num_pairs))
        aucs = tf.math.divide_no_nan(_wins(negatives, positives), num_pairs)
        value = tf.reduce_sum(sizes * aucs) / tf.reduce_sum(sizes)
    return value, tf.group(count_op, moments_op)


def _slots_and_hashes(groups: tf.Tensor, num_slots: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the slot of each group, int64 [batch], and a hash by which to tell groups apart, float64 in [0, 1)."""
    texts = groups if groups.dtype == tf.string else tf.as_string(groups)
    slots = tf.strings.to_hash_bucket_fast(groups, num_slots) if groups.dtype == tf.string else tf.floormod(
        tf.cast(groups, tf.int64), num_slots)
    # Another hash than that of the slot, which the groups of a slot have in common.
    hashes = tf.strings.to_hash_bucket_strong(texts, _HASHES, key=[1, 2])
    return slots, tf.cast(hashes, tf.float64) / _HASHES


def _slots_with_one_group(slots: tf.Tensor, hashes: tf.Tensor, num_slots: int) -> tuple[tf.Tensor, tf.Operation]:
    """Returns which slots have examples of no more than one group, bool [num_slots], and what counts a batch."""
    moments = _sums("moments", [3 * num_slots], tf.float64)
    added = [tf.ones_like(hashes), hashes, tf.square(hashes)]
    places = [slots + number * num_slots for number in range(len(added))]
    update_op = moments.scatter_add(tf.IndexedSlices(tf.concat(added, 0), tf.concat(places, 0)))
    counts, totals, squares = tf.split(moments.read_value(), len(added))
    # The variance of the hashes, times the square of the count: 0 if all are one number.
    return counts * squares - tf.square(totals) <= _MOST_VARIANCE * tf.square(counts), _operation(update_op)


def _counts(
    labels: tf.Tensor, slots: tf.Tensor, num_slots: int, weights: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Operation]:
    """Returns the counts of negatives and of positives in each slot, float64 [num_slots], and what counts a batch."""
    counts = _sums("counts", [2 * num_slots], tf.int64 if weights is None else tf.float64)
    slots = slots + num_slots * tf.cast(tf.cast(labels, tf.float64) > 0.5, tf.int64)
    ones = tf.ones_like(slots) if weights is None else tf.cast(weights, tf.float64)
    update_op = counts.scatter_add(tf.IndexedSlices(ones, slots))
    negatives, positives = tf.split(tf.cast(counts.read_value(), tf.float64), 2)
    return negatives, positives, _operation(update_op)


def _wins(negatives: tf.Tensor, positives: tf.Tensor) -> tf.Tensor:
    """Returns how many pairs of a positive and a negative are in the right order, for counts [..., bins]; [...]."""
    below = tf.cumsum(negatives, axis=-1, exclusive=True)
    return tf.reduce_sum(positives * (below + negatives / 2), -1)


def bin_of(logits: tf.Tensor, num_bins: int = NUM_BINS, resolution: float = _RESOLUTION) -> tf.Tensor:
    """Returns the bin of each logit, int64 in [0, num_bins), in the order of the logits.

    Args:
      resolution: bins have one width for logits up to 1 / resolution, and become wider beyond.
    """
    limit = math.asinh(_LIMIT * resolution)
    scaled = tf.asinh(tf.clip_by_value(logits, -_LIMIT, _LIMIT) * resolution) / limit  # in [-1, 1]
    return tf.clip_by_value(tf.cast((scaled + 1) * (num_bins / 2), tf.int64), 0, num_bins - 1)


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
