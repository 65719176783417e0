"""Code shared by the reference models: layers, and loss, predictions and metrics from logits."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import ModelSpec


def spec_from_logits(logits: tf.Tensor, labels: tf.Tensor | None) -> ModelSpec:
    """Returns the ModelSpec of a classifier, with cross entropy as its loss and accuracy as its metric.

    Args:
      logits: float [batch, classes].
      labels: int [batch], or None for prediction only.
    """
    classes = tf.argmax(logits, axis=1, output_type=tf.int32)
    predictions = {"classes": classes, "probabilities": tf.nn.softmax(logits)}
    if labels is None:
        return ModelSpec(predictions=predictions)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    hits = tf.equal(classes, tf.cast(labels, classes.dtype))  # labels are int64 where numpy makes them
    tf.summary.scalar("accuracy", tf.reduce_mean(tf.cast(hits, tf.float32)))
    return ModelSpec(
        loss=loss,
        predictions=predictions,
        eval_metric_ops={"accuracy": tf.metrics.accuracy(labels, classes)},
        loss_name="cross entropy",
    )


def he_stddev(fan_in: int) -> float:
    """Returns sqrt(2 / fan_in), which keeps the variance of ReLU layers (He et al. 2015, arxiv.org/abs/1502.01852)."""
    return (2.0 / fan_in) ** 0.5


def dense(inputs: tf.Tensor, units: int, name: str, stddev: float) -> tf.Tensor:
    """Returns inputs @ weights + biases.

    Args:
      inputs: float [batch, features], features known.
      units: width of the result.
      name: scope of the variables `weights` [features, units] and `biases` [units].
      stddev: standard deviation of the truncated normal for the initial weights.
    """
    with tf.variable_scope(name):
        initializer = tf.truncated_normal_initializer(stddev=stddev)
        weights = tf.get_variable("weights", [int(inputs.shape[1]), units], tf.float32, initializer)
        biases = tf.get_variable("biases", [units], tf.float32, tf.zeros_initializer())
        return tf.nn.xw_plus_b(inputs, weights, biases)


def hidden_layer(inputs: tf.Tensor, units: int) -> tf.Tensor:
    """Returns float [batch, units], a ReLU layer in the scope `hidden`."""
    return tf.nn.relu(dense(inputs, units, "hidden", he_stddev(int(inputs.shape[1]))))


def output_layer(inputs: tf.Tensor, num_classes: int = 10) -> tf.Tensor:
    """Returns logits, float [batch, num_classes], of a linear layer in the scope `softmax`."""
    return dense(inputs, num_classes, "softmax", int(inputs.shape[1]) ** -0.5)
