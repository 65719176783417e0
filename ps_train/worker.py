"""The life of a worker: it trains; the chief besides saves, evaluates and says that training is done."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ps_train import (
    blackboard,
    checkpoint,
    choices,
    ending,
    evaluate,
    fingerprint,
    graph,
    logs,
    optimizer,
    placement,
    plugins,
    profile,
    saving,
    server,
    session,
    train,
    waiting,
)
from ps_train.beats import Beats
from ps_train.cluster import Cluster
from ps_train.config import Config
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.progress import End, Outcome
from ps_train.snapshot import State

_log = logging.getLogger(__name__)


class Plugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: plugins.Model
    model_params: dict[str, Any]
    dataset: plugins.Dataset
    dataset_params: dict[str, Any]


def load_plugins(config: Config) -> Plugins:
    """Imports and checks the plug-ins that the configuration names.

    Raises:
      ConfigError: one is missing or has another contract, or --params does not fit them.
    """
    model, dataset = plugins.load_model(config.model), plugins.load_dataset(config.dataset)
    shared = {name: getattr(config, name)
              for name in ("batch_size", "data_dir", "hidden_units", "learning_rate", "seed")}
    model_params, dataset_params = plugins.resolve_params(config.params, [model, dataset], shared)
    return Plugins(model, model_params, dataset, dataset_params)


def work(config: Config, cluster: Cluster, loaded: Plugins, stop: threading.Event) -> None:
    """Lives the life of a worker.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    loaded.dataset.prepare(loaded.dataset_params)
    train_graph = _build_graph(config, cluster, loaded)
    evaluator = _prepare_chief(config, loaded, train_graph) if cluster.is_chief else None
    target = f"grpc://{cluster.task.address}" if config.existing_servers else server.start(cluster, config.num_gpus)
    with contextlib.closing(blackboard.of_worker(target, cluster)) as board:
        beats = _claim(config, cluster, board, stop)
        with beats.going_on(), _telling_of_failure(config, cluster, board):
            outcome = _train(config, cluster, target, train_graph, board, beats, stop)
            _report(outcome, config)
            if evaluator is not None:
                _finish(config, cluster, board, outcome,
                        lambda: _evaluate(evaluator, config, outcome, train_graph.update, stop))
    if outcome.end is End.SIGNAL:
        raise StoppedError(f"told to stop at step {outcome.global_step}; the same command continues from there")


def _prepare_chief(config: Config, loaded: Plugins, train_graph: graph.TrainGraph) -> evaluate.Evaluator:
    """Says where the variables are, and finds what would end the chief later.

    That is: a bad train_dir, another model's checkpoint, a bad evaluation graph.

    Raises:
      ConfigError: the train_dir cannot be written to.
      UserCodeError: the checkpoint there is of another model, or the model cannot be built for evaluation.
    """
    for line in placement.table(train_graph.saved_variables):
        _log.info(line)
    checkpoint.check_writable(config.train_dir)
    path = checkpoint.newest_sound(config.train_dir)
    if path is not None:
        checkpoint.check_fits(path, train_graph.saved_variables)
    return evaluate.Evaluator(*loaded)


def _finish(
    config: Config, cluster: Cluster, board: blackboard.Blackboard, outcome: Outcome, report: Callable[[], None]
) -> None:
    """Says to the cluster, as the chief, that it may end, after the report; to existing servers, that they are free."""
    if outcome.end is not End.SIGNAL:
        report()
        _tell_steps(cluster, board)
    if config.existing_servers:
        board.announce(State.IDLE)
    elif outcome.end is not End.SIGNAL:
        board.announce_done()


def _build_graph(config: Config, cluster: Cluster, loaded: Plugins) -> graph.TrainGraph:
    has_gpu = server.gpu_index(cluster, config.num_gpus) is not None
    worker_device = cluster.task.device + ("/gpu:0" if has_gpu else "/cpu:0")
    if cluster.is_elastic and config.seed is not None:  # all draw from the same data: not in the same order
        own_params = {**loaded.dataset_params, "seed": config.seed + cluster.worker_number}
        loaded = loaded._replace(dataset_params=own_params)
    return graph.build(cluster, worker_device, *loaded, choices.of_updates(config, cluster),
                       choices.of_placement(config), choices.of_staleness(config, cluster), config.seed,
                       config.steps_per_execution)


def _claim(config: Config, cluster: Cluster, board: blackboard.Blackboard, stop: threading.Event) -> Beats:
    """Makes this process the worker of its number."""
    waiting.for_tasks(cluster.ps, config.start_timeout_secs, stop)
    beats = Beats(board, cluster.task, cluster.worker_number, stop, has_bound=not config.existing_servers)
    with contextlib.closing(blackboard.of_client(cluster)) as visitor:
        beats.claim(visitor, config.beat_timeout_secs, config.start_timeout_secs)
    return beats


def _train(
    config: Config, cluster: Cluster, target: str, train_graph: graph.TrainGraph, board: blackboard.Blackboard,
    beats: Beats, stop: threading.Event,
) -> Outcome:
    schedule = train.Schedule(
        config.train_steps, config.batch_size, config.log_steps, config.save_summaries_steps,
        config.step_timeout_secs, config.on_nan, choices.of_staleness(config, cluster))
    saves = saving.Schedule(
        config.save_model_secs, config.save_model_steps, config.keep_checkpoint_max, config.save_timeout_secs)
    settings = session.Settings(config.train_dir, saves, config.start_timeout_secs,
                                config.beat_timeout_secs, config.end_timeout_secs)
    own = fingerprint.describe(cluster, choices.shared(config), train_graph.saved_variables,
                               train_graph.update.packed.places())
    supervised = session.SupervisedTraining(cluster, target, train_graph, board, beats, settings, stop, own)

    profiled = profile.of_worker(config.steps_to_profile, target, cluster, beats, config.train_dir)

    def train_once(live: Any, write_summary: Any) -> Outcome:
        traced = profiled.of_session(live, train_graph)
        outcome = train.Loop(traced, train_graph, schedule, stop, write_summary, beats).run()
        profiled.finish()
        return outcome

    with contextlib.closing(profiled), _giving_way(config, cluster, beats):
        return supervised.run(train_once)


@contextlib.contextmanager
def _giving_way(config: Config, cluster: Cluster, beats: Beats) -> Iterator[None]:
    """Ends this process where another one has taken its place, which stops its training like a signal.

    Raises:
      ClusterLostError: so it is, however the body ended.
    """
    ended: StoppedError | None = None
    try:
        yield
    except StoppedError as error:
        ended = error
    if beats.is_replaced:
        raise ClusterLostError(f"another process has taken the place of {cluster.task}, which was not heard of for "
                               f"{config.beat_timeout_secs:g} s; this one ends") from ended
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
        with contextlib.suppress(blackboard.BlackboardError):
            call()
            return


def _report(outcome: Outcome, config: Config) -> None:
    if outcome.local_steps:
        rate = outcome.local_steps * config.batch_size / max(outcome.elapsed_secs, 1e-9)
        _log.info("training ended at step %d: %s; this worker did %d steps in %.2f s, %.0f examples/s",
                  outcome.global_step, outcome.end.value, outcome.local_steps, outcome.elapsed_secs, rate)
        _log.info("%s", outcome.staleness)
    elif outcome.end is End.STEPS:
        _log.info("nothing to train: the global step is %d, and --train_steps=%d", outcome.global_step,
                  config.train_steps)
    else:
        _log.info("this worker took no step: %s", outcome.end.value)


def _tell_steps(cluster: Cluster, board: blackboard.Blackboard) -> None:
    try:
        logs.show(ending.steps_table(cluster, board.snapshot()))
    except blackboard.BlackboardError as error:
        _log.warning("who took how many steps is not known: %s", error)


def _evaluate(
    evaluator: evaluate.Evaluator, config: Config, outcome: Outcome, update: optimizer.Update, stop: threading.Event
) -> None:
    path = checkpoint.newest_sound(config.train_dir)
    evaluation = evaluate.within(config.eval_timeout_secs, evaluator, path, stop)
    evaluate.write_summaries(evaluation, config.train_dir)
    logs.show(evaluation.format())
    steps = evaluation.global_step - outcome.first_step
    if steps:
        rate = steps * update.gradients_per_step * config.batch_size / max(outcome.elapsed_secs, 1e-9)
        logs.show(f"Training took {outcome.elapsed_secs:.2f} s, {rate:.0f} examples per second over all workers")
