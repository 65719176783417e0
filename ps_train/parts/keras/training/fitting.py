"""Training by Keras' own Model.fit."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from ps_train.errors import UserCodeError
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.strategies import factory
from ps_train.parts.keras.training import data_end
from ps_train.parts.keras.training.callbacks import Backup, Checkpoint, Meter, Reporter
from ps_train.parts.keras.training.inputs import Feed
from ps_train.parts.keras.training.planning import EpochPlan, TrainingContext, TrainingSpan, global_step

_log = logging.getLogger(__name__)


def fit(
    context: TrainingContext, strategy: tf.distribute.Strategy, model: tf_keras.Model, plan: EpochPlan, feed: Feed
) -> TrainingSpan:
    """Trains the epochs of the plan.

    Raises:
      StoppedError: the process was told to stop.
      UserCodeError: a plug-in breaks its contract.
      DataError: the training data end before training does.
    """
    config, is_chief = context.config, context.is_chief
    if is_chief:
        _log.info("epochs %d to %d of %d steps each: training ends at step %d", plan.first_epoch + 1, plan.epochs,
                  plan.steps_per_epoch, plan.end_step)
    context.pulse.expect("a step of training", config.step_timeout_secs)
    on_terminal = sys.stdout is not None and sys.stdout.isatty() and config.strategy != "parameter_server"
    backup = Backup(context, plan.steps_per_epoch)
    meter = Meter(factory.global_batch_size(strategy, config), plan.end_step)
    reporter = Reporter(context, meter, global_step(model), is_chief and not on_terminal, backup.save)
    validates = config.validation_epochs > 0
    with _end_told(context, reporter, plan):
        model.fit(
            _training(feed),
            steps_per_epoch=plan.steps_per_epoch,
            epochs=plan.epochs,
            initial_epoch=plan.first_epoch,
            validation_data=feed.validation if validates else None,
            validation_steps=feed.validation_steps if validates else None,
            validation_freq=max(config.validation_epochs, 1),
            callbacks=[backup, Checkpoint(context), *_tensorboard(context), *_of_the_plugin(context.plugins), reporter],
            verbose=(1 if on_terminal else 2) if is_chief else 0,
        )
    return TrainingSpan(reporter.first_step, reporter.end_secs - reporter.start_secs)


def _training(feed: Feed) -> Any:
    """Returns the training data, with an error in place of their end."""
    if isinstance(feed.training, tf.data.Dataset):
        return data_end.failing_at_end(feed.training)
    make = feed.training.dataset_fn
    return tf_keras.utils.experimental.DatasetCreator(lambda context: data_end.failing_at_end(make(context)))


@contextlib.contextmanager
def _end_told(context: TrainingContext, reporter: Reporter, plan: EpochPlan) -> Iterator[None]:
    """Turns the error in place of the data's end into one line; the only process saves first."""
    try:
        yield
    except tf.errors.OpError as error:
        if not data_end.is_end(error):
            raise
        if context.cluster is None and reporter.step > reporter.first_step:
            context.saver.save(reporter.model, reporter.step)
        raise data_end.data_ended(context.plugins.dataset.name, reporter.step, plan.end_step) from error


def _of_the_plugin(plugins: KerasPlugins) -> list[tf_keras.callbacks.Callback]:
    model = plugins.model
    if model.make_callbacks is None:
        return []
    made = model.make_callbacks(params=plugins.model_params)
    wrong = [made] if not isinstance(made, (list, tuple)) else [
        callback for callback in made if not isinstance(callback, tf_keras.callbacks.Callback)]
    if wrong:
        raise UserCodeError(f"{model.name}.make_callbacks returned {wrong[0]!r}; it must return a list of "
                            "tf_keras.callbacks.Callback (of tf_keras, not of Keras 3)")
    return list(made)


def _tensorboard(context: TrainingContext) -> list[tf_keras.callbacks.Callback]:
    config = context.config
    if not context.is_chief or not config.save_summaries_steps:
        return []
    if importlib.util.find_spec("tensorboard") is None:
        _log.info("tensorboard is not installed: no event files are written; `pip install tensorboard`, or give "
                  "--save_summaries_steps=0")
        return []
    # parameter_server allows no work after each batch.
    frequency = "epoch" if config.strategy == "parameter_server" else config.save_summaries_steps
    return [tf_keras.callbacks.TensorBoard(config.train_dir, update_freq=frequency, write_graph=False)]
