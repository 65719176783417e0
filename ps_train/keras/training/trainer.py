"""A process that trains: the only one, a worker of multi_worker_mirrored, or the coordinator of parameter_server.

    strategy --> model, made or restored --> fit, or the plug-in's own loop
             --> the chief: evaluate the checkpoint, report --> let the others go
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
import time
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from ps_train.cluster import ports, reachability
from ps_train.cluster.spec import Cluster
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.plugins import KerasPlugins
from ps_train.keras.storage import checkpoints as saving
from ps_train.keras.strategies import factory, rendezvous, roles, servers, watchdog
from ps_train.keras.training import custom_loops, evaluation, fitting, inputs
from ps_train.keras.training.planning import Plan, Span, Task, make_plan
from ps_train.storage import checkpoints as checkpoint
from ps_train.storage import folder_record
from ps_train.storage.folder_lock import FolderLock

_DYING_SECS = 2.0  # from the loss of its connections to that of its port
_POLL_SECS = 0.1
# What TensorFlow says when a peer or its server is gone, and what follows from that in other threads.
_LOSSES = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError)
_log = logging.getLogger(__name__)


def train(config: KerasConfig, cluster: Cluster | None, loaded: KerasPlugins, stop: threading.Event) -> None:
    """Trains to the end; the chief evaluates and reports.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    loaded.dataset.prepare(loaded.dataset_params)
    checkpoint.check_writable(config.train_dir)
    lock = FolderLock(config.train_dir, config.beat_timeout_secs, stop)
    with contextlib.ExitStack() as stack:
        if cluster is None or cluster.is_chief:
            stack.enter_context(lock.holding())
            _check_record(config, loaded)
        _train(config, cluster, loaded, lock, stop)


def _check_record(config: KerasConfig, loaded: KerasPlugins) -> None:
    record = folder_record.describe(*loaded)
    if saving.has_training(config.train_dir):
        folder_record.check(config.train_dir, record)
    folder_record.write(config.train_dir, record)


def _train(
    config: KerasConfig, cluster: Cluster | None, loaded: KerasPlugins, lock: FolderLock, stop: threading.Event
) -> None:
    trainer = _Trainer(config, cluster, loaded, lock, watchdog.Pulse(), stop)
    if cluster is None:
        trainer.run()
        return
    ports.release_held_port()
    ports.check_port(cluster.task)
    if config.strategy == "multi_worker_mirrored":
        rendezvous.meet(cluster.task, roles.peers(cluster), config.start_timeout_secs, stop)
    else:
        reachability.for_tasks(roles.servers(cluster), config.start_timeout_secs, stop)
    with _losses_told(cluster, config.train_dir, stop):
        watchdog.guard(trainer.run, trainer.pulse, lambda: _who_is_missing(
            cluster, "all of them can be reached, so one stands still; look at their logs"))


def _who_is_missing(cluster: Cluster, otherwise: str) -> str:
    """Returns who cannot be reached, in words; a process that is dying may still be there when its peers lose it."""
    end_secs = time.monotonic() + _DYING_SECS
    while not (missing := [str(task) for task in roles.peers(cluster) if not reachability.accepts(task.address)]):
        if time.monotonic() >= end_secs:
            return otherwise
        time.sleep(_POLL_SECS)
    return f"{', '.join(missing)} cannot be reached; look at its log"


@contextlib.contextmanager
def _losses_told(cluster: Cluster, train_dir: str, stop: threading.Event) -> Iterator[None]:
    try:
        yield
    except _LOSSES as error:
        if stop.is_set():
            raise StoppedError(f"told to stop, as another task was; with --train_dir={shlex.quote(train_dir)} it "
                               "continues from the last backup") from error
        who = _who_is_missing(cluster, "all of them can be reached again")
        raise ClusterLostError(f"{cluster.task.name} lost another task ({type(error).__name__}): {who}") from error


class _Trainer:
    """One run of training in this process."""

    def __init__(
        self, config: KerasConfig, cluster: Cluster | None, loaded: KerasPlugins, lock: FolderLock,
        pulse: watchdog.Pulse, stop: threading.Event,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._loaded = loaded
        self._lock = lock
        self._stop = stop
        self._is_chief = cluster is None or cluster.is_chief
        self.pulse = pulse

    def run(self) -> None:
        """Trains, evaluates, reports."""
        if self._config.strategy != "parameter_server":
            self._run()
            return
        verdict = servers.FAILED
        try:
            self._run()
            verdict = servers.DONE
        finally:
            servers.tell(roles.servers(self._cluster), verdict)

    def _run(self) -> None:
        config, loaded = self._config, self._loaded
        with rendezvous.bounded_without_python(config.start_timeout_secs):
            strategy = factory.make(config, self._cluster)
        self.pulse.expect("the other tasks", config.start_timeout_secs)
        if config.seed is not None:
            tf_keras.utils.set_random_seed(config.seed)
        if self._is_chief:
            _log.info("%s", factory.summary(strategy, config, self._cluster))
        with strategy.scope():
            model = saving.make_or_restore_model(loaded.model, loaded.model_params, config.train_dir)
        saving.check_readable(model, loaded.model)
        span = self._train(strategy, model)
        # The chief's own bound comes first, for its counting and its evaluation, so that the others hear its word.
        self.pulse.expect("the chief's evaluation", 2 * config.eval_timeout_secs + config.step_timeout_secs)
        if self._is_chief:
            evaluation.report(config, loaded, span, factory.global_batch_size(strategy, config))
        if config.strategy == "multi_worker_mirrored":  # nobody leaves before the chief is done
            inputs.sum_over_replicas(strategy, 0)

    def _train(self, strategy: tf.distribute.Strategy, model: tf_keras.Model) -> Span:
        config = self._config
        first_step = int(model.optimizer.iterations.numpy())
        plan = make_plan(config.train_steps, config.steps_per_epoch, first_step)
        begin = saving.begin_of_epochs(config.train_dir, plan.steps_per_epoch, first_step)
        plan = make_plan(config.train_steps, config.steps_per_epoch, begin)
        self._check_agreement(strategy, plan)
        keeper = saving.Keeper(config, self._loaded.model, self._loaded.model_params, self._is_chief, self._lock)
        task = Task(config, self._loaded, self._is_chief, self._cluster is None, self.pulse, self._stop, keeper,
                    self._lock)
        if config.strategy == "multi_worker_mirrored":
            # Else Keras sums what it shows over the workers after every batch: one all-reduce more, and a wrong number.
            model.distribute_reduction_method = "first"
        if self._loaded.model.has_own_loop:
            return custom_loops.train(task, strategy, model, plan)
        return fitting.fit(task, strategy, model, plan)

    def _check_agreement(self, strategy: tf.distribute.Strategy, plan: Plan) -> None:
        """Raises ConfigError where the workers would train on from different states."""
        if self._config.strategy != "multi_worker_mirrored":
            return
        own = saving.state_number(self._config.train_dir, plan.steps_per_epoch)
        if inputs.sum_over_replicas(strategy, own) != own * strategy.num_replicas_in_sync:
            raise ConfigError(f"--train_dir: the workers found different checkpoints ({self._cluster.task.name} those "
                              f"of {self._config.train_dir}); multi_worker_mirrored needs one folder that all of them "
                              "can read, and the same --train_steps and --steps_per_epoch")
