"""tf.contrib.metrics: values after one and after two updates."""

from __future__ import annotations

import tensorflow as tf
from shared import floats, ids, shares

M = tf.contrib.metrics


def truth():
    return tf.constant([1, 0, 1, 1, 0, 1])


def guess():
    return tf.constant([1, 1, 0, 1, 0, 1])


def metric(build):
    """Returns a case of one or several pairs of a value and its update."""
    def case():
        built = build()
        pairs = [built] if isinstance(built, tuple) else built
        return [{"value": value, "update": update} for value, update in pairs], 2
    return case


CASES = {
    "accuracy": lambda: [M.accuracy(guess(), truth()), M.accuracy(guess(), truth(), tf.constant([1.0, 0, 1, 2, 1, 1])),
                         M.confusion_matrix(truth(), guess())],
    "sets": lambda: [operation(tf.constant([[1, 2], [3, 4]]), tf.constant([[2, 3], [4, 5]]))
                     for operation in (M.set_intersection, M.set_difference, M.set_union)],
    **{name: metric(build) for name, build in {
        "streaming_accuracy": lambda: M.streaming_accuracy(guess(), truth()),
        "streaming_auc": lambda: [M.streaming_auc(shares(6), truth() > 0, curve="PR"),
                                  M.streaming_auc(shares(6), truth() > 0, num_thresholds=20)],
        "precision_recall": lambda: [M.streaming_precision(guess(), truth()), M.streaming_recall(guess(), truth())],
        "counts": lambda: [M.streaming_false_positives(guess(), truth()), M.streaming_true_negatives(guess(), truth()),
                           M.streaming_false_negatives(guess(), truth()), M.streaming_true_positives(guess(), truth()),
                           M.count(floats(6))],
        "rates": lambda: [M.streaming_false_positive_rate(guess(), truth()),
                          M.streaming_false_negative_rate(guess(), truth()),
                          M.streaming_percentage_less(shares(6), 0.5)],
        "means": lambda: [M.streaming_mean(floats(6)), M.streaming_mean_tensor(floats(6))],
        "errors": lambda: [M.streaming_mean_absolute_error(shares(6), floats(6)),
                           M.streaming_mean_squared_error(shares(6), floats(6)),
                           M.streaming_root_mean_squared_error(shares(6), floats(6)),
                           M.streaming_mean_relative_error(shares(6), floats(6), floats(6)),
                           M.streaming_mean_cosine_distance(floats(3, 2), floats(3, 2), 1)],
        "mean_iou": lambda: M.streaming_mean_iou(guess(), truth(), 2),
        "covariance": lambda: [M.streaming_covariance(shares(6), floats(6)),
                               M.streaming_pearson_correlation(shares(6), floats(6) * shares(6))],
        "at_k": lambda: [M.streaming_recall_at_k(floats(6, 4), ids(4, 6), 2),
                         M.streaming_sparse_recall_at_k(floats(6, 4), ids(4, 6, 1), 2),
                         M.streaming_sparse_precision_at_k(floats(6, 4), ids(4, 6, 1), 2),
                         M.streaming_sparse_average_precision_at_k(floats(6, 4), ids(4, 6, 2), 2)],
        "at_another": lambda: [M.streaming_sensitivity_at_specificity(shares(6), truth() > 0, 0.5),
                               M.streaming_specificity_at_sensitivity(shares(6), truth() > 0, 0.5),
                               M.recall_at_precision(truth() > 0, shares(6), 0.5),
                               M.precision_at_recall(truth() > 0, shares(6), 0.5)],
        "thresholds": lambda: [M.streaming_precision_at_thresholds(shares(6), truth() > 0, [0.4, 0.6]),
                               M.streaming_recall_at_thresholds(shares(6), truth() > 0, [0.4, 0.6]),
                               M.streaming_false_positives_at_thresholds(shares(6), truth() > 0, [0.4])],
        "agreement": lambda: [M.cohen_kappa(truth(), guess(), 2), M.f1_score(truth(), shares(6))],
    }.items()},
}
