"""The metrics of `tf.contrib.learn`'s heads, by the names that they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import weights_broadcast_ops  # it has no public name

from ps_train.parts.legacy.names.learn_metrics import PredictionKey


def of_two_classes(logistic: tf.Tensor, labels: tf.Tensor, weights: Any, thresholds: Sequence[float]) -> dict:
    """Returns the metrics of probabilities [batch, 1] of the second class."""
    label_mean = _mean(labels, weights)
    found = {"labels/prediction_mean": _mean(logistic, weights), "labels/actual_label_mean": label_mean,
             "accuracy/baseline_label_mean": label_mean, **areas(logistic, labels, weights)}
    for threshold in thresholds:
        is_second = tf.cast(logistic >= threshold, tf.float32)
        found[f"accuracy/threshold_{threshold:f}_mean"] = tf.metrics.accuracy(labels, is_second, weights)
        for name, metric_fn in (("precision", tf.metrics.precision_at_thresholds),
                                ("recall", tf.metrics.recall_at_thresholds)):
            value, update_op = metric_fn(labels, logistic, [threshold], weights)
            found[f"{name}/positive_threshold_{threshold:f}_mean"] = tf.squeeze(value), tf.squeeze(update_op)
    return found


def areas(probabilities: tf.Tensor, labels: tf.Tensor, weights: Any, class_id: int | None = None) -> dict:
    """Returns the areas under the curves of ROC, and of precision and recall; of one class or of all."""
    labels = tf.cast(labels, tf.bool)
    if weights is not None:
        weights = weights_broadcast_ops.broadcast_weights(weights, probabilities)
    end = ""
    if class_id is not None:
        end = f"/class{class_id}"
        probabilities, labels = probabilities[:, class_id], labels[:, class_id]
        weights = None if weights is None else weights[:, class_id]
    return {name + end: tf.metrics.auc(labels, probabilities, weights, curve=curve)
            for name, curve in (("auc", "ROC"), ("auc_precision_recall", "PR"))}


def of_class(predictions: dict, labels: tf.Tensor, weights: Any, class_id: int) -> dict:
    """Returns the metrics of one of several classes."""
    return {
        f"labels/prediction_mean/class{class_id}": _share(predictions[PredictionKey.CLASSES], weights, class_id),
        f"labels/actual_label_mean/class{class_id}": _share(labels, weights, class_id),
        f"labels/probability_mean/class{class_id}": _mean(predictions[PredictionKey.PROBABILITIES], weights, class_id),
        f"labels/logits_mean/class{class_id}": _mean(predictions[PredictionKey.LOGITS], weights, class_id)}


def of_label(predictions: dict, labels: tf.Tensor, weights: Any, class_id: int) -> dict:
    """Returns the metrics of one class, where an example may have any."""
    probabilities = predictions[PredictionKey.PROBABILITIES]
    return {
        f"labels/prediction_mean/class{class_id}": _mean(predictions[PredictionKey.CLASSES], weights, class_id),
        f"labels/actual_label_mean/class{class_id}": _mean(labels, weights, class_id),
        f"labels/probability_mean/class{class_id}": _mean(probabilities, weights, class_id),
        f"labels/logits_mean/class{class_id}": _mean(predictions[PredictionKey.LOGITS], weights, class_id),
        **areas(probabilities, labels, weights, class_id)}


def _mean(values: tf.Tensor, weights: Any, class_id: int | None = None) -> tuple:
    values = tf.cast(values, tf.float32)
    if weights is not None:
        weights = weights_broadcast_ops.broadcast_weights(weights, values)
    if class_id is not None:
        values, weights = values[:, class_id], None if weights is None else weights[:, class_id]
    return tf.metrics.mean(values, weights)


def _share(ids: tf.Tensor, weights: Any, class_id: int) -> tuple:
    """Returns the share of the examples of which an id is the class's."""
    return tf.metrics.mean(tf.cast(tf.equal(tf.cast(ids, tf.int32), class_id), tf.float32), weights)


def of_probabilities(probabilities: tf.Tensor, labels: tf.Tensor, thresholds: Sequence[float]) -> dict:
    """Returns the metrics of LogisticRegressor: probabilities of the second class, of the shape of the labels."""
    label_mean = tf.metrics.mean(labels)
    found = {"labels/prediction_mean": tf.metrics.mean(probabilities), "labels/actual_label_mean": label_mean,
             "accuracy/baseline_label_mean": label_mean, "auc": tf.metrics.auc(labels, probabilities)}
    for threshold in thresholds:
        is_second = tf.cast(probabilities >= threshold, tf.float32)
        found.update({
            f"accuracy/threshold_{threshold:f}_mean": tf.metrics.accuracy(labels, is_second),
            f"precision/positive_threshold_{threshold:f}_mean": tf.metrics.precision(labels, is_second),
            f"recall/positive_threshold_{threshold:f}_mean": tf.metrics.recall(labels, is_second)})
    return found
