"""A process that trains: the only one, a worker of multi_worker_mirrored, or the coordinator of parameter_server.

    strategy --> model, new or restored --> Model.fit, or the plug-in's own loop
             --> the chief evaluates the checkpoint and reports --> the other tasks may end
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
from ps_train.config.groups import parse_accepted
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.storage import backups, keras_checkpoints
from ps_train.parts.keras.strategies import factory, rendezvous, roles, servers, watchdog
from ps_train.parts.keras.training import custom_loops, final_report, fitting
from ps_train.parts.keras.training.inputs import KerasInputs, sum_over_replicas
from ps_train.parts.keras.training.planning import EpochPlan, TrainingContext, TrainingSpan, global_step, plan_epochs
from ps_train.storage import checkpoints, folder_record
from ps_train.storage.folder_lock import FolderLock

_DYING_SECS = 2.0  # from the loss of a task's connections to that of its port
_POLL_SECS = 0.1
# What TensorFlow raises when a peer or its server is gone, and what follows from that in other threads.
_LOSSES = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError)
_log = logging.getLogger(__name__)


def run_training(
    config: KerasConfig, cluster: Cluster | None, plugins: KerasPlugins, stop: threading.Event
) -> None:
    """Trains to the end; the chief evaluates and reports.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    plugins.dataset.prepare(plugins.dataset_params)
    checkpoints.check_writable(config.train_dir)
    lock = FolderLock(config.train_dir, config.beat_timeout_secs, stop)
    is_chief = cluster is None or cluster.is_chief
    saver = keras_checkpoints.ModelSaver(config, plugins, is_chief, lock)
    context = TrainingContext(config, cluster, plugins, lock, saver, stop)
    with contextlib.ExitStack() as stack:
        if is_chief:
            stack.enter_context(lock.holding())
            record = folder_record.make_record(*plugins)
            if keras_checkpoints.has_training(config.train_dir):
                folder_record.check_record(config.train_dir, record,
                                           parse_accepted("--accept_params", config.accept_params))
            folder_record.write_record(config.train_dir, record)
            backups.set_damaged_aside(config.train_dir)
        if cluster is None:
            _train_and_report(context)
        else:
            _train_in_cluster(context, cluster)


def _train_in_cluster(context: TrainingContext, cluster: Cluster) -> None:
    config, stop = context.config, context.stop
    ports.release_held_port()
    ports.check_port(cluster.task)
    if config.strategy == "multi_worker_mirrored":
        rendezvous.meet(cluster.task, roles.peers(cluster), config.start_timeout_secs, stop)
        body = _train_and_report
    else:
        reachability.wait_for_tasks(roles.servers(cluster), config.start_timeout_secs, stop)
        body = _coordinate
    with _losses_explained(cluster, config.train_dir, stop):
        watchdog.run_watched(lambda: body(context), context.pulse, lambda: _who_is_missing(
            cluster, "all of them can be reached, so one of them hangs; look at their logs"))


def _who_is_missing(cluster: Cluster, otherwise: str) -> str:
    """Says who cannot be reached; asks for some time, because a dying process may still accept connections."""
    end_secs = time.monotonic() + _DYING_SECS
    while not (missing := [str(task) for task in roles.peers(cluster) if not reachability.accepts(task.address)]):
        if time.monotonic() >= end_secs:
            return otherwise
        time.sleep(_POLL_SECS)
    return f"{', '.join(missing)} cannot be reached; look at its log"


@contextlib.contextmanager
def _losses_explained(cluster: Cluster, train_dir: str, stop: threading.Event) -> Iterator[None]:
    """Turns TensorFlow's errors about a lost task into one line that names it."""
    try:
        yield
    except _LOSSES as error:
        if stop.is_set():
            raise StoppedError(f"told to stop, as another task was; with --train_dir={shlex.quote(train_dir)} it "
                               "continues from the last backup") from error
        who = _who_is_missing(cluster, "all of them can be reached again")
        raise ClusterLostError(f"{cluster.task.name} lost another task ({type(error).__name__}): {who}") from error


def _coordinate(context: TrainingContext) -> None:
    """Trains as the coordinator of parameter_server, and tells the servers when it ends."""
    verdict = servers.FAILED
    try:
        _train_and_report(context)
        verdict = servers.DONE
    finally:
        servers.tell(roles.servers(context.cluster), verdict)


def _train_and_report(context: TrainingContext) -> None:
    config, plugins, pulse = context.config, context.plugins, context.pulse
    with rendezvous.bounded_without_python(config.start_timeout_secs):
        strategy = factory.make_strategy(config, context.cluster)
    pulse.expect("the other tasks", config.start_timeout_secs)
    if config.seed is not None:
        tf_keras.utils.set_random_seed(config.seed)
    if context.is_chief:
        _log.info("%s", factory.describe_strategy(strategy, config, context.cluster))
    with strategy.scope():
        model = keras_checkpoints.make_or_restore_model(plugins.model, plugins.model_params, config.train_dir)
    keras_checkpoints.check_readable(model, plugins.model)
    span = _train(context, strategy, model)
    # The chief's own limits, for its counting and its evaluation, expire first: so the others hear from it.
    pulse.expect("the chief's evaluation", 2 * config.eval_timeout_secs + config.step_timeout_secs)
    if context.is_chief:
        final_report.report_newest(config, plugins, span, factory.global_batch_size(strategy, config))
    if config.strategy == "multi_worker_mirrored":  # nobody leaves before the chief is done
        sum_over_replicas(strategy, 0)


def _train(context: TrainingContext, strategy: tf.distribute.Strategy, model: tf_keras.Model) -> TrainingSpan:
    config, plugins, step = context.config, context.plugins, global_step(model)
    plan = plan_epochs(config.train_steps, config.steps_per_epoch, step)
    if config.strategy == "multi_worker_mirrored":
        _check_agreement(context, strategy, plan)
        # Else Keras sums its metrics over the workers after each batch: one more all-reduce, and a wrong number.
        model.distribute_reduction_method = "first"
    if not plugins.model.has_own_loop:  # which knows no backups
        begin = keras_checkpoints.begin_of_epochs(config.train_dir, plan.steps_per_epoch, step)
        plan = plan_epochs(config.train_steps, config.steps_per_epoch, begin)
    if plan.first_epoch == plan.epochs:
        _log.info("nothing to train: the global step is %d, and --train_steps=%d", step, config.train_steps)
        span = TrainingSpan(step, 0.0)
    else:
        context.pulse.expect("the held-out data to be counted", 2 * config.eval_timeout_secs)
        feed = KerasInputs(config, plugins.dataset, plugins.dataset_params).feed(strategy)
        train = custom_loops.train_by_loop if plugins.model.has_own_loop else fitting.fit
        span = train(context, strategy, model, plan, feed)
    if context.is_chief:
        context.lock.check()
        keras_checkpoints.remove_backup(config.train_dir, plan.steps_per_epoch)
    return span


def _check_agreement(context: TrainingContext, strategy: tf.distribute.Strategy, plan: EpochPlan) -> None:
    """Raises ConfigError if the workers would continue from different states."""
    train_dir = context.config.train_dir
    own = keras_checkpoints.state_number(train_dir, plan.steps_per_epoch)
    if sum_over_replicas(strategy, own) != own * strategy.num_replicas_in_sync:
        raise ConfigError(f"--train_dir: the workers found different checkpoints ({context.cluster.task.name} those "
                          f"of {train_dir}); multi_worker_mirrored needs one folder that all of them can read, and the "
                          "same --train_steps and --steps_per_epoch")
