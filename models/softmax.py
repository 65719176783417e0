"""One layer: the softmax regression of the first MNIST tutorials."""

from __future__ import annotations

from ps_train import ModelSpec

from . import classifier


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Classifies float [batch, features] into 10 classes with a linear layer that starts at zero."""
    del mode, params  # they make no difference here
    return classifier.spec_from_logits(classifier.dense(features, 10, "softmax", stddev=0.0), labels)
