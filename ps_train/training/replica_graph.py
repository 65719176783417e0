"""The graph of one worker: placement, input, model, loss, update, summaries.

    dataset --> features, labels --> model_fn --> loss --> optimizer --> train_op
                     on this worker       variables on the ps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions, variables
from ps_train.graph import devices, extensions, placement, plugin_calls, transfer
from ps_train.graph.batches import Batches, input_feed
from ps_train.graph.extensions import RowParameters
from ps_train.graph.plugin_calls import Hooks, Queues, TrainModel, local_init_ops, training_hooks
from ps_train.part import NO_PARTS, Parts
from ps_train.plugins.contracts import TRAIN, Dataset, Model, ModelSpec, RunConfig
from ps_train.storage import checkpoints
from ps_train.storage.event_files import LOSS_TAG
from ps_train.storage.merging_saver import MergingSaver
from ps_train.updates import build, staleness, variable_copies
from ps_train.updates.unrolled import Execution, unroll
from ps_train.updates.update import Update, UpdateSettings


class GraphSettings(NamedTuple):
    """What the training graph of a worker depends on, besides the plug-ins.

    Attributes:
      device: where the model computes, such as "/job:worker/task:0/gpu:0".
      updates: how updates reach the parameters.
      placement: how variables are placed on the ps.
      bound: how far this worker may run ahead of the others, or None.
      seed: graph-level seed, or None.
      steps_per_execution: single steps in one session run; async only.
    """

    device: str
    updates: UpdateSettings
    placement: placement.PlacementPlan = placement.BY_BYTES
    bound: staleness.Bound | None = None
    seed: int | None = None
    steps_per_execution: int = 1


class StepStatus(NamedTuple):
    """The state of training after a step, in the order of `Execution.progress`.

    Attributes:
      step: the global step.
      state: the training state, a value of `coordination.state.State`.
      num_taken: mini-batches in this worker's last step.
      staleness: of its last update, see updates/staleness.py.
      lead: how many steps it is ahead of the slowest worker; 0 without a staleness bound.
      slowest: the number of the slowest worker.
    """

    step: int
    state: int
    num_taken: int
    staleness: int
    lead: int
    slowest: int


class Steps(NamedTuple):
    """The training steps of a worker.

    Attributes:
      single: one step, or one round of local steps.
      unrolled: --steps_per_execution steps in one session run; `single` if that is 1.
      status: int64 [6], a `StepStatus` read on ps 0 without training.
      join_op: run before the first step: joins the staleness bound, and forgets an unfinished run of several steps.
      bound: how far this worker may run ahead of the slowest, or None.
    """

    single: Execution
    unrolled: Execution
    status: tf.Tensor
    join_op: tf.Operation
    bound: staleness.Bound | None


class Input(NamedTuple):
    """The input of a worker.

    Attributes:
      init_op: initialises it; run it with `feed`.
      feed: placeholder -> numpy array.
      queues: the input queues, if there are any.
    """

    init_op: tf.Operation
    feed: Mapping[tf.Tensor, Any]
    queues: Queues


class Savers(NamedTuple):
    """What saves and restores the variables.

    Attributes:
      variables: the global variables that all workers have: all but those of hooks, which may be the chief's own.
      saved: what is in a checkpoint, see `checkpoints.saved_objects`.
      saver: saves and restores it.
      merging: writes a checkpoint in several parts; None where `saver` writes it whole.
    """

    variables: list[tf.Variable]
    saved: list[Any]
    saver: tf.train.Saver
    merging: MergingSaver | None

    def save(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes a checkpoint; see `storage.saver.Write`."""
        if self.merging:
            path = self.merging.save(session, path, cut)
            with session.graph.as_default():  # which a new thread does not have
                self.saver.export_meta_graph(path + ".meta")
        else:
            # With write_state the Saver would remove the oldest checkpoint before the new one was read back.
            self.saver.save(session, cut(), write_state=False)

    def save_delta(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes the variables, and the rows that have changed since the last checkpoint."""
        self.merging.save(session, path, cut, is_delta=True)


class TrainGraph(NamedTuple):
    """What a worker runs.

    Attributes:
      graph: the finished graph.
      update: the train op and what its update mode needs around it.
      steps: what the step loop runs.
      global_step: the variable, on ps 0.
      summary_op: string scalar, all summaries of the step that it is fetched with.
      input: its input.
      savers: what saves and restores the variables.
      rows: the parameters that are no variables.
      hooks: the model's own hooks.
      parts: what features have added to the graph, and do in its sessions.
      init_fn: the model's own, or None; the chief calls it with a session in which it has initialised new variables and
        which is closed before training.
    """

    graph: tf.Graph
    update: Update
    steps: Steps
    global_step: tf.Variable
    summary_op: tf.Tensor
    input: Input
    savers: Savers
    rows: RowParameters
    hooks: Hooks
    parts: Parts
    init_fn: Callable[[tf.Session], None] | None

    def check_origin(self, path: str | None) -> None:
        """Checks what the training is to begin with: a checkpoint, or new parameters if `path` is None.

        Raises:
          CheckpointError: the checkpoint is of another model.
          ConfigError: it does not fit the flags or the data.
        """
        self.parts.check_origin(path)
        if path is not None:
            checkpoints.check_fits(path, self.savers.saved)
            self.rows.check_fits(path)


def build_train_graph(
    cluster: Cluster, model: Model, model_params: Mapping[str, Any], dataset: Dataset,
    dataset_params: Mapping[str, Any], settings: GraphSettings, *, parts: Parts = NO_PARTS,
) -> TrainGraph:
    """Builds the graph of this worker.

    Args:
      parts: what features add.

    Raises:
      UserCodeError: a plug-in breaks its contract, or the update mode cannot use its train_op.
      ConfigError: local steps cannot use this input.
    """
    with tf.Graph().as_default() as graph, placement.on_cluster(cluster, settings.device, settings.placement):
        parts.begin_graph()
        if model.takes_config:  # then it may have hooks on the chief only, and all workers must pack alike
            extensions.set_packing(extensions.Packing())
        if settings.seed is not None:
            # Each worker draws its own dropout. All initial values come from the chief, which is number 0.
            tf.set_random_seed(settings.seed + cluster.worker_number)
            if cluster.is_elastic:  # all workers read the same data, but in different orders
                dataset_params = {**dataset_params, "seed": settings.seed + cluster.worker_number}
        with _on_first_ps(cluster):
            tf.train.create_global_step()
        batches = Batches(dataset, TRAIN, dataset_params, cluster.shard, cluster.task.device + "/cpu:0")
        config = RunConfig(
            task_type=cluster.job, task_id=cluster.index, is_chief=cluster.is_chief, num_ps_replicas=len(cluster.ps),
            num_worker_replicas=cluster.num_workers, tf_random_seed=settings.seed)
        updates = _with_make_optimizer(settings.updates, model, model_params)
        built = _build(cluster, batches, lambda batch: plugin_calls.call_for_training(
            model, *batch, model_params, config), settings._replace(updates=updates), parts)
        transfer.simplify_graph(graph)
        return built if settings.steps_per_execution == 1 else _with_unrolled_steps(
            built, cluster, settings.steps_per_execution)


def _with_make_optimizer(settings: UpdateSettings, model: Model, params: Mapping[str, Any]) -> UpdateSettings:
    """Returns the settings with the make_optimizer of the model, if it has one."""
    if not (make := model.make_optimizer):
        return settings
    return settings._replace(plan=settings.plan._replace(
        make_model_optimizer=lambda step: make(params=dict(params), global_step=step)))


def _build(
    cluster: Cluster, batches: Batches, compute: Callable[[Any], TrainModel], settings: GraphSettings, parts: Parts,
) -> TrainGraph:
    """Adds model, update, summaries and saver to the current graph; `compute` builds the model on a mini-batch."""
    graph, global_step = tf.get_default_graph(), tf.train.get_global_step()
    trained = compute(batches.next())
    devices.check_devices(graph, cluster)
    placement.remap_lookups(tf.global_variables())
    _add_loss_summary(trained.spec.loss)
    num_local_steps = settings.updates.period.steps
    if num_local_steps > 1:
        variable_copies.refuse_single_batches(batches)
    if trained.spec.training_hooks or trained.spec.training_chief_hooks:  # they may read or write any variable
        extensions.set_packing(extensions.Packing())
    update = _with_local_init(parts.update(build.build_model_update(
        trained, global_step, settings.updates, batches, compute, settings.steps_per_execution)), trained.spec)
    shared = tf.global_variables()
    hooks = training_hooks(trained.spec, is_chief=cluster.is_chief, is_in_rounds=num_local_steps > 1)
    saver = tf.train.Saver(saved := checkpoints.saved_objects(), save_relative_paths=True)  # what a hook has made, too
    update.dense.packed.save_from(saver)
    savers = Savers(shared, saved, saver, MergingSaver(saver, added) if (added := parts.saved_parts()) else None)
    if settings.bound and num_local_steps > 1:  # a round that was cut short counts, too
        with _on_first_ps(cluster), tf.control_dependencies(
                staleness.count_steps(cluster.worker_number, update.failed_run_steps, settings.bound)):
            update = update._replace(failed_run_steps=tf.identity(update.failed_run_steps))
    steps = _make_steps(cluster, global_step, update, settings.bound)
    with tf.device(settings.device):
        summary_op = tf.summary.merge_all()
    return TrainGraph(
        graph=graph, update=update, steps=steps, global_step=global_step, summary_op=summary_op,
        input=Input(batches.initializer, input_feed(graph), Queues(sessions.is_lost)),
        savers=savers, rows=extensions.row_parameters(), hooks=hooks, parts=parts,
        init_fn=getattr(trained.spec.scaffold, "init_fn", None))


def _add_loss_summary(loss: tf.Tensor) -> None:
    """Adds a summary of the loss to the graph, unless the model already has one with that tag."""
    # Not `tf.summary.scalar`, which would make the tag "loss_1" if the model has an operation named "loss", as many
    # have. The loss of the evaluation would then be in another chart.
    tags = [tf.get_static_value(summary.op.inputs[0]) for summary in tf.get_collection(tf.GraphKeys.SUMMARIES)
            if summary.op.type == "ScalarSummary"]
    if LOSS_TAG.encode() not in tags:
        tf.add_to_collection(tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags=LOSS_TAG, values=loss))


def _with_local_init(update: Update, spec: ModelSpec) -> Update:
    every_worker = tf.group(update.init.every_worker, *local_init_ops(spec.scaffold))
    return update._replace(init=update.init._replace(every_worker=every_worker))


def _make_steps(cluster: Cluster, global_step: tf.Variable, update: Update, bound: staleness.Bound | None) -> Steps:
    """Returns the single step, which fetches only one tensor from ps 0, and what reads its state."""
    worker = cluster.worker_number
    with _on_first_ps(cluster):
        nothing = tf.constant(0, tf.int64)
        no_lead = nothing, tf.constant(worker, tf.int64)
        begun = global_step.read_value()
        with tf.control_dependencies([update.train_op]):
            reached = global_step.read_value()
            lead = staleness.count_steps(worker, update.num_taken, bound) if bound else no_lead
        with tf.control_dependencies([reached, *lead]):
            age = staleness.measure(begun=begun, reached=reached, num_taken=update.num_taken)
            progress = tf.stack([StepStatus(reached, variables.read("state"), update.num_taken, age, *lead)])
        lead = staleness.lead(worker, bound) if bound else no_lead
        status = tf.stack(StepStatus(global_step.read_value(), variables.read("state"), nothing, nothing, *lead))
        join_op = staleness.join_at_slowest(worker, bound) if bound else tf.no_op()
    single = Execution(1, progress, update.loss)
    return Steps(single, single, status, join_op, bound)


def _on_first_ps(cluster: Cluster) -> Any:
    return tf.device(cluster.ps[0].device + "/cpu:0")


def _with_unrolled_steps(built: TrainGraph, cluster: Cluster, num_steps: int) -> TrainGraph:
    update, steps = built.update, built.steps
    unrolled, failed_run_steps, reset_op = unroll(
        steps.single, num_steps, pulled=update.dense.pulled, worker=cluster.worker_number,
        first_ps_device=built.global_step.device)
    return built._replace(
        update=update._replace(failed_run_steps=failed_run_steps),
        steps=steps._replace(unrolled=unrolled, join_op=tf.group(steps.join_op, reset_op)))
