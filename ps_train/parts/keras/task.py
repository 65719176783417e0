"""One process of `ps_train keras` from start to end: start reading here.

    no cluster            train
    multi_worker_mirrored train; the chief also evaluates and reports
    parameter_server      the chief coordinates, evaluates and reports; a ps or worker serves it

    to train:  strategy --> model, new or restored --> Model.fit, or the plug-in's loop
                        --> the chief evaluates the checkpoint and reports --> the other tasks may end
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
import time
import zlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from ps_train.cluster import ports, reachability
from ps_train.cluster.spec import Cluster
from ps_train.config.groups import parse_accepted
from ps_train.errors import ClusterLostError, ConfigError, PsTrainError, StoppedError
from ps_train.graph import extensions
from ps_train.parts import table
from ps_train.parts.keras import callbacks, checkpoints, custom_loops, fitting, readable, strategies
from ps_train.parts.keras.fitting import EpochPlan, ModelTraining, TrainingContext
from ps_train.parts.keras.flags import KerasConfig, peers
from ps_train.parts.keras.inputs import KerasInputs, sum_over_replicas
from ps_train.parts.keras.plugins import KerasModel, KerasPlugins, load_keras_plugins
from ps_train.parts.readers.bad_records import noting
from ps_train.plugins.contracts import TRAIN
from ps_train.runtime import logs, waits
from ps_train.runtime.reports import Evaluation, evaluation_fields
from ps_train.storage import checkpoints as graph_checkpoints
from ps_train.storage import folder_record
from ps_train.storage.folder_lock import FolderLock

# The errors of TensorFlow when a peer or its server is lost, and their consequences in other threads.
_LOSSES = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError)
# With other ones, workers of multi_worker_mirrored would wait for each other at other steps, or read examples twice.
_SHARED_FLAGS = ("train_steps", "steps_per_epoch", "batch_size", "seed", "save_model_steps", "validation_epochs",
                 "validation_steps", "steps_per_execution", "model", "dataset")
_ALONE = Cluster("worker", 0, {})  # of a strategy of one process
_log = logging.getLogger(__name__)


def run_keras_task(config: KerasConfig, cluster: Cluster | None, stop: threading.Event) -> None:
    """Runs this task to its end; raises a PsTrainError with the exit code of the failure."""
    checkpoints.save_alike_in_all_threads()
    plugins = load_keras_plugins(config)
    is_chief = cluster is None or cluster.is_chief
    if config.strategy == "parameter_server" and not is_chief:
        strategies.serve_coordinator(config, cluster, stop)
        return
    plugins.dataset.prepare(plugins.dataset_params)
    with table.located(config, cluster or _ALONE, stop) as located_config:
        lock = FolderLock(located_config.train_dir, config.beat_timeout_secs, stop)
        saver = checkpoints.ModelSaver(located_config, plugins, is_chief, lock)
        context = TrainingContext(located_config, cluster, plugins, saver, stop)
        with _holding(lock, located_config, plugins) if is_chief else contextlib.nullcontext():
            if cluster is None:
                _train_and_report(context)
            else:
                _train_in_cluster(context, cluster, config.train_dir)


@contextlib.contextmanager
def _holding(lock: FolderLock, config: KerasConfig, plugins: KerasPlugins) -> Iterator[None]:
    """Holds the lock of the folder while its body runs; the folder has no checkpoint of another training."""
    graph_checkpoints.check_writable(config.train_dir)
    with lock.holding():
        _check_record(config, plugins)
        folder_record.write_record(config.train_dir, folder_record.make_record(*plugins))
        yield


def download_data(config: KerasConfig) -> None:
    """Fetches and checks the dataset's files and --train_dir; in a cluster also builds model and input."""
    plugins = load_keras_plugins(config)
    plugins.dataset.prepare(plugins.dataset_params)
    if "train_dir" in config.given:
        with table.located(config, None, threading.Event()) as located_config:
            _check_record(located_config, plugins)
    if config.job_name is not None:
        checkpoints.build_model(plugins.model, plugins.model_params)
        KerasInputs(config, plugins.dataset, plugins.dataset_params).batches(TRAIN)


def _check_record(config: KerasConfig, plugins: KerasPlugins) -> None:
    if checkpoints.checkpoint_paths(config.train_dir) or graph_checkpoints.paths(config.train_dir):
        folder_record.check_record(config.train_dir, folder_record.make_record(*plugins),
                                   parse_accepted("--accept_params", config.accept_params))


def _train_in_cluster(context: TrainingContext, cluster: Cluster, train_dir: str) -> None:
    """Trains with the other tasks; `train_dir` is what the user calls the folder."""
    config, stop = context.config, context.stop
    ports.release_held_port()
    ports.check_port(cluster.task)
    servers = peers(cluster) if config.strategy == "parameter_server" else []
    if servers:
        reachability.wait_for_tasks(servers, config.start_timeout_secs, stop)
    else:
        strategies.meet(cluster.task, peers(cluster), config.start_timeout_secs, stop)

    def train() -> None:
        with strategies.ending_servers(servers):
            _train_and_report(context)

    with _explaining_losses(cluster, train_dir, stop):
        strategies.run_watched(train, context.pulse, lambda: strategies.who_is_missing(
            cluster, "all of them can be reached, so one of them hangs; look at their logs"))


@contextlib.contextmanager
def _explaining_losses(cluster: Cluster, train_dir: str, stop: threading.Event) -> Iterator[None]:
    """Turns TensorFlow's errors about a lost task into one line that names it."""
    try:
        yield
    except _LOSSES as error:
        if stop.is_set():
            raise StoppedError("stopped", "stopped, as another task was; with "
                               f"--train_dir={shlex.quote(train_dir)} it continues from the last checkpoint"
                               ) from error
        who = strategies.who_is_missing(cluster, "all of them can be reached again")
        raise ClusterLostError("task_lost",
                               f"{cluster.task.name} lost another task ({type(error).__name__}): {who}") from error


@contextlib.contextmanager
def _explaining_data() -> Iterator[None]:
    """Turns an error of TensorFlow that a reader of files knows, such as a malformed line, into one line."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        # Without a graph of their own, readers are in the default graph of the thread that calls input_fn.
        extensions.explain_error(tf.compat.v1.get_default_graph(), error, "keras")
        raise


@_explaining_data()
def _train_and_report(context: TrainingContext) -> None:
    config, plugins, pulse = context.config, context.plugins, context.pulse
    with strategies.bounded_without_python(config.start_timeout_secs):
        strategy = strategies.make_strategy(config, context.cluster)
    pulse.expect("the other tasks", config.start_timeout_secs)
    if config.seed is not None:
        tf_keras.utils.set_random_seed(config.seed)
    if context.is_chief:
        _log.info("%s", strategies.describe_strategy(strategy, config, context.cluster))
    newest = checkpoints.load_newest(plugins.model, config.train_dir) if context.is_chief else None
    with strategy.scope():
        model = checkpoints.build_model(plugins.model, plugins.model_params)
        first_step = 0 if newest is None else checkpoints.restore_model(model, newest)
        if config.strategy == "multi_worker_mirrored":
            first_step = checkpoints.share_state(model, first_step, strategy, context.is_chief, pulse.beat)
    readable.check_readable(model, plugins.model)
    if context.is_chief:
        _warn_of_executions(model, config, plugins.model)
    secs = _train(context, strategy, model, first_step)
    # The chief's own limits, for its counting and its evaluation, expire first, so the others report its error.
    pulse.expect("the chief's evaluation", 2 * config.eval_timeout_secs + config.step_timeout_secs)
    if context.is_chief:
        evaluation = _evaluate_newest(config, plugins)
        logs.show(evaluation.format(), **evaluation_fields(evaluation))
        num_examples = (evaluation.global_step - first_step) * strategies.global_batch_size(strategy, config)
        if num_examples > 0:
            logs.show(f"Training took {secs:.2f} s, {num_examples / max(secs, 1e-9):.0f} examples per second over all "
                      "workers")
    if config.strategy == "multi_worker_mirrored":  # no worker leaves before the chief is done
        sum_over_replicas(strategy, 0)


def _warn_of_executions(model: tf_keras.Model, config: KerasConfig, plugin: KerasModel) -> None:
    """Warns if the model was not compiled for the number of steps that the user asks for."""
    if "steps_per_execution" not in config.given or plugin.has_own_loop:
        return
    # The compile configuration of a class with its own compile need not have it.
    steps = model.steps_per_execution
    compiled = "auto" if model.autotune_steps_per_execution else 1 if steps is None else int(steps.numpy())
    if compiled != config.steps_per_execution:
        _log.warning("--steps_per_execution=%d: %s.build_model has compiled the model for %s; give compile "
                     'steps_per_execution=params["steps_per_execution"]', config.steps_per_execution,
                     plugin.name, compiled)


def _train(context: TrainingContext, strategy: tf.distribute.Strategy, model: tf_keras.Model, step: int) -> float:
    """Trains from a global step; returns the seconds that it took."""
    config, plugins = context.config, context.plugins
    plan = fitting.plan_epochs(config.train_steps, config.steps_per_epoch, step)
    if config.strategy == "multi_worker_mirrored":
        _check_agreement(context, strategy, plan)
        # Else Keras sums its metrics over the workers after each batch: one more all-reduce, and a wrong number.
        model.distribute_reduction_method = "first"
    if plan.first_epoch == plan.epochs:
        _log.info("nothing to train: the global step is %d, and --train_steps=%d; give a larger one, or another "
                  "--train_dir", step, config.train_steps)
        return 0.0
    context.pulse.expect("the held-out data to be counted", 2 * config.eval_timeout_secs)
    inputs, has_own_loop = KerasInputs(config, plugins.dataset, plugins.dataset_params), plugins.model.has_own_loop
    feed = inputs.feed(strategy, fails_at_end=not has_own_loop)
    context.pulse.expect("a step of training", config.step_timeout_secs)
    start_secs = time.monotonic()
    train = custom_loops.train_by_loop if has_own_loop else fitting.fit
    try:
        train(ModelTraining(context, strategy, model, plan, feed, step))
    finally:
        for reader in feed.readers:
            reader.report(None, context.cluster.task.name if context.cluster else "training")
    return time.monotonic() - start_secs


def _check_agreement(context: TrainingContext, strategy: tf.distribute.Strategy, plan: EpochPlan) -> None:
    """Raises ConfigError if the workers would train other steps, or read other examples."""
    values = {name: getattr(context.config, name) for name in _SHARED_FLAGS}
    # With them, the plan is the same, too: the step at which training begins is the chief's for all.
    numbers = {f"--{name}": zlib.crc32(repr((name, value)).encode()) for name, value in values.items()}

    def differs(number: int) -> bool:
        return sum_over_replicas(strategy, number) != number * strategy.num_replicas_in_sync

    if differs(sum(numbers.values())):
        names = [name for name, number in numbers.items() if differs(number)]  # each worker asks the others for all
        own = ", ".join(f"{name}={values[name[2:]]}" for name in names)
        raise ConfigError("worker_flags_differ",
                          f"{', '.join(names)}: the workers have different ones; {context.cluster.task.name} has {own} "
                          f"and trains {plan.epochs} epochs of {plan.steps_per_epoch} steps; give all of them the same")


def _evaluate_newest(config: KerasConfig, plugins: KerasPlugins) -> Evaluation:
    """Returns the metrics of the newest checkpoint on the whole held-out set."""
    newest = checkpoints.newest_readable(config.train_dir)
    if newest is None:
        raise PsTrainError("no_checkpoint", f"no checkpoint in {config.train_dir} could be evaluated")
    step, path = newest
    model = checkpoints.load_model_file(path, plugins.model.objects)
    inputs = KerasInputs(config, plugins.dataset, plugins.dataset_params)
    with noting() as readers:
        batches, steps, num_examples = inputs.counted_eval_batches()
    for reader in readers:
        reader.restart_count()  # counting the batches has read the same records
    try:
        values = waits.bounded(lambda: model.evaluate(batches, steps=steps, verbose=0, return_dict=True),
                               config.eval_timeout_secs, "the evaluation")
    except ClusterLostError as error:
        raise PsTrainError("eval_timed_out", f"--eval_timeout_secs: {error} of {path}; training is saved: give more "
                           "time, and the same command evaluates again") from error
    for reader in readers:
        reader.report(None, "evaluation")
    loss_name = getattr(model.loss, "name", None) or getattr(model.loss, "__name__", "loss")
    num_examples = int(num_examples)
    loss_sum = num_examples * fitting.loss_of(values, plugins.model.name, "test_step")
    metrics = callbacks.single_values({name: value for name, value in values.items() if name != "loss"})
    return Evaluation(step, num_examples, loss_name.replace("_", " "), loss_sum, metrics)
