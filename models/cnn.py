"""Two convolutions with pooling and two dense layers, for 28x28 images."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import TRAIN, KerasTwin, ModelSpec

from . import classifier

DEFAULT_PARAMS = {"filters": 16, "dense_units": 128, "dropout": 0.2}
KERAS_TWIN = KerasTwin("models.keras_cnn", params={}, weights={
    "conv1/kernel": "conv1/kernel", "conv1/biases": "conv1/bias",
    "conv2/kernel": "conv2/kernel", "conv2/biases": "conv2/bias",
    "hidden/weights": "hidden/kernel", "hidden/biases": "hidden/bias",
    "softmax/weights": "softmax/kernel", "softmax/biases": "softmax/bias"})


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Classifies float [batch, 784] into 10 classes.

    Params: `filters` in the first 5x5 convolution, the second has twice as many; `dense_units` in the hidden dense
    layer; `dropout`, the fraction of its activations dropped in training.
    """
    images = tf.reshape(features, [-1, 28, 28, 1])
    maps = _convolution(images, params["filters"], "conv1")
    maps = _convolution(maps, 2 * params["filters"], "conv2")
    flat = tf.reshape(maps, [-1, 7 * 7 * 2 * params["filters"]])
    hidden = classifier.hidden_layer(flat, params["dense_units"])
    if mode == TRAIN:
        hidden = tf.nn.dropout(hidden, rate=params["dropout"])
    return classifier.spec_from_logits(classifier.output_layer(hidden), labels)


def _convolution(images: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """Returns max-pooled ReLU maps [batch, height/2, width/2, filters] of a 5x5 convolution."""
    channels = int(images.shape[3])
    with tf.variable_scope(name):
        initializer = tf.truncated_normal_initializer(stddev=classifier.he_stddev(25 * channels))
        kernel = tf.get_variable("kernel", [5, 5, channels, filters], tf.float32, initializer)
        biases = tf.get_variable("biases", [filters], tf.float32, tf.zeros_initializer())
        maps = tf.nn.conv2d(images, kernel, strides=1, padding="SAME")
        return tf.nn.max_pool2d(tf.nn.relu(maps + biases), ksize=2, strides=2, padding="SAME")
