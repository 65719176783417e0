"""One hidden layer, as in dist_mnist: 784 - hidden_units - 10 with ReLU."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from models import classifier
from ps_train import ModelSpec


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Classifies float [batch, features] into 10 classes; `params["hidden_units"]` is the hidden layer's width."""
    del mode  # nothing in it differs
    hidden = tf.nn.relu(classifier.dense(features, params["hidden_units"], "hidden"))
    return classifier.spec_from_logits(classifier.dense(hidden, 10, "softmax"), labels)
