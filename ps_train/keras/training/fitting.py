"""Training by Keras' own Model.fit."""

from __future__ import annotations

import importlib.util
import logging
import sys

import tensorflow as tf
import tf_keras

from ps_train.errors import UserCodeError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.storage import checkpoints
from ps_train.keras.strategies import factory
from ps_train.keras.training import inputs
from ps_train.keras.training.callbacks import Backup, Checkpoint, Reporter
from ps_train.keras.training.planning import Plan, Span, Task

_log = logging.getLogger(__name__)


def fit(task: Task, strategy: tf.distribute.Strategy, model: tf_keras.Model, plan: Plan) -> Span:
    """Trains the epochs of the plan.

    Raises:
      StoppedError: told to stop.
      UserCodeError: a plug-in breaks its contract.
    """
    config, is_chief = task.config, task.is_chief
    first_step = int(model.optimizer.iterations.numpy())
    if plan.first_epoch == plan.epochs:
        _log.info("nothing to train: the global step is %d, and --train_steps=%d", first_step, config.train_steps)
        if is_chief:
            task.lock.check()
            checkpoints.remove_backup(config.train_dir, plan.steps_per_epoch)
        return Span(first_step, 0.0)
    begin = checkpoints.begin_of_epochs(config.train_dir, plan.steps_per_epoch, first_step)
    train_steps = begin + (plan.epochs - plan.first_epoch) * plan.steps_per_epoch
    if is_chief:
        _log.info("epochs %d to %d of %d steps each: training ends at step %d", plan.first_epoch + 1, plan.epochs,
                  plan.steps_per_epoch, train_steps)
    task.pulse.expect("the held-out data to be counted", 2 * config.eval_timeout_secs)
    feed = inputs.feed(strategy, config, task.loaded.dataset, task.loaded.dataset_params)
    task.pulse.expect("a step of training", config.step_timeout_secs)
    on_terminal = sys.stdout is not None and sys.stdout.isatty() and config.strategy != "parameter_server"
    backup = Backup(config, plan.steps_per_epoch, task.lock)
    reporter = Reporter(config, task.pulse, task.stop, backup.save if task.is_alone else None,
                        factory.global_batch_size(strategy, config), train_steps, is_chief and not on_terminal)
    reporter.first_step = first_step
    validates = config.validation_epochs > 0
    model.fit(
        feed.training,
        steps_per_epoch=plan.steps_per_epoch,
        epochs=plan.epochs,
        initial_epoch=plan.first_epoch,
        validation_data=feed.validation if validates else None,
        validation_steps=feed.validation_steps if validates else None,
        validation_freq=max(config.validation_epochs, 1),
        callbacks=[backup, Checkpoint(config, task.keeper), *_tensorboard(config, is_chief), *_of_the_plugin(task),
                   reporter],
        verbose=(1 if on_terminal else 2) if is_chief else 0,
    )
    if is_chief:
        task.lock.check()
        checkpoints.remove_backup(config.train_dir, plan.steps_per_epoch)
    return Span(reporter.first_step, reporter.end_secs - reporter.start_secs)


def _of_the_plugin(task: Task) -> list[tf_keras.callbacks.Callback]:
    model = task.loaded.model
    if model.make_callbacks is None:
        return []
    made = model.make_callbacks(params=task.loaded.model_params)
    wrong = [made] if not isinstance(made, (list, tuple)) else [
        callback for callback in made if not isinstance(callback, tf_keras.callbacks.Callback)]
    if wrong:
        raise UserCodeError(f"{model.name}.make_callbacks returned {wrong[0]!r}; it must return a list of "
                            "tf_keras.callbacks.Callback (of tf_keras, not of Keras 3)")
    return list(made)


def _tensorboard(config: KerasConfig, is_chief: bool) -> list[tf_keras.callbacks.Callback]:
    if not is_chief or not config.save_summaries_steps:
        return []
    if importlib.util.find_spec("tensorboard") is None:
        _log.info("tensorboard is not installed: no event files are written; `pip install tensorboard`, or give "
                  "--save_summaries_steps=0")
        return []
    # parameter_server allows no work after each batch.
    frequency = "epoch" if config.strategy == "parameter_server" else config.save_summaries_steps
    return [tf_keras.callbacks.TensorBoard(config.train_dir, update_freq=frequency, write_graph=False)]
