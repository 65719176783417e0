"""The life of a worker: it trains; the chief besides saves, evaluates and says that training is done."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, NamedTuple

from ps_train import blackboard, checkpoint, evaluate, graph, optimizer, plugins, saving, server, session, train
from ps_train.blackboard import State
from ps_train.cluster import Cluster
from ps_train.config import Config
from ps_train.errors import ConfigError, StoppedError
from ps_train.progress import End, Outcome

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
    if cluster.is_chief:
        checkpoint.check_writable(config.train_dir)
    loaded.dataset.prepare(loaded.dataset_params)
    train_graph = _build_graph(config, cluster, loaded)
    target = f"grpc://{cluster.task.address}" if config.existing_servers else server.start(cluster, config.num_gpus)
    with contextlib.closing(blackboard.of_worker(target, cluster)) as board:
        outcome = _train(config, cluster, target, train_graph, board, stop)
        _report(outcome, config.batch_size)
        if outcome.end is End.SIGNAL:
            raise StoppedError(f"told to stop at step {outcome.global_step}; the same command continues from there")
        if cluster.is_chief:
            _evaluate(config, loaded, outcome, config.batch_size * train_graph.update.gradients_per_step)
            if config.existing_servers:
                board.announce(State.IDLE)
            else:
                board.announce_done()


def _build_graph(config: Config, cluster: Cluster, loaded: Plugins) -> graph.TrainGraph:
    settings = optimizer.Settings(
        config.optimizer, config.learning_rate, _gradients_per_update(config, cluster), cluster.num_workers)
    has_gpu = server.gpu_index(cluster, config.num_gpus) is not None
    worker_device = cluster.task.device + ("/gpu:0" if has_gpu else "/cpu:0")
    return graph.build(cluster, worker_device, *loaded, settings, config.seed)


def _gradients_per_update(config: Config, cluster: Cluster) -> int | None:
    """Returns the number of gradients averaged into one update, or None for async."""
    if not config.sync_replicas:
        return None
    num_workers = cluster.num_workers
    if len(cluster.workers) < num_workers:
        raise ConfigError(f"--sync_replicas: TF_CONFIG names {len(cluster.workers)} of {num_workers} workers to this "
                          "task, so it cannot know how many gradients there are; name all, or train without this flag")
    gradients = config.replicas_to_aggregate or num_workers
    if gradients > num_workers:
        _log.warning("--replicas_to_aggregate=%d is more than the %d workers: each computes several mini-batches for "
                     "an update", gradients, num_workers)
    return gradients


def _train(
    config: Config, cluster: Cluster, target: str, train_graph: graph.TrainGraph, board: blackboard.Blackboard,
    stop: threading.Event,
) -> Outcome:
    schedule = train.Schedule(
        config.train_steps, config.batch_size, config.log_steps, config.save_summaries_steps,
        config.step_timeout_secs)
    saves = saving.Schedule(
        config.save_model_secs, config.save_model_steps, config.keep_checkpoint_max, config.save_timeout_secs)
    settings = session.Settings(config.train_dir, saves, config.start_timeout_secs, config.end_timeout_secs)
    supervised = session.SupervisedTraining(cluster, target, train_graph, board, settings, stop)
    return supervised.run(
        lambda live, write_summary: train.Loop(live, train_graph, schedule, stop, write_summary).run())


def _report(outcome: Outcome, batch_size: int) -> None:
    examples = outcome.local_steps * batch_size
    _log.info("training ended at step %d: %s; this worker did %d steps in %.2f s, %.0f examples/s",
              outcome.global_step, outcome.end.value, outcome.local_steps, outcome.elapsed_secs,
              examples / max(outcome.elapsed_secs, 1e-9))


def _evaluate(config: Config, loaded: Plugins, outcome: Outcome, examples_per_step: int) -> None:
    evaluation = evaluate.Evaluator(*loaded).evaluate(checkpoint.newest_sound(config.train_dir))
    evaluate.write_summaries(evaluation, config.train_dir)
    examples = (evaluation.global_step - outcome.first_step) * examples_per_step
    print(evaluation.format())
    print(f"Training took {outcome.elapsed_secs:.2f} s, {examples / max(outcome.elapsed_secs, 1e-9):.0f} examples per "
          "second over all workers", flush=True)
