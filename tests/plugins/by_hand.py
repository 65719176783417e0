"""A model that places everything by hand, as the TensorFlow 1 tutorials do."""

import tensorflow.compat.v1 as tf

import ps_train


def model_fn(features, labels, mode, params):
    """Linear regression in two layers."""
    with tf.device("/job:ps/task:0"):
        hidden = tf.get_variable("hidden", [4, 8])
    with tf.device("/job:ps/task:1"):
        weights = tf.get_variable("weights", [8])
    with tf.device("/job:worker/task:0/gpu:0"):
        predictions = tf.linalg.matvec(tf.matmul(features, hidden), weights)
    with tf.device("/job:ps/task:0"):
        loss = tf.reduce_mean(tf.square(predictions - labels))
    return ps_train.ModelSpec(loss=loss, predictions=predictions,
                              eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})
