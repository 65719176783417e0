"""A Keras model with variables that tf.distribute reduces over the workers when they are read."""

import tensorflow as tf
import tf_keras
from tiny import DEFAULT_PARAMS, input_fn  # noqa: F401 (this module is the dataset as well)


class Counter(tf_keras.layers.Layer):
    """Counts examples: `seen` over all replicas, `own` on the first one; the metric has its mean of the inputs."""

    def build(self, input_shape):
        for name, aggregation in (("seen", tf.VariableAggregation.SUM),
                                  ("own", tf.VariableAggregation.ONLY_FIRST_REPLICA)):
            setattr(self, name, self.add_weight(
                name, (), tf.float32, "zeros", trainable=False, synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=aggregation))
        self.mean = tf_keras.metrics.Mean("inputs")

    def call(self, inputs, training=False):
        if training:
            size = tf.cast(tf.shape(inputs)[0], tf.float32)
            self.seen.assign_add(size)
            self.own.assign_add(size)
            self.mean.update_state(inputs)
        return inputs


class Model(tf_keras.Sequential):
    """Returns a number of its own from each replica."""

    def train_step(self, data):
        return {**super().train_step(data), "own": tf.reduce_mean(data[0])}


def build_model(params):
    """Linear regression of normalised features."""
    model = Model([
        tf_keras.layers.Input((4,)), tf_keras.layers.BatchNormalization(momentum=0.9), Counter(),
        tf_keras.layers.Dense(1), tf_keras.layers.Flatten()])
    model.compile(tf_keras.optimizers.Adam(params["learning_rate"]), "mean_squared_error", ["mean_absolute_error"])
    return model


class Show(tf_keras.callbacks.Callback):
    """Prints the values on this worker's first device with which training begins, and what each epoch ends with."""

    def on_train_begin(self, logs=None):
        for variable in self.model.weights:
            values = self.model.distribute_strategy.experimental_local_results(variable)[0].numpy()
            print("at the start:", variable.name, values.ravel().tolist(), flush=True)

    def on_epoch_end(self, epoch, logs=None):
        print("at the end:", epoch, sorted(logs.items()), flush=True)


def make_callbacks(params):
    """Shows the start and the epochs."""
    return [Show()]
