"""`tf.contrib.timeseries`: the base of models that go through a window step by step, such as recurrent ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.canned.timeseries import model as window_models
from tensorflow_estimator.python.estimator.canned.timeseries.feature_keys import PredictionFeatures, TrainEvalFeatures

_TIMES, _VALUES, _STATE = TrainEvalFeatures.TIMES, TrainEvalFeatures.VALUES, PredictionFeatures.STATE_TUPLE
_Step = Callable[[tf.Tensor, tf.Tensor, Any], tuple[Any, dict[str, tf.Tensor]]]


class SequentialTimeSeriesModel(window_models.TimeSeriesModel):
    """A model with a state; a script says what a step does with it.

    _imputation_step         the state before a time, across times that are missing
    _exogenous_input_step    the state after further features at that time
    _prediction_step         the state at that time, and what is predicted
    _filtering_step          the state after the values at that time, and the loss
    """

    def __init__(self, train_output_names: Sequence[str], predict_output_names: Sequence[str], num_features: int,
                 normalize_features: bool = False, dtype: tf.DType = tf.float32, exogenous_feature_columns: Any = None,
                 exogenous_update_condition: Callable[..., tf.Tensor] | None = None,
                 static_unrolling_window_size_threshold: int | None = None) -> None:
        """Takes what the steps return.

        Args:
          train_output_names: keys of what `_filtering_step` returns, without "loss".
          predict_output_names: keys of what `_prediction_step` returns.
          num_features: values at a time.
          normalize_features: give normalised values to the steps; `_scale_back_predictions` then has to undo it.
          dtype: of the values.
          exogenous_feature_columns: of further features.
          exogenous_update_condition: (times, features) -> for which windows of the batch the state changes by them.
          static_unrolling_window_size_threshold: up to which size a window is unrolled in the graph; never for None.
        """
        super().__init__(num_features=num_features, dtype=dtype, exogenous_feature_columns=exogenous_feature_columns)
        self._train_output_names, self._predict_output_names = list(train_output_names), list(predict_output_names)
        self._normalize_features = normalize_features
        self._exogenous_update_condition = exogenous_update_condition
        self._unrolled_size = static_unrolling_window_size_threshold or 0

    def _scale_back_predictions(self, predictions: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        raise NotImplementedError("SequentialTimeSeriesModel normalized input data (normalize_features=True), but no "
                                  "method was provided to transform the predictions back to the input scale.")

    def _filtering_step(self, current_times: tf.Tensor, current_values: tf.Tensor, state: Any,
                        predictions: dict[str, tf.Tensor]) -> tuple[Any, dict[str, tf.Tensor]]:
        raise NotImplementedError

    def _prediction_step(self, current_times: tf.Tensor, state: Any) -> tuple[Any, dict[str, tf.Tensor]]:
        raise NotImplementedError

    def _imputation_step(self, current_times: tf.Tensor, state: Any) -> Any:
        raise NotImplementedError

    def _exogenous_input_step(self, current_times: tf.Tensor, current_exogenous_regressors: tf.Tensor,
                              state: Any) -> Any:
        raise NotImplementedError

    def _loss_additions(self, times: tf.Tensor, values: tf.Tensor, mode: str) -> Any:
        """Returns what is added to the mean loss of a value, such as regularization."""
        del times, values, mode
        return 0.0

    def _window_initializer(self, times: tf.Tensor, state: Any) -> None:
        """Is called before the steps of a window."""

    def get_batch_loss(self, features: Mapping[str, tf.Tensor], mode: str, state: Any) -> Any:
        """Returns the ModelOutputs of a batch of windows."""
        loss, states, outputs = self.per_step_batch_loss(features, mode, state)
        return window_models.ModelOutputs(
            loss=loss, end_state=tf.nest.map_structure(lambda element: element[:, -1], states),
            predictions={**outputs, "observed": features[_VALUES]}, prediction_times=features[_TIMES])

    def per_step_batch_loss(self, features: Mapping[str, tf.Tensor], mode: str,
                            state: Any) -> tuple[tf.Tensor, Any, dict[str, tf.Tensor]]:
        """Returns the mean loss of a value, the states and the outputs; the last two are [batch, window, ...]."""
        self._check_graph_initialized()
        times, values = tf.cast(features[_TIMES], tf.int64), tf.cast(features[_VALUES], self.dtype)
        if self._normalize_features:
            values = self._scale_data(values)
        add_exogenous = self._exogenous_step(times, features)

        def step(number: tf.Tensor, current_times: tf.Tensor, state: Any) -> tuple[Any, dict[str, tf.Tensor]]:
            state, predictions = self._prediction_step(
                current_times=current_times, state=add_exogenous(number, current_times, state))
            return self._filtering_step(current_times=current_times, current_values=values[:, number, :], state=state,
                                        predictions=predictions)

        states, outputs = self._loop(times, state, step, ["loss", *self._train_output_names])
        loss = tf.reduce_sum(outputs.pop("loss")) / tf.cast(tf.size(times), self.dtype)
        loss += self._loss_additions(times, values, mode)
        return loss, states, self._scale_back_predictions(outputs) if self._normalize_features else outputs

    def predict(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns what is predicted at the times, each [batch, window, ...]."""
        times = tf.convert_to_tensor(features[_TIMES], tf.int64)
        add_exogenous = self._exogenous_step(times, features)

        def step(number: tf.Tensor, current_times: tf.Tensor, state: Any) -> tuple[Any, dict[str, tf.Tensor]]:
            return self._prediction_step(
                current_times=current_times, state=add_exogenous(number, current_times, state))

        _, predictions = self._loop(times, features[_STATE], step, self._predict_output_names)
        return self._scale_back_predictions(predictions) if self._normalize_features else predictions

    def _exogenous_step(self, times: tf.Tensor,
                        features: Mapping[str, tf.Tensor]) -> Callable[[tf.Tensor, tf.Tensor, Any], Any]:
        """Returns a function that changes the state by the further features at a step of the window."""
        raw = {name: value for name, value in features.items() if name not in (_TIMES, _VALUES, _STATE)}
        embedded = self._process_exogenous_features(times=times, features=raw)

        def add(number: tf.Tensor, current_times: tf.Tensor, state: Any) -> Any:
            if embedded is None:
                return state
            updated = self._exogenous_input_step(current_times=current_times, state=state,
                                                 current_exogenous_regressors=embedded[:, number, :])
            if self._exogenous_update_condition is None:
                return updated
            is_updated = self._exogenous_update_condition(
                times=current_times, features={name: value[:, number] for name, value in raw.items()})
            return tf.nest.pack_sequence_as(state, [tf.where(is_updated, new, old) for new, old in zip(
                tf.nest.flatten(updated), tf.nest.flatten(state))])

        return add

    def _loop(self, times: tf.Tensor, state: Any, step: _Step,
              names: Sequence[str]) -> tuple[Any, dict[str, tf.Tensor]]:
        """Returns the states after each step of a window, and its outputs of these names, all [batch, window, ...]."""
        self._window_initializer(times, state)
        size = tf.shape(times)[1]

        def body(number: Any, state: Any, states: list, outputs: list) -> tuple[Any, Any, list, list]:
            # Several steps in the graph share their variables.
            with tf.variable_scope("state_update_step", reuse=isinstance(number, int) and number > 0):
                current_times = times[:, number]
                before = self._imputation_step(current_times=current_times, state=state)
                after, produced = step(number, current_times, before)
            elements = tf.nest.flatten(after)
            for new, old in zip(elements, tf.nest.flatten(before)):
                new.set_shape(old.shape)  # a loop's shapes must stay
            return (number + 1, tf.nest.pack_sequence_as(state, elements),
                    [array.write(number, element) for array, element in zip(states, elements)],
                    [array.write(number, produced[name]) for array, name in zip(outputs, names)])

        arrays = [[tf.TensorArray(dtype, size) for dtype in dtypes] for dtypes in (
            [tf.convert_to_tensor(element).dtype for element in tf.nest.flatten(state)], [self.dtype] * len(names))]
        if (times.shape[1].value or self._unrolled_size + 1) <= self._unrolled_size:
            result: tuple[Any, Any, list, list] = (0, state, *arrays)
            for _ in range(times.shape[1].value):
                result = body(*result)
        else:
            result = tf.while_loop(lambda number, *_: number < size, body, [tf.constant(0), state, *arrays])
        states, outputs = ([_window_last(array) for array in each] for each in result[2:])
        return tf.nest.pack_sequence_as(state, states), dict(zip(names, outputs))


def _window_last(array: tf.TensorArray) -> tf.Tensor:
    """Returns the elements of an array, each [batch, ...], as [batch, window, ...]."""
    stacked = array.stack()
    return tf.transpose(stacked, tf.concat([[1, 0], tf.range(2, tf.rank(stacked))], axis=0))
