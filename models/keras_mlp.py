"""A multi-layer perceptron for `ps_train keras`: 784 - 256 - 256 - 10 with ReLU.

With `--params=hidden_layers=1` and `--hidden_units=100` it is the network of models.mlp.
"""

from __future__ import annotations

import tf_keras

DEFAULT_PARAMS = {"hidden_layers": 2}


def build_model(params) -> tf_keras.Model:
    """Returns the compiled model: float [batch, 784] to logits [batch, 10].

    Params: `hidden_layers`, each with `hidden_units`; `learning_rate` for Adam; `steps_per_execution`.
    """
    hidden = [tf_keras.layers.Dense(params["hidden_units"], "relu", kernel_initializer="he_normal",
                                    name="hidden" if index == 0 else f"hidden_{index + 1}")
              for index in range(params["hidden_layers"])]
    model = tf_keras.Sequential([tf_keras.layers.Input((784,)), *hidden, tf_keras.layers.Dense(10, name="softmax")])
    compile_classifier(model, params)
    return model


def compile_classifier(model: tf_keras.Model, params) -> None:
    """Compiles a model that returns logits: Adam, cross entropy, accuracy."""
    model.compile(
        optimizer=tf_keras.optimizers.Adam(params["learning_rate"]),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="cross_entropy"),
        metrics=["accuracy"],
        steps_per_execution=params["steps_per_execution"],
    )
