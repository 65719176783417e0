"""models.keras_mlp with a custom training step instead of Model.fit, as in TensorFlow's guide to custom loops."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from .keras_mlp import DEFAULT_PARAMS, build_model  # noqa: F401 (part of this plug-in)


def train_step(model: tf_keras.Model, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Applies one update for a replica's part of a global batch, and returns its part of the mean loss."""
    with tf.GradientTape() as tape:
        logits = model(features, training=True)
        losses = tf_keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        loss = tf.nn.compute_average_loss(losses)  # summed over all replicas, this is the mean of the global batch
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
