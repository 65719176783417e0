"""The MLP and its step for the peers that train with TensorFlow 2 functions."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.harness import examples


class Mlp:
    """784 - 100 - 10, which begins as models.mlp does; its variables are made in the strategy's scope."""

    def __init__(self, learning_rate: float) -> None:
        hidden = tf.random.truncated_normal([784, 100], stddev=(2 / 784) ** 0.5)
        softmax = tf.random.truncated_normal([100, 10], stddev=100 ** -0.5)
        self.parameters = {
            "hidden/weights": tf.Variable(hidden), "hidden/biases": tf.Variable(tf.zeros([100])),
            "softmax/weights": tf.Variable(softmax), "softmax/biases": tf.Variable(tf.zeros([10]))}
        self._optimizer = tf.compat.v1.train.AdamOptimizer(learning_rate)

    def step(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        """Applies the gradient of one mini-batch of this replica, as the strategy at hand has it."""
        hidden_weights, hidden_biases, softmax_weights, softmax_biases = self.parameters.values()
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.matmul(images, hidden_weights) + hidden_biases)
            logits = tf.matmul(hidden, softmax_weights) + softmax_biases
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = list(self.parameters.values())
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def copy_parameters(self) -> dict:
        """Returns name -> array."""
        return {name: variable.numpy() for name, variable in self.parameters.items()}


def batches(data_dir: str, shard: tuple[int, int], batch_size: int, seed: int | None) -> tf.data.Dataset:
    """Returns shuffled mini-batches of a worker's share for ever: row numbers are shuffled, then rows are gathered."""
    images, labels = examples.load(data_dir).train.shard(*shard)
    count = len(labels)
    images, labels = tf.constant(images), tf.constant(labels)

    def cut(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.gather(images, rows), tf.float32) / 255.0, tf.gather(labels, rows)

    rows = tf.data.Dataset.range(count).shuffle(count, seed=seed).repeat().batch(batch_size, drop_remainder=True)
    return rows.map(cut).prefetch(2)
