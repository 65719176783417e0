"""A process that trains: the only one, a worker of multi_worker_mirrored, or the coordinator of parameter_server.

    strategy --> model, made or restored --> fit --> the chief: evaluate the checkpoint, report --> let the others go
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train import checkpoint, plugins, ports, server, waiting
from ps_train.cluster import Cluster
from ps_train.distribute import feeding, rendezvous, roles, saving, serving, strategies, watch
from ps_train.distribute.callbacks import Backup, Checkpoint, Reporter
from ps_train.distribute.options import KerasConfig
from ps_train.errors import ClusterLostError, ConfigError, PsTrainError, StoppedError
from ps_train.evaluate import Evaluation
from ps_train.plugins import EVAL, Dataset, KerasModel

_DEFAULT_STEPS_PER_EPOCH = 500
_DYING_SECS = 2.0  # from the loss of its connections to that of its port
_POLL_SECS = 0.1
_EVALUATION_STEPS = 12  # an evaluation may take as long as so many steps at most: an hour, unless told otherwise
# What TensorFlow says when a peer or its server is gone, and what follows from that in other threads.
_LOSSES = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError)
_log = logging.getLogger(__name__)


class Plugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: KerasModel
    model_params: dict[str, Any]
    dataset: Dataset
    dataset_params: dict[str, Any]


class Plan(NamedTuple):
    """The epochs of a run.

    Attributes:
      steps_per_epoch: in each of them.
      epochs: the epoch at which training ends.
      first_epoch: the epoch at which it begins, the same as `epochs` where nothing is left to train.
    """

    steps_per_epoch: int
    epochs: int
    first_epoch: int


def make_plan(train_steps: int, steps_per_epoch: int | None, step: int) -> Plan:
    """Returns the whole epochs that bring training from a global step to `train_steps`, or up to an epoch beyond."""
    if steps_per_epoch is None:  # equal parts of about the default, so that it goes beyond by a few steps only
        steps_per_epoch = math.ceil(train_steps / math.ceil(train_steps / _DEFAULT_STEPS_PER_EPOCH))
    steps_per_epoch = min(steps_per_epoch, train_steps)
    epochs = math.ceil(train_steps / steps_per_epoch)
    left = math.ceil(max(train_steps - step, 0) / steps_per_epoch)
    return Plan(steps_per_epoch, epochs, epochs - left)


def load_plugins(config: KerasConfig) -> Plugins:
    """Imports and checks the plug-ins that the configuration names.

    Raises:
      ConfigError: one is missing or has another contract, or --params does not fit them.
    """
    model, dataset = plugins.load_keras_model(config.model), plugins.load_dataset(config.dataset)
    shared = {name: getattr(config, name) for name in (
        "batch_size", "data_dir", "hidden_units", "learning_rate", "seed", "steps_per_execution")}
    model_params, dataset_params = plugins.resolve_params(config.params, [model, dataset], shared)
    return Plugins(model, model_params, dataset, dataset_params)


def train(config: KerasConfig, cluster: Cluster | None, loaded: Plugins, stop: threading.Event) -> None:
    """Trains to the end; the chief evaluates and reports.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    loaded.dataset.prepare(loaded.dataset_params)
    checkpoint.check_writable(config.train_dir)
    trainer = _Trainer(config, cluster, loaded, watch.Pulse(), stop)
    if cluster is None:
        trainer.run()
        return
    ports.release_held_port()
    server.check_port(cluster.task)
    if config.strategy == "multi_worker_mirrored":
        rendezvous.meet(cluster.task, roles.peers(cluster), config.start_timeout_secs, stop)
    else:
        waiting.for_tasks(roles.servers(cluster), config.start_timeout_secs, stop)
    with _losses_told(cluster, stop):
        watch.guard(trainer.run, trainer.pulse, lambda: _who_is_missing(
            cluster, "all of them can be reached, so one stands still; look at their logs"))


def _who_is_missing(cluster: Cluster, otherwise: str) -> str:
    """Returns who cannot be reached, in words; a process that is dying may still be there when its peers lose it."""
    end_secs = time.monotonic() + _DYING_SECS
    while not (missing := [str(task) for task in roles.peers(cluster) if not waiting.accepts(task.address)]):
        if time.monotonic() >= end_secs:
            return otherwise
        time.sleep(_POLL_SECS)
    return f"{', '.join(missing)} cannot be reached; look at its log"


@contextlib.contextmanager
def _losses_told(cluster: Cluster, stop: threading.Event) -> Iterator[None]:
    try:
        yield
    except _LOSSES as error:
        if stop.is_set():
            raise StoppedError("told to stop, as another task was; the same command continues from the last "
                               "backup") from error
        who = _who_is_missing(cluster, "all of them can be reached again")
        raise ClusterLostError(f"{cluster.task.name} lost another task ({type(error).__name__}): {who}") from error


class _Trainer:
    """One run of training in this process."""

    def __init__(
        self, config: KerasConfig, cluster: Cluster | None, loaded: Plugins, pulse: watch.Pulse, stop: threading.Event
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._loaded = loaded
        self._stop = stop
        self._is_chief = cluster is None or cluster.is_chief
        self.pulse = pulse

    def run(self) -> None:
        """Trains, evaluates, reports."""
        if self._config.strategy != "parameter_server":
            self._run()
            return
        verdict = serving.FAILED
        try:
            self._run()
            verdict = serving.DONE
        finally:
            serving.tell(roles.servers(self._cluster), verdict)

    def _run(self) -> None:
        config = self._config
        with rendezvous.bounded_without_python(config.start_timeout_secs):
            strategy = strategies.make(config, self._cluster)
        self.pulse.expect("the other tasks", config.start_timeout_secs)
        if config.seed is not None:
            tf_keras.utils.set_random_seed(config.seed)
        if self._is_chief:
            _log.info("%s", strategies.summary(strategy, config, self._cluster))
        with strategy.scope():
            model = saving.make_or_restore_model(self._loaded.model, self._loaded.model_params, config.train_dir)
        first_step = int(model.optimizer.iterations.numpy())
        plan = make_plan(config.train_steps, config.steps_per_epoch, first_step)
        self._check_agreement(strategy, plan)
        self.pulse.expect("a step of training", config.step_timeout_secs)
        reporter = self._fit(strategy, model, plan, first_step)
        self.pulse.expect("the chief's evaluation", _EVALUATION_STEPS * config.step_timeout_secs)
        if self._is_chief:
            self._finish(strategy, reporter)
        if config.strategy == "multi_worker_mirrored":  # nobody leaves before the chief is done
            feeding.sum_over_replicas(strategy, 0)

    def _check_agreement(self, strategy: tf.distribute.Strategy, plan: Plan) -> None:
        """Raises ConfigError where the workers would train on from different states."""
        if self._config.strategy != "multi_worker_mirrored":
            return
        own = saving.state_number(self._config.train_dir, plan.steps_per_epoch)
        if feeding.sum_over_replicas(strategy, own) != own * strategy.num_replicas_in_sync:
            raise ConfigError(f"--train_dir: the workers found different checkpoints ({self._cluster.task.name} those "
                              f"of {self._config.train_dir}); multi_worker_mirrored needs one folder that all of them "
                              "can read, and the same --train_steps and --steps_per_epoch")

    def _fit(
        self, strategy: tf.distribute.Strategy, model: tf_keras.Model, plan: Plan, first_step: int
    ) -> Reporter:
        config = self._config
        train_steps = first_step + (plan.epochs - plan.first_epoch) * plan.steps_per_epoch
        backup = Backup(config, plan.steps_per_epoch)
        on_terminal = sys.stdout is not None and sys.stdout.isatty() and config.strategy != "parameter_server"
        reporter = Reporter(
            config, self.pulse, self._stop, backup.save if self._cluster is None else None,
            strategies.global_batch_size(strategy, config), train_steps, self._is_chief and not on_terminal)
        reporter.first_step = first_step
        if plan.first_epoch == plan.epochs:
            _log.info("nothing to train: the global step is %d, and --train_steps=%d", first_step, config.train_steps)
            if self._is_chief:
                saving.remove_backup(config.train_dir, plan.steps_per_epoch)
            return reporter
        if self._is_chief:
            _log.info("epochs %d to %d of %d steps each: training ends at step %d", plan.first_epoch + 1, plan.epochs,
                      plan.steps_per_epoch, train_steps)
        feed = feeding.feed(strategy, config, self._loaded.dataset, self._loaded.dataset_params)
        if config.strategy == "multi_worker_mirrored":
            # Else Keras sums what it shows over the workers after every batch: one all-reduce more, and a wrong number.
            model.distribute_reduction_method = "first"
        validates = config.validation_epochs > 0
        model.fit(
            feed.training,
            steps_per_epoch=plan.steps_per_epoch,
            epochs=plan.epochs,
            initial_epoch=plan.first_epoch,
            validation_data=feed.validation if validates else None,
            validation_steps=feed.validation_steps if validates else None,
            validation_freq=max(config.validation_epochs, 1),
            callbacks=[backup, Checkpoint(config.train_dir, config.keep_checkpoint_max, self._is_chief), reporter,
                       *self._tensorboard()],
            verbose=(1 if on_terminal else 2) if self._is_chief else 0,
        )
        if self._is_chief:
            saving.remove_backup(config.train_dir, plan.steps_per_epoch)
        return reporter

    def _tensorboard(self) -> list[tf_keras.callbacks.Callback]:
        config = self._config
        if not self._is_chief or not config.save_summaries_steps:
            return []
        if importlib.util.find_spec("tensorboard") is None:
            _log.info("tensorboard is not installed: no event files are written; `pip install tensorboard`, or give "
                      "--save_summaries_steps=0")
            return []
        # parameter_server allows no work after each batch.
        frequency = "epoch" if config.strategy == "parameter_server" else config.save_summaries_steps
        return [tf_keras.callbacks.TensorBoard(config.train_dir, update_freq=frequency, write_graph=False)]

    def _finish(self, strategy: tf.distribute.Strategy, reporter: Reporter) -> None:
        evaluation = evaluate(self._config, self._loaded)
        print(evaluation.format(), flush=True)
        steps = evaluation.global_step - reporter.first_step
        if steps:
            secs = max(reporter.end_secs - reporter.start_secs, 1e-9)
            rate = steps * strategies.global_batch_size(strategy, self._config) / secs
            print(f"Training took {secs:.2f} s, {rate:.0f} examples per second over all workers", flush=True)


def evaluate(config: KerasConfig, loaded: Plugins) -> Evaluation:
    """Returns the metrics of the newest checkpoint on the whole held-out set, computed in this process alone.

    Raises:
      PsTrainError: there is no checkpoint, or it is of another model.
    """
    newest = saving.newest_sound(config.train_dir)
    if newest is None:
        raise PsTrainError(f"there is no checkpoint in {config.train_dir} that could be evaluated")
    step, path = newest
    model = saving.load(path)
    sizes = feeding.sizes(loaded.dataset, loaded.dataset_params)
    values = model.evaluate(feeding.batches(loaded.dataset, loaded.dataset_params, EVAL), steps=len(sizes), verbose=0,
                            return_dict=True)
    loss_name = getattr(model.loss, "name", "loss").replace("_", " ")
    return Evaluation(step, sum(sizes), loss_name, values.pop("loss") * sum(sizes), values)
