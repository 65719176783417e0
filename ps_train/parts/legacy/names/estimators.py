"""Of `tf.contrib.estimator` and `tf.contrib.learn.models`: estimators around an estimator, and models of one layer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf


class KMeansClustering(tf.estimator.experimental.KMeans):
    """`tf.estimator.experimental.KMeans`, whose argument `seed` was called `random_seed`."""

    def __init__(self, num_clusters: int, *args: Any, random_seed: int = 0, **kwargs: Any) -> None:
        if len(args) < 4:  # else it is the fifth argument
            kwargs.setdefault("seed", random_seed)
        super().__init__(num_clusters, *args, **kwargs)


def forward_features(estimator: Any, keys: str | Sequence[str] | None = None,
                     sparse_default_values: dict | None = None) -> Any:
    """Returns an estimator whose predictions have features too, such as the key of an example.

    Args:
      estimator: the one to extend.
      keys: the features; all by default.
      sparse_default_values: feature -> what stands where a sparse tensor has nothing.

    Raises:
      ValueError: a prediction has the name of a feature already, or a key is no feature.
    """
    wanted = [keys] if isinstance(keys, str) else keys

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != tf.estimator.ModeKeys.PREDICT or spec.predictions is None:
            return spec
        names = sorted(features) if wanted is None else list(wanted)
        wrong = [name for name in names if name not in features or name in spec.predictions]
        if wrong:
            raise ValueError(f"forward_features: {', '.join(wrong)} must be features, and no predictions")
        defaults = sparse_default_values or {}
        added = {name: _dense(features[name], defaults.get(name)) for name in names}
        outputs = {name: _with_outputs(output, added) for name, output in (spec.export_outputs or {}).items()}
        return spec._replace(predictions={**spec.predictions, **added}, export_outputs=outputs or None)
    return tf.estimator.Estimator(model_fn, estimator.model_dir, estimator.config)


def _dense(feature: Any, default: Any) -> tf.Tensor:
    return tf.sparse.to_dense(feature, default) if isinstance(feature, tf.SparseTensor) else feature


def _with_outputs(output: Any, added: dict) -> Any:
    """Returns an export output with the features, if it is one that has any outputs."""
    if isinstance(output, tf.estimator.export.PredictOutput):
        return tf.estimator.export.PredictOutput({**output.outputs, **added})
    return output


def logistic_regression(x: tf.Tensor, y: tf.Tensor, class_weight: Any = None, init_mean: float | None = None,
                        init_stddev: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns probabilities [batch, classes] and the cross entropy [] of one softmax layer.

    Args:
      x: float [batch, features].
      y: float [batch, classes], of which one is 1.
      class_weight: float [classes], a factor of the logits; by default the tensor `class_weight:0`, if there is one.
      init_mean: of the normal numbers that the variables begin with; those of `tf.get_variable` by default.
      init_stddev: their deviation.
    """
    with tf.variable_scope("logistic_regression"):
        logits = _layer(x, int(y.shape[-1]), init_mean, init_stddev)
        if class_weight is None:
            with contextlib.suppress(KeyError):
                class_weight = tf.get_default_graph().get_tensor_by_name("class_weight:0")
        weighted = logits if class_weight is None else logits * class_weight
        return tf.nn.softmax(weighted), tf.losses.softmax_cross_entropy(y, weighted)


def linear_regression(x: tf.Tensor, y: tf.Tensor, init_mean: float | None = None,
                      init_stddev: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns predictions, of the shape of `y`, and the mean squared error [] of one linear layer."""
    with tf.variable_scope("linear_regression"):
        predictions = _layer(x, int(y.shape[1]) if y.shape.rank > 1 else 1, init_mean, init_stddev)
        if y.shape.rank == 1:
            predictions = tf.squeeze(predictions, 1)
        return predictions, tf.losses.mean_squared_error(y, predictions)


def logistic_regression_zero_init(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same as `logistic_regression`, whose variables begin with zeros."""
    return logistic_regression(x, y, init_mean=0.0, init_stddev=0.0)


def linear_regression_zero_init(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same as `linear_regression`, whose variables begin with zeros."""
    return linear_regression(x, y, init_mean=0.0, init_stddev=0.0)


def _layer(x: tf.Tensor, size: int, mean: float | None, stddev: float) -> tf.Tensor:
    start = None if mean is None else tf.random_normal_initializer(mean, stddev)
    weights = tf.get_variable("weights", [int(x.shape[1]), size], x.dtype, initializer=start)
    bias = tf.get_variable("bias", [size], x.dtype, initializer=start)
    return tf.nn.xw_plus_b(x, weights, bias)
