"""A Keras model of the linear function of tiny.py, as a user might write it outside the repository."""

import tf_keras
from tiny import DEFAULT_PARAMS, input_fn  # noqa: F401 (this module is the dataset as well)


def build_model(params):
    """Linear regression."""
    model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1), tf_keras.layers.Flatten()])
    model.compile(tf_keras.optimizers.Adam(params["learning_rate"]), "mean_squared_error", ["mean_absolute_error"],
                  steps_per_execution=params["steps_per_execution"])
    return model
