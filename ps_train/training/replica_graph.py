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
from ps_train.graph import devices, placement, plugin_calls, simplify
from ps_train.graph.hooks import Hooks, local_init_ops, training_hooks
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.graph.plugin_calls import TrainModel
from ps_train.graph.row_sparse import partitioned_lookups
from ps_train.part import NO_PARTS, Parts
from ps_train.parts.sharding import saved
from ps_train.parts.tables import registry
from ps_train.parts.tables.files import contents
from ps_train.parts.tables.files.table_files import TableFiles
from ps_train.parts.tables.rows.store import Store
from ps_train.plugins.contracts import TRAIN, Dataset, Model, ModelSpec, RunConfig
from ps_train.storage import checkpoints, event_files
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
      in_parts: with tables or dynamic sharding, how a checkpoint is written in several parts; or None.
      tables: makes, saves and restores the embedding tables.
      hooks: the model's own hooks.
      ranges: what dynamic sharding needs, or None.
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
    in_parts: InParts | None
    tables: TableFiles
    hooks: Hooks
    ranges: saved.RangeOps | None
    parts: Parts
    init_fn: Callable[[tf.Session], None] | None

    def check_fits(self, path: str) -> None:
        """Compares the variables and tables with those in a checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model.
          ConfigError: it does not fit the flags or the data.
        """
        self.parts.check_fits(path)
        checkpoints.check_fits(path, self.saved_variables)
        contents.check_tables_fit(path, self.tables.specs)

    def save(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes a checkpoint of the variables and tables; see `storage.saver.Write`."""
        if self.in_parts:
            path = self.tables.save(session, path, self.in_parts.dense, cut, self.in_parts.write_last(session))
            self.saver.export_meta_graph(path + ".meta")
        else:
            # With write_state the Saver would remove the oldest checkpoint before the new one was read back.
            self.saver.save(session, cut(), write_state=False)

    def save_delta(self, session: tf.Session, path: str, cut: Callable[[], str]) -> None:
        """Writes the variables, and the rows of the tables that have changed since `tables.base`."""
        self.tables.save_delta(session, path, self.in_parts.dense, cut, self.in_parts.write_last(session))


class InParts(NamedTuple):
    """How the variables of a graph are saved where a checkpoint is written in parts.

    Attributes:
      dense: saves all variables but `last`.
      last: saves what must be saved after everything else, or None.
      before_last_op: updates that.
    """

    dense: tf.train.Saver
    last: tf.train.Saver | None
    before_last_op: tf.Operation | None

    def write_last(self, session: tf.Session) -> Callable[[str], str] | None:
        """Returns a function that writes the last part to files with a prefix, and returns that; or None."""
        if self.last is None:
            return None

        def write(prefix: str) -> str:
            session.run(self.before_last_op)
            return self.last.save(session, prefix, write_meta_graph=False, write_state=False)

        return write


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
        tables = _install_tables(cluster, settings)

        def compute(batch: tuple[Any, Any]) -> TrainModel:
            tables.begin_build(*batch)
            return plugin_calls.call_for_training(model, *batch, model_params, _run_config(cluster, seed))

        settings = _with_own_optimizer(settings, model, model_params)
        built = _build(cluster, worker_device, batches, compute, settings, bound, steps_per_execution, parts)
        simplify.simplify_graph(graph)
        return built if steps_per_execution == 1 else _with_several(built, cluster, steps_per_execution)


def _with_own_optimizer(settings: UpdateSettings, model: Model, params: Mapping[str, Any]) -> UpdateSettings:
    """Returns the settings with the make_optimizer of the model, if it has one."""
    make = model.make_optimizer
    return settings._replace(make_own=lambda step: make(params=params, global_step=step)) if make else settings


def _install_tables(cluster: Cluster, settings: UpdateSettings) -> registry.Registry:
    return registry.install_registry([ps.device + "/cpu:0" for ps in cluster.ps], settings.table_rule,
                                     functools.partial(Store, is_exact=settings.locks_tables))


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
    range_ops = saved.of_graph()
    saver, in_parts, tables = _make_savers(update, range_ops)
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
        in_parts=in_parts,
        tables=tables,
        hooks=training_hooks(trained.spec, is_chief=cluster.is_chief, is_in_rounds=settings.period.steps > 1),
        ranges=range_ops,
        parts=parts,
        init_fn=getattr(trained.spec.scaffold, "init_fn", None),
    )


def _make_savers(
    update: Update, ranges: saved.RangeOps | None
) -> tuple[tf.train.Saver, InParts | None, TableFiles]:
    """Returns what saves the variables, whole or in parts, and what saves the tables."""
    tables = TableFiles(registry.current_registry())
    tables.add_summaries()
    whole = _make_saver(update, tf.global_variables())
    if ranges:
        rest = [one for one in tf.global_variables() if one is not ranges.in_hand_variable]
        return whole, InParts(_make_saver(update, rest), tf.train.Saver([ranges.in_hand_variable]),
                              ranges.after_save_op), tables
    return whole, InParts(whole, None, None) if tables.specs else None, tables


def _make_saver(update: Update, variables: list[tf.Variable]) -> tf.train.Saver:
    saver = tf.train.Saver(variables, save_relative_paths=True)
    update.packed.save_from(saver)
    return saver


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
