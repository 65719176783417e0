"""The network of models.cnn for `ps_train keras`: two convolutions with pooling and two dense layers."""

from __future__ import annotations

import tf_keras

from .keras_mlp import compile_classifier

DEFAULT_PARAMS = {"filters": 16, "dense_units": 128, "dropout": 0.2}


def build_model(params) -> tf_keras.Model:
    """Returns the compiled model: float [batch, 784] to logits [batch, 10].

    Params: `filters` in the first 5x5 convolution, the second has twice as many; `dense_units` in the hidden dense
    layer; `dropout`, the fraction of its activations dropped in training; `learning_rate` for Adam;
    `steps_per_execution`.
    """
    layers = tf_keras.layers
    model = tf_keras.Sequential([
        layers.Input((784,)),
        layers.Reshape((28, 28, 1)),
        *_convolution(params["filters"], "conv1"),
        *_convolution(2 * params["filters"], "conv2"),
        layers.Flatten(),
        layers.Dense(params["dense_units"], "relu", kernel_initializer="he_normal", name="hidden"),
        layers.Dropout(params["dropout"]),
        layers.Dense(10, name="softmax"),
    ])
    compile_classifier(model, params)
    return model


def _convolution(filters: int, name: str) -> list[tf_keras.layers.Layer]:
    """Returns a 5x5 convolution with ReLU, followed by pooling that halves its maps."""
    return [tf_keras.layers.Conv2D(filters, 5, padding="same", activation="relu", kernel_initializer="he_normal",
                                   name=name),
            tf_keras.layers.MaxPool2D(2)]
