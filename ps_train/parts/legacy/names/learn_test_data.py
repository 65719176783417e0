"""`tf.contrib.learn.python.learn.estimators.test_data`: input functions of the irises, which examples train on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.examples import LearnDataset, load_iris


def get_quantile_based_buckets(feature_values: Sequence[float], num_buckets: int) -> list[float]:
    """Returns as many boundaries, between which lie equal shares of the values."""
    return list(np.percentile(np.array(feature_values), [100 * (number + 1) / (num_buckets + 1)
                                                         for number in range(num_buckets)]))


def prepare_iris_data_for_logistic_regression() -> LearnDataset:
    """Returns the 100 irises of the first two species; raises MissingNameError as `load_iris` does."""
    irises = load_iris()
    chosen = irises.target < 2
    return LearnDataset(irises.data[chosen], irises.target[chosen])


def iris_input_multiclass_fn() -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns {"feature": float32 [150, 4]} and the species, int32 [150, 1]."""
    return _tensors(load_iris())


def iris_input_logistic_fn() -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the same of the first two species, 100 irises."""
    return _tensors(prepare_iris_data_for_logistic_regression())


def _tensors(irises: LearnDataset) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return ({"feature": tf.constant(irises.data, tf.float32)},
            tf.constant(irises.target, tf.int32, [len(irises.target), 1]))
