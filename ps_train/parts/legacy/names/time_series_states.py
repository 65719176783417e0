"""`tf.contrib.timeseries`: states that models of steps keep from one step of the training to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.canned.timeseries import math_utils, state_management
from tensorflow_estimator.python.estimator.canned.timeseries.feature_keys import TrainEvalFeatures
from tensorflow_estimator.python.estimator.canned.timeseries.model import ModelOutputs

_TIMES, _VALUES = TrainEvalFeatures.TIMES, TrainEvalFeatures.VALUES


class ChainingStateManager(state_management._OverridableStateManager):  # noqa: SLF001 (as the Estimator's own one)
    """Begins a window with the state that a model had at that time in an earlier step."""

    def __init__(self, state_saving_interval: int = 20, checkpoint_state: bool = False) -> None:
        """Takes how the states are kept.

        Args:
          state_saving_interval: times for which one state is kept.
          checkpoint_state: keep the states in checkpoints, too.
        """
        super().__init__()
        self._interval, self._checkpoint_state = state_saving_interval, checkpoint_state
        self._start_state: Any = None
        self._tables: list[Any] = []

    def initialize_graph(self, model: Any, input_statistics: Any = None) -> None:
        """Makes a table for each element of the state: number of an interval -> the element as a vector."""
        super().initialize_graph(model=model, input_statistics=input_statistics)
        self._start_state = model.get_start_state()
        self._tables = [tf.lookup.experimental.DenseHashTable(
            tf.int64, element.dtype, default_value=tf.reshape(element, [-1]), empty_key=-1, deleted_key=-2,
            checkpoint=self._checkpoint_state, name=f"cached_states_{index}")
            for index, element in enumerate(map(tf.convert_to_tensor, tf.nest.flatten(self._start_state)))]

    def _define_loss_with_saved_state(self, model: Any, features: Mapping[str, tf.Tensor], mode: str) -> ModelOutputs:
        times = tf.cast(features[_TIMES], tf.int64)
        first = self._states(times[:, 0])
        loss, states, predictions = model.per_step_batch_loss(features=features, mode=mode, state=first)
        # A state is for the window that begins at the next time; the one that this window was read from stays.
        following = tf.concat([times[:, 1:], times[:, -1:] + 1], axis=1)
        intervals = tf.maximum(following // self._interval, times // self._interval + 1)
        with tf.control_dependencies(tf.nest.flatten(first)):  # a state need not depend on the one before
            keys = tf.reshape(intervals, [-1])
        saved = [table.insert(keys, tf.reshape(element, [tf.size(keys), -1]))
                 for table, element in zip(self._tables, tf.nest.flatten(states))]
        with tf.control_dependencies(saved):
            loss = tf.identity(loss)
        return ModelOutputs(
            loss=loss, end_state=tf.nest.map_structure(lambda element: element[-1:, -1], states),
            predictions={**predictions, "observed": features[_VALUES]}, prediction_times=features[_TIMES])

    def _states(self, times: tf.Tensor) -> Any:
        """Returns the state at each of the times, [batch]; at the beginning of the series that of the model."""
        intervals = times // self._interval
        start_time = self._input_statistics.start_time if self._input_statistics is not None else 0
        is_start = tf.equal(intervals, tf.cast(start_time, tf.int64) // self._interval)
        start = tf.nest.flatten(math_utils.replicate_state(self._start_state, tf.shape(times)[0]))
        return tf.nest.pack_sequence_as(self._start_state, [
            tf.where(is_start, first, tf.reshape(table.lookup(intervals), tf.shape(first)))
            for first, table in zip(start, self._tables)])
