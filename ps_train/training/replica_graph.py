"""The graph of one worker: placement, input, model, loss, update, summaries.

    dataset --> features, labels --> model_fn --> loss --> optimizer --> train_op
                     on this worker       variables on the ps
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.graph import devices, placement, plugin_calls, row_parameters, simplify
from ps_train.graph.hooks import Hooks, local_init_ops, training_hooks
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.graph.plugin_calls import TrainModel
from ps_train.graph.row_parameters import RowParameters
from ps_train.graph.row_sparse import partitioned_lookups
from ps_train.part import NO_PARTS, Parts
from ps_train.plugins.contracts import TRAIN, Dataset, Model, ModelSpec, RunConfig
from ps_train.storage import checkpoints, event_files
from ps_train.storage.merging_saver import MergingSaver
from ps_train.training import queues, step_status
from ps_train.updates import build, staleness
from ps_train.updates.local_steps import variable_copies
from ps_train.updates.unrolled import Execution, unroll
from ps_train.updates.update import Update, UpdateSettings


class TrainGraph(NamedTuple):
    """What a worker runs.

    Attributes:
      graph: the finished graph.
      update: the train op and what its update mode needs around it.
      single: one step, or one round of local steps.
      several: --steps_per_execution steps in one session run; `single` if that is 1.
      status: int64 [6], a `StepStatus` read on ps 0 without training.
      global_step: the variable, on ps 0.
      summary_op: string scalar, all summaries of the step that it is fetched with.
      join_op: run before the first step: joins the staleness bound, and forgets an unfinished run of several steps.
      input_init_op: initialises the input; run it with `feed`.
      queues: the input queues, if there are any.
      feed: placeholder -> numpy array.
      saved_variables: all global variables, which are in a checkpoint.
      saver: saves and restores them.
      merging: writes a checkpoint in several parts; None where `saver` writes it whole.
      rows: the parameters that are no variables.
      hooks: the model's own hooks.
      parts: what features have added to the graph, and do in its sessions.
      init_fn: the model's own; the chief calls it with a session in which it has initialised new variables; or None.
    """

    graph: tf.Graph
    update: Update
    single: Execution
    several: Execution
    status: tf.Tensor
    global_step: tf.Variable
    summary_op: tf.Tensor
    join_op: tf.Operation
    input_init_op: tf.Operation
    queues: queues.Queues
    feed: Mapping[tf.Tensor, Any]
    saved_variables: list[tf.Variable]
    saver: tf.train.Saver
    merging: MergingSaver | None
    rows: RowParameters
    hooks: Hooks
    parts: Parts
    init_fn: Callable[[tf.Session], None] | None

    def check_fits(self, path: str) -> None:
        """Compares the parameters with those in a checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model.
          ConfigError: it does not fit the flags or the data.
        """
        self.parts.check_fits(path)
        checkpoints.check_fits(path, self.saved_variables)
        self.rows.check_fits(path)

    def save(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes a checkpoint; see `storage.saver.Write`."""
        if self.merging:
            path = self.merging.save(session, path, cut)
            self.saver.export_meta_graph(path + ".meta")
        else:
            # With write_state the Saver would remove the oldest checkpoint before the new one was read back.
            self.saver.save(session, cut(), write_state=False)

    def save_delta(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes the variables, and the rows that have changed since the last checkpoint."""
        self.merging.save(session, path, cut, is_delta=True)


def build_train_graph(
    cluster: Cluster,
    worker_device: str,
    model: Model,
    model_params: Mapping[str, Any],
    dataset: Dataset,
    dataset_params: Mapping[str, Any],
    settings: UpdateSettings,
    *,
    plan: placement.PlacementPlan = placement.BY_BYTES,
    bound: staleness.Bound | None = None,
    seed: int | None = None,
    steps_per_execution: int = 1,
    parts: Parts = NO_PARTS,
) -> TrainGraph:
    """Builds the graph of this worker.

    Args:
      worker_device: where the model computes, such as "/job:worker/task:0/cpu:0".
      bound, seed: the staleness bound and the graph-level seed, or None.
      steps_per_execution: single steps in one session run; async only.
      parts: what features add.

    Raises:
      UserCodeError: a plug-in breaks its contract, or the update mode cannot use its train_op.
      ConfigError: local steps cannot use this input.
    """
    with tf.Graph().as_default() as graph, placement.on_cluster(cluster, worker_device, plan):
        _begin_graph(cluster, seed, parts)
        batches = Batches(dataset, TRAIN, dataset_params, cluster.shard, cluster.task.device + "/cpu:0")
        compute = functools.partial(_call_model, model, model_params, _run_config(cluster, seed))
        settings = _with_own_optimizer(settings, model, model_params)
        built = _build(cluster, worker_device, batches, compute, settings, bound, steps_per_execution, parts)
        simplify.simplify_graph(graph)
        return built if steps_per_execution == 1 else _with_several(built, cluster, steps_per_execution)


def _call_model(model: Model, params: Mapping[str, Any], config: RunConfig, batch: tuple[Any, Any]) -> TrainModel:
    return plugin_calls.call_for_training(model, *batch, params, config)


def _with_own_optimizer(settings: UpdateSettings, model: Model, params: Mapping[str, Any]) -> UpdateSettings:
    """Returns the settings with the make_optimizer of the model, if it has one."""
    make = model.make_optimizer
    return settings._replace(make_own=lambda step: make(params=params, global_step=step)) if make else settings


def _begin_graph(cluster: Cluster, seed: int | None, parts: Parts) -> None:
    """Sets the seed of the current graph, creates the global step, and lets the parts prepare it."""
    parts.begin_graph()
    if seed is not None:
        # Each worker draws its own dropout. All initial values come from the chief, which is number 0.
        tf.set_random_seed(seed + cluster.worker_number)
    with step_status.on_first_ps(cluster):
        tf.train.create_global_step()


def _run_config(cluster: Cluster, seed: int | None) -> RunConfig:
    return RunConfig(
        task_type=cluster.job, task_id=cluster.index, is_chief=cluster.is_chief, num_ps_replicas=len(cluster.ps),
        num_worker_replicas=cluster.num_workers, tf_random_seed=seed)


def _build(
    cluster: Cluster, worker_device: str, batches: Batches, compute: Callable[[Any], TrainModel],
    settings: UpdateSettings, bound: staleness.Bound | None, steps_per_execution: int, parts: Parts,
) -> TrainGraph:
    """Adds model, update, summaries and saver to the current graph; `compute` builds the model on a mini-batch."""
    graph, global_step = tf.get_default_graph(), tf.train.get_global_step()
    trained = compute(batches.next())
    devices.check_devices(graph, cluster)
    partitioned_lookups.remap_lookups(tf.global_variables())
    event_files.add_loss(trained.spec.loss)
    variable_copies.refuse_single_batches(batches, settings.period.steps)
    update = _with_local_init(build.build_model_update(
        trained, global_step, settings, batches, compute, steps_per_execution), trained.spec)
    update = parts.update(update)
    saver, merging = _make_savers(update, parts)
    single = Execution(1, step_status.progress(cluster, global_step, update, bound), update.loss)
    with tf.device(worker_device):
        summary_op = tf.summary.merge_all()
    return TrainGraph(
        graph=graph,
        update=update,
        single=single,
        several=single,
        status=step_status.read_status(cluster, global_step, bound),
        global_step=global_step,
        summary_op=summary_op,
        join_op=step_status.join_bound(cluster, bound),
        input_init_op=batches.initializer,
        queues=queues.Queues(),
        feed=input_feed(graph),
        saved_variables=tf.global_variables(),
        saver=saver,
        merging=merging,
        rows=row_parameters.of_graph(),
        hooks=training_hooks(trained.spec, is_chief=cluster.is_chief, is_in_rounds=settings.period.steps > 1),
        parts=parts,
        init_fn=getattr(trained.spec.scaffold, "init_fn", None),
    )


def _make_savers(update: Update, parts: Parts) -> tuple[tf.train.Saver, MergingSaver | None]:
    """Returns what saves and restores the variables, and what saves them with what the parts save, if any does."""
    saved = parts.saved_parts()
    saver = tf.train.Saver(tf.global_variables(), save_relative_paths=True)
    update.packed.save_from(saver)
    return saver, MergingSaver(saver, saved) if saved else None


def _with_local_init(update: Update, spec: ModelSpec) -> Update:
    return update._replace(local_init_op=tf.group(update.local_init_op, *local_init_ops(spec.scaffold)))


def _with_several(built: TrainGraph, cluster: Cluster, num_steps: int) -> TrainGraph:
    update = built.update
    unrolled = unroll(
        built.single, num_steps, pulled=update.pulled, worker=cluster.worker_number,
        first_ps_device=built.global_step.device)
    return built._replace(
        several=unrolled.execution, update=update._replace(rest=unrolled.rest),
        join_op=tf.group(built.join_op, unrolled.reset_op))
