"""One hidden layer, as in dist_mnist: 784 - hidden_units - 10 with ReLU.

The hidden layer is initialised with He's variance. At dist_mnist's learning rate of 0.01, the accuracy after 3000 steps
was 0.9677 to 0.9705 over six seeds; with dist_mnist's standard deviation of 1/28 it was 0.9615 to 0.9696.
"""

from __future__ import annotations

from ps_train import KerasTwin, ModelSpec

from . import classifier

KERAS_TWIN = KerasTwin("models.keras_mlp", params={"hidden_layers": 1}, weights={
    "hidden/weights": "hidden/kernel", "hidden/biases": "hidden/bias",
    "softmax/weights": "softmax/kernel", "softmax/biases": "softmax/bias"})


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Classifies float [batch, features] into 10 classes; `params["hidden_units"]` is the hidden layer's width."""
    del mode  # it makes no difference here
    hidden = classifier.hidden_layer(features, params["hidden_units"])
    return classifier.spec_from_logits(classifier.output_layer(hidden), labels)
