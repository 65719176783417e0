"""The life of a worker: it trains; the chief besides saves, evaluates and says that training is done."""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ps_train import errors
from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import agreement, blackboard, fingerprint
from ps_train.coordination.heartbeat import Beats
from ps_train.coordination.state import State
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.graph import devices, placement
from ps_train.plugins import contracts
from ps_train.profile import recorder
from ps_train.runtime import reports
from ps_train.runtime.reports import Stage
from ps_train.storage import checkpoints, folder_record, saver
from ps_train.storage.folder_lock import FolderLock
from ps_train.tasks import server
from ps_train.tasks import settings as choices
from ps_train.training import evaluation as evaluate
from ps_train.training import loop, recovery, replica_graph, shutdown
from ps_train.training.outcome import End, Outcome
from ps_train.training.reporting import Report
from ps_train.updates.update import Update

_log = logging.getLogger(__name__)


class Plugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: contracts.Model
    model_params: dict[str, Any]
    dataset: contracts.Dataset
    dataset_params: dict[str, Any]


def load_plugins(config: Config) -> Plugins:
    """Imports and checks the plug-ins that the configuration names.

    Raises:
      ConfigError: one is missing or has another contract, or --params does not fit them.
    """
    model, dataset = contracts.load_model(config.model), contracts.load_dataset(config.dataset)
    shared = {name: getattr(config, name)
              for name in ("batch_size", "data_dir", "hidden_units", "learning_rate", "seed")}
    model_params, dataset_params = contracts.resolve_params(config.params, [model, dataset], shared)
    return Plugins(model, model_params, dataset, dataset_params)


def check_graphs(config: Config, cluster: Cluster, loaded: Plugins) -> None:
    """Builds the graphs of training and of evaluation, and opens no socket.

    Raises:
      PsTrainError: a plug-in breaks its contract, or a flag does not fit.
      Exception: whatever a plug-in raises.
    """
    _build_graph(config, cluster, loaded)
    evaluate.Evaluator(*loaded)


def work(config: Config, cluster: Cluster, loaded: Plugins, report: Report, stop: threading.Event) -> None:
    """Lives the life of a worker.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    loaded.dataset.prepare(loaded.dataset_params)
    report.device(_device(config, cluster))
    train_graph = _build_graph(config, cluster, loaded)
    lock = FolderLock(config.train_dir, config.beat_timeout_secs, stop)
    with contextlib.ExitStack() as stack:
        if cluster.is_chief:
            checkpoints.check_writable(config.train_dir)
            stack.enter_context(lock.holding())
        _work(config, cluster, loaded, train_graph, lock, report, stop)


def _work(
    config: Config, cluster: Cluster, loaded: Plugins, train_graph: replica_graph.TrainGraph, lock: FolderLock,
    report: Report, stop: threading.Event,
) -> None:
    evaluator = _prepare_chief(config, cluster, loaded, train_graph) if cluster.is_chief else None
    target = f"grpc://{cluster.task.address}" if config.existing_servers else server.start(cluster, config.num_gpus)
    with contextlib.closing(blackboard.of_worker(target, cluster)) as board:
        beats = _claim(config, cluster, board, stop)
        with beats.going_on(), _telling_of_failure(config, cluster, board):
            outcome = _train(config, cluster, target, train_graph, board, beats, lock, report, stop)
            report.ended(outcome, config.train_steps, config.batch_size)
            if evaluator is not None:
                _finish(config, cluster, board, outcome, report,
                        lambda: _evaluate(evaluator, config, outcome, train_graph.update, report, stop))
    if outcome.end is End.SIGNAL:
        raise StoppedError(f"told to stop at step {outcome.global_step}; with "
                           f"--train_dir={shlex.quote(config.train_dir)} it continues from there")


def _prepare_chief(
    config: Config, cluster: Cluster, loaded: Plugins, train_graph: replica_graph.TrainGraph
) -> evaluate.Evaluator:
    """Says how large the model is, and finds what would go wrong later.

    That is: another model's checkpoint, a bad evaluation graph, an optimizer that loses updates.

    Raises:
      ConfigError: the checkpoint there is of another model, dataset or parameters.
      UserCodeError: the checkpoint there does not fit the variables, or the model cannot be built for evaluation.
    """
    path = checkpoints.newest_sound(config.train_dir)
    record = folder_record.describe(*loaded)
    if path is not None:
        folder_record.check(config.train_dir, record)
        checkpoints.check_fits(path, train_graph.saved_variables)
    folder_record.write(config.train_dir, record)
    _log.info(placement.summary(train_graph.saved_variables, len(cluster.ps)))
    for line in placement.table(train_graph.saved_variables) if config.log_placement else ():
        _log.info(line)
    if caution := choices.caution(config, cluster, train_graph.update.sparse):
        _log.warning("%s", caution)
    return evaluate.Evaluator(*loaded)


def _finish(
    config: Config, cluster: Cluster, board: blackboard.Blackboard, outcome: Outcome, report: Report,
    evaluate_last: Callable[[], None],
) -> None:
    """Evaluates, as the chief, and lets the cluster end; existing servers are free then."""
    if outcome.end is not End.SIGNAL:
        evaluate_last()
        _tell_steps(cluster, board, report)
    if config.existing_servers:
        board.announce(State.IDLE)
    elif outcome.end is not End.SIGNAL:
        board.announce_done()


def _build_graph(config: Config, cluster: Cluster, loaded: Plugins) -> replica_graph.TrainGraph:
    if cluster.is_elastic and config.seed is not None:  # all draw from the same data: not in the same order
        own_params = {**loaded.dataset_params, "seed": config.seed + cluster.worker_number}
        loaded = loaded._replace(dataset_params=own_params)
    return replica_graph.build(cluster, _device(config, cluster), *loaded, choices.of_updates(config, cluster),
                       choices.of_placement(config), choices.of_staleness(config, cluster), config.seed,
                       config.steps_per_execution)


def _device(config: Config, cluster: Cluster) -> str:
    """Returns where this worker computes; a server that is there already may have GPUs that this machine has not."""
    asked_for = config.num_gpus if config.existing_servers else None
    has_gpu = devices.gpu_index(cluster, config.num_gpus) is not None if asked_for is None else asked_for > 0
    return cluster.task.device + ("/gpu:0" if has_gpu else "/cpu:0")


def _claim(config: Config, cluster: Cluster, board: blackboard.Blackboard, stop: threading.Event) -> Beats:
    """Makes this process the worker of its number."""
    agreement.check(cluster, config.start_timeout_secs, stop, config.existing_servers)
    beats = Beats(board, cluster.task, cluster.worker_number, stop, has_bound=not config.existing_servers)
    with contextlib.closing(blackboard.of_client(cluster)) as visitor:
        beats.claim(visitor, config.beat_timeout_secs, config.start_timeout_secs)
    return beats


def _train(
    config: Config, cluster: Cluster, target: str, train_graph: replica_graph.TrainGraph, board: blackboard.Blackboard,
    beats: Beats, lock: FolderLock, report: Report, stop: threading.Event,
) -> Outcome:
    schedule = loop.Schedule(
        config.train_steps, config.batch_size, config.log_steps, config.save_summaries_steps,
        config.step_timeout_secs, config.on_nan, choices.of_staleness(config, cluster))
    saves = saver.Schedule(
        config.save_model_secs, config.save_model_steps, config.keep_checkpoint_max, config.save_timeout_secs)
    settings = recovery.Settings(config.train_dir, saves, config.start_timeout_secs,
                                config.beat_timeout_secs, config.end_timeout_secs)
    own = fingerprint.describe(cluster, choices.shared(config), train_graph.saved_variables,
                               train_graph.update.packed.places())
    supervised = recovery.SupervisedTraining(cluster, target, train_graph, board, beats, settings, stop, own,
                                            lock)

    profile = recorder.Profile(config.steps_to_profile, cluster.task.name, config.train_dir)

    def train_once(live: Any, write_summary: Any) -> Outcome:
        report.training()
        outcome = loop.Loop(live, train_graph, schedule, stop, write_summary, beats, report,
                            run_step=profile.run_step(live, train_graph.graph)).run()
        report.trained()
        if cluster.is_chief:
            report.stage(Stage(outcome.global_step, config.train_steps, reports.FINISHING))
        profile.finish()
        return outcome

    report.opening(target if config.existing_servers else "")
    with _giving_way(config, cluster, beats):
        return supervised.run(train_once)


@contextlib.contextmanager
def _giving_way(config: Config, cluster: Cluster, beats: Beats) -> Iterator[None]:
    """Ends this process where something but a signal has stopped its training, however the body ended.

    Raises:
      ClusterLostError: another process has taken its place.
      ConfigError: the tasks were told of different clusters.
    """
    ended: StoppedError | None = None
    try:
        yield
    except StoppedError as error:
        ended = error
    if beats.is_replaced:
        raise ClusterLostError(f"another process has taken the place of {cluster.task}, which was not heard of for "
                               f"{config.beat_timeout_secs:g} s; this one ends") from ended
    if beats.misfit:
        raise ConfigError(beats.misfit) from ended
    if ended:
        raise ended


@contextlib.contextmanager
def _telling_of_failure(config: Config, cluster: Cluster, board: blackboard.Blackboard) -> Iterator[None]:
    """Lets the others go on, or end, instead of waiting for a worker whose own code fails, its evaluation too.

    Without the chief they end. One that is lost, was told to stop or does not fit leaves the training as it is: it, or
    another in its place, may come back.
    """
    try:
        yield
    except (ClusterLostError, StoppedError, ConfigError):
        raise
    except Exception:
        if not cluster.is_chief:
            _tell(lambda: board.report_finished(cluster.worker_number))
        else:
            _tell(lambda: board.announce(State.IDLE if config.existing_servers else State.FAILED))
        raise


def _tell(call: Callable[[], None]) -> None:
    for _ in range(2):  # the first one may find that its session was lost
        with contextlib.suppress(errors.BlackboardError):
            call()
            return


def _tell_steps(cluster: Cluster, board: blackboard.Blackboard, report: Report) -> None:
    try:
        report.show(shutdown.steps_table(cluster, board.snapshot()))
    except errors.BlackboardError as error:
        _log.warning("who took how many steps is not known: %s", error)


def _evaluate(
    evaluator: evaluate.Evaluator, config: Config, outcome: Outcome, update: Update, report: Report,
    stop: threading.Event,
) -> None:
    report.stage(Stage(outcome.global_step, config.train_steps, reports.EVALUATING))
    path = checkpoints.newest_sound(config.train_dir)
    evaluation = evaluate.within(config.eval_timeout_secs, evaluator, path, stop)
    evaluate.write_summaries(evaluation, config.train_dir)
    report.evaluated(evaluation.global_step, evaluation.loss_sum, evaluation.format())
    steps = evaluation.global_step - outcome.first_step
    if steps:
        rate = steps * update.gradients_per_step * config.batch_size / max(outcome.elapsed_secs, 1e-9)
        report.show(f"Training took {outcome.elapsed_secs:.2f} s, {rate:.0f} examples per second over all workers")
