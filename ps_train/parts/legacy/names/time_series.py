"""`tf.contrib.timeseries`: autoregressive models, and the predictions behind an evaluation.

tensorflow-estimator has kept the models of a window and the Estimator around them; what it has dropped is here, in
time_series_readers.py and in time_series_steps.py. Nothing is here for state space models.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.canned.timeseries import (
    ar_model,
    estimators,
    feature_keys,
    model_utils,
    saved_model_utils,
)

saved_model_utils.numpy = np  # the module deletes it at its end, and needs it
predict_continuation = saved_model_utils.predict_continuation
filter_continuation, cold_start_filter = saved_model_utils.filter_continuation, saved_model_utils.cold_start_filter


class FlatPredictionModel(tf.keras.Model):
    """Predicts a window by dense layers on the flattened windows of values and of times."""

    def __init__(self, num_features: int, input_window_size: int, output_window_size: int,
                 hidden_layer_sizes: Sequence[int] | None = None) -> None:
        """Makes the layers; a hidden one has the activation relu.

        Args:
          num_features: values at a time.
          input_window_size: times whose values are known; may be 0.
          output_window_size: times to predict.
          hidden_layer_sizes: units of each hidden layer.
        """
        super().__init__()
        del input_window_size
        size = num_features * output_window_size
        self._flatten = tf.keras.layers.Flatten()
        # The model in the model gives the variables their names of TF1, in checkpoints.
        self._hidden = tf.keras.Sequential([
            tf.keras.layers.Dense(units, activation="relu") for units in hidden_layer_sizes]) if (
                hidden_layer_sizes) else None
        self._mean = tf.keras.layers.Dense(size, name="predicted_mean")
        self._log_covariance = tf.keras.layers.Dense(size, name="log_sigma_square")
        self._shape = [-1, output_window_size, num_features]

    def call(self, input_window_features: tf.Tensor, output_window_features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns "mean" and "covariance", each [batch, output window, features].

        Args:
          input_window_features: [batch, input window, features and those of the time].
          output_window_features: [batch, output window, features of the time]; the last one may be 0.
        """
        windows = [input_window_features, output_window_features]
        flat = tf.concat([self._flatten(window) for window in windows if 0 not in window.shape.as_list()], axis=1)
        if self._hidden is not None:
            flat = self._hidden(flat)
        return {"mean": tf.reshape(self._mean(flat), self._shape),
                "covariance": tf.reshape(tf.exp(self._log_covariance(flat)), self._shape)}


class ARModel(ar_model.ARModel):
    """Regression on the values of a window, and on the time within each period, by dense layers if nothing else is
    given.
    """

    def __init__(self, periodicities: Any, input_window_size: int, output_window_size: int, num_features: int,
                 prediction_model_factory: Callable[..., Any] = FlatPredictionModel, num_time_buckets: int = 10,
                 loss: str = ar_model.ARModel.NORMAL_LIKELIHOOD_LOSS, exogenous_feature_columns: Any = None) -> None:
        super().__init__(periodicities, input_window_size, output_window_size, num_features, prediction_model_factory,
                         num_time_buckets, loss, exogenous_feature_columns)


class ARRegressor(estimators.TimeSeriesRegressor):
    """The Estimator of an ARModel, with Adagrad."""

    def __init__(self, periodicities: Any, input_window_size: int, output_window_size: int, num_features: int,
                 exogenous_feature_columns: Any = None, num_time_buckets: int = 10,
                 loss: str = ARModel.NORMAL_LIKELIHOOD_LOSS, hidden_layer_sizes: Sequence[int] | None = None,
                 anomaly_prior_probability: float | None = None, anomaly_distribution: str | None = None,
                 optimizer: Any = None, model_dir: str | None = None, config: Any = None) -> None:
        """Takes what ARModel and Estimator take.

        Raises:
          NotImplementedError: a probability of anomalies is given.
        """
        if anomaly_prior_probability is not None or anomaly_distribution is not None:
            raise NotImplementedError("tf.contrib.timeseries.ARRegressor: the mixture with anomalies has no stand-in; "
                                      "leave anomaly_prior_probability and anomaly_distribution out")
        factory = functools.partial(FlatPredictionModel, hidden_layer_sizes=hidden_layer_sizes)
        model = ARModel(periodicities, input_window_size, output_window_size, num_features, factory, num_time_buckets,
                        loss, exogenous_feature_columns)
        super().__init__(model, optimizer=optimizer or tf.train.AdagradOptimizer(0.1), model_dir=model_dir,
                         config=config)


def predict_continuation_input_fn(evaluation: Mapping[str, Any], steps: int | None = None, times: Any = None,
                                  exogenous_features: Mapping[str, Any] | None = None) -> Callable[[], Any]:
    """Returns an `input_fn` for `predict`, which goes on behind an evaluation.

    Args:
      evaluation: what `evaluate` has returned.
      steps: how many times to predict; this or the next one.
      times: the times to predict, [batch, window], behind those of the evaluation.
      exogenous_features: further features at these times, [batch, window, ...].
    """
    features = {
        feature_keys.PredictionFeatures.STATE_TUPLE: evaluation[feature_keys.FilteringResults.STATE_TUPLE],
        feature_keys.PredictionFeatures.TIMES: model_utils.canonicalize_times_or_steps_from_output(
            times=times, steps=steps, previous_model_output=evaluation),
        **(exogenous_features or {}),
    }
    # Constants would be predicted from for ever.
    return lambda: (tf.nest.map_structure(lambda value: tf.train.limit_epochs(value, num_epochs=1), features), None)
