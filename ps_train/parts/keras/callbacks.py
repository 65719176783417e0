"""The callbacks of Model.fit that do not depend on a StepCounter, and one training in several calls of Model.fit.

    an epoch that a checkpoint has divided    what is left of it, in a call of its own
    the epochs after it                       another call

Keras calls `on_train_begin` and `on_train_end` in each, and at the end of each sets the means of an optimizer with
`use_ema` as weights. What the plug-in's callbacks see, and the weights, are those of one training.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tf_keras

from ps_train.errors import UserCodeError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins

_WATCHING = (tf_keras.callbacks.EarlyStopping, tf_keras.callbacks.ReduceLROnPlateau, tf_keras.callbacks.ModelCheckpoint)
_log = logging.getLogger(__name__)


class StretchCallbacks(tf_keras.callbacks.CallbackList):
    """The callbacks of one of several calls of Model.fit."""

    def __init__(
        self, own: Sequence[tf_keras.callbacks.Callback], plugin: Sequence[tf_keras.callbacks.Callback], *,
        is_first: bool, is_last: bool, model: tf_keras.Model, **params: Any,
    ) -> None:
        """Takes the callbacks; call it in the strategy's scope.

        Args:
          own: those that each call begins and ends.
          plugin: those that the first call begins, and the last one ends, or an earlier one that a callback has ended.
          params: the arguments `verbose`, `epochs` and `steps` of CallbackList.
        """
        self._plugin, self._is_first, self._is_last = plugin, is_first, is_last
        super().__init__([*own, *plugin], add_history=True, add_progbar=params["verbose"] != 0, model=model, **params)

    def on_train_begin(self, logs: Any = None) -> None:
        with self._leaving_out(() if self._is_first else self._plugin):
            super().on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        with self._leaving_out(() if self._is_last or self.model.stop_training else self._plugin):
            super().on_train_end(logs)

    @contextlib.contextmanager
    def _leaving_out(self, callbacks: Collection[tf_keras.callbacks.Callback]) -> Iterator[None]:
        every, self.callbacks = self.callbacks, [one for one in self.callbacks if one not in callbacks]
        try:
            yield
        finally:
            self.callbacks = every


@contextlib.contextmanager
def keeping_weights(model: tf_keras.Model) -> Iterator[None]:
    """Lets a call of Model.fit in its body leave the weights as they are, unless a callback has ended training."""
    optimizer = model.optimizer
    finalize = optimizer.finalize_variable_values

    def finalize_at_end(variables: Any) -> None:
        if model.stop_training:
            finalize(variables)

    optimizer.finalize_variable_values = finalize_at_end
    try:
        yield
    finally:
        del optimizer.finalize_variable_values


def single_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metrics as single numbers: `f1_0` and `f1_1` of a metric `f1` with a value for each class."""
    singles = {}
    for name, value in values.items():
        if np.shape(value):
            singles.update({f"{name}_{index}": part for index, part in enumerate(np.ravel(value).tolist())})
        else:
            singles[name] = value
    return singles


def of_plugin(plugins: KerasPlugins) -> list[tf_keras.callbacks.Callback]:
    """Returns what the model's `make_callbacks` does; raises UserCodeError if these are no callbacks of tf_keras."""
    model = plugins.model
    made = model.make_callbacks(params=plugins.model_params) if model.make_callbacks else []
    wrong = [made] if not isinstance(made, (list, tuple)) else [
        callback for callback in made if not isinstance(callback, tf_keras.callbacks.Callback)]
    if wrong:
        raise UserCodeError("plugin_returned_wrong_type",
                            f"{model.name}.make_callbacks returned {wrong[0]!r}; it must return a list of "
                            "tf_keras.callbacks.Callback (of tf_keras, not of Keras 3)")
    return list(made)


class MonitorCheck(tf_keras.callbacks.Callback):
    """Warns of Keras' callbacks that watch a metric which no epoch has: they do nothing. Its own warning is not shown.

    It comes after them, as a callback may add a metric for those behind it.
    """

    def __init__(self, callbacks: Sequence[tf_keras.callbacks.Callback], validation_epochs: int) -> None:
        """Takes callbacks, some of which may watch a metric, and the epochs between validations, 0 for none."""
        super().__init__()
        self._watching = [callback for callback in callbacks if isinstance(callback, _WATCHING)
                          and getattr(callback, "save_best_only", True)]  # a ModelCheckpoint may save each model
        self._validation_epochs = validation_epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Looks once: after an epoch with a validation, if there are any."""
        if self._validation_epochs and (epoch + 1) % self._validation_epochs:
            return
        for callback in self._watching:
            if callback.monitor not in logs:
                _log.warning("make_callbacks: %s watches %r, which no epoch has, so it does nothing; an epoch has %s",
                             type(callback).__name__, callback.monitor, ", ".join(sorted(logs)))
        self._watching = []


class MeanOverWorkers:
    """Makes metrics of this worker means over all replicas of multi_worker_mirrored.

    Those of Keras are equal on all workers, and stay as they are; what a model's own train_step returns may not be.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
        def mean(values: tf.Tensor) -> tf.Tensor:
            placed = tf.identity(values)  # an argument has no device, without which TensorFlow does not reduce
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, placed)

        self._strategy, self._mean = strategy, mean

    def __call__(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the means, arrays as arrays, and what is no number as it is; blocks until all workers call it."""
        values = {name: np.asarray(value) for name, value in logs.items()}
        numbers = {name: value for name, value in sorted(values.items()) if value.dtype.kind in "biuf"}
        flat = np.concatenate([np.zeros(0), *(np.ravel(value) for value in numbers.values())])
        means = self._strategy.experimental_local_results(self._strategy.run(self._mean, args=(tf.constant(flat),)))[0]
        ends = np.cumsum([value.size for value in numbers.values()])
        parts = zip(numbers.items(), np.split(means.numpy(), ends))
        return {**logs, **{name: part.reshape(value.shape) if value.shape else float(part[0])
                           for (name, value), part in parts}}


class SharedLogs(tf_keras.callbacks.Callback):
    """Gives the callbacks after it the same metrics of an epoch and of a validation on each worker.

    Else one that ends training, or changes the learning rate, would do so on some workers only.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self._mean_over_workers = MeanOverWorkers(strategy)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs.update(self._mean_over_workers(logs))

    def on_test_end(self, logs: Any = None) -> None:
        logs.update(self._mean_over_workers(logs))


class ScalarBoard(tf_keras.callbacks.TensorBoard):
    """TensorBoard for metrics of several values, too, which Keras' own refuses, and for trainings that continue."""

    def __init__(self, train_dir: str, *, get_step: Callable[[], int], **options: Any) -> None:
        """Takes what returns the global step, and the options of Keras' own."""
        super().__init__(train_dir, **options)
        self._get_step = get_step

    def on_train_begin(self, logs: Any = None) -> None:
        # Keras counts from 0 in each call of fit: the curves by step would be drawn over those of the first run.
        self.model._train_counter.assign(self._get_step())  # noqa: SLF001
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, single_values(logs) if isinstance(logs, dict) else logs)

    def on_test_end(self, logs: Any = None) -> None:
        super().on_test_end(single_values(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, single_values(logs))


def make_board(config: KerasConfig, get_step: Callable[[], int]) -> list[tf_keras.callbacks.Callback]:
    """Returns TensorBoard's callback, or none if the flags or the installed packages leave it out."""
    if not config.save_summaries_steps:
        return []
    if importlib.util.find_spec("tensorboard") is None:
        _log.info("tensorboard is not installed: no event files are written; `pip install tensorboard`, or give "
                  "--save_summaries_steps=0")
        return []
    # parameter_server allows no work after each batch.
    frequency = "epoch" if config.strategy == "parameter_server" else config.save_summaries_steps
    return [ScalarBoard(config.train_dir, get_step=get_step, update_freq=frequency, write_graph=False)]
