"""A model of `tf.layers`, without a name of its own for any of them."""

import tensorflow.compat.v1 as tf

import ps_train


def model_fn(features, labels, mode, params):
    """Two dense layers with dropout between."""
    hidden = tf.layers.dense(features, 8, activation=tf.nn.relu)
    hidden = tf.layers.dropout(hidden, 0.1, training=mode == ps_train.TRAIN)
    predictions = tf.squeeze(tf.layers.dense(hidden, 1), 1)
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions,
                              eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})
