"""The model of the old MNIST tutorial: two hidden layers of ReLU and a linear one."""

from __future__ import annotations

import math

import tensorflow.compat.v1 as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def mnist_inference(images: tf.Tensor, hidden1_units: int, hidden2_units: int) -> tf.Tensor:
    """Builds the model: float32 [batch, IMAGE_PIXELS] -> logits, float32 [batch, NUM_CLASSES]."""
    hidden1 = tf.nn.relu(_linear(images, IMAGE_PIXELS, hidden1_units, "hidden1"))
    hidden2 = tf.nn.relu(_linear(hidden1, hidden1_units, hidden2_units, "hidden2"))
    return _linear(hidden2, hidden2_units, NUM_CLASSES, "softmax_linear")


def _linear(inputs: tf.Tensor, num_inputs: int, num_outputs: int, name: str) -> tf.Tensor:
    with tf.name_scope(name):
        weights = tf.Variable(
            tf.truncated_normal([num_inputs, num_outputs], stddev=1.0 / math.sqrt(num_inputs)), name="weights")
        biases = tf.Variable(tf.zeros([num_outputs]), name="biases")
        return tf.matmul(inputs, weights) + biases


def mnist_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the mean cross entropy of logits [batch, NUM_CLASSES] and integer labels [batch]."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.to_int64(labels), logits=logits)


def mnist_training(loss: tf.Tensor, learning_rate: float) -> tf.Operation:
    """Returns the op of a step of gradient descent, which counts a new variable "global_step" and has a summary."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def mnist_evaluation(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the number of examples whose largest logit is that of the label: int32 []."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
