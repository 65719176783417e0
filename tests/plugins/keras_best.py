"""A Keras model whose callback sets other weights when training is over, with a metric of two values."""

import tensorflow as tf
import tf_keras


class Both(tf_keras.metrics.Mean):
    """Is [1, 2]."""

    def update_state(self, labels, logits, sample_weight=None):
        return super().update_state(tf.ones([1]))

    def result(self):
        return super().result() * [1.0, 2.0]


class Zeros(tf_keras.callbacks.Callback):
    """As EarlyStopping(restore_best_weights=True), which sets the best weights at the end."""

    def on_train_end(self, logs=None):
        self.model.set_weights([0 * weight for weight in self.model.get_weights()])


def make_callbacks(params):
    """For Model.fit."""
    return [Zeros()]


def build_model(params):
    """Logistic regression."""
    model = tf_keras.Sequential([tf_keras.layers.Input((784,)), tf_keras.layers.Dense(10)])
    model.compile(tf_keras.optimizers.Adam(params["learning_rate"]),
                  tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), [Both(name="both")])
    return model
