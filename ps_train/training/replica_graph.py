"""The graph of one worker: placement, input, model, loss, update, summaries.

    dataset --> features, labels --> model_fn --> loss --> optimizer --> train_op
                     on this worker       variables on the ps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import variables
from ps_train.errors import ConfigError
from ps_train.graph import devices, placement, plugin_calls, simplify
from ps_train.graph.hooks import Hooks, check_scaffold, usable
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.graph.plugin_calls import TrainModel
from ps_train.plugins.contracts import TRAIN, Dataset, Model, ModelSpec, RunConfig
from ps_train.storage import event_files
from ps_train.training import queues
from ps_train.updates import model_update, staleness
from ps_train.updates.unrolled import steps
from ps_train.updates.unrolled.steps import Execution
from ps_train.updates.update import Update, UpdateSettings


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
      hooks: the model's own hooks.
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
    hooks: Hooks
    init_fn: Callable[[tf.Session], None] | None


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
) -> TrainGraph:
    """Builds the graph of this worker.

    Args:
      worker_device: where the model computes, such as "/job:worker/task:0/cpu:0".
      bound: the staleness bound, or None.
      seed: graph-level seed, or None.
      steps_per_execution: single steps in one session run; async only.

    Raises:
      UserCodeError: a plug-in breaks its contract, or the update mode cannot use its train_op.
      ConfigError: local steps cannot use this input.
    """
    with tf.Graph().as_default() as graph, placement.on_cluster(cluster, worker_device, plan):
        if seed is not None:
            # Each worker draws its own dropout. All initial values come from the chief, which is number 0.
            tf.set_random_seed(seed + cluster.worker_number)
        with _on_first_ps(cluster):
            tf.train.create_global_step()
        batches = Batches(dataset, TRAIN, dataset_params, cluster.shard, cluster.task.device + "/cpu:0")
        def compute() -> TrainModel:
            return plugin_calls.call_for_training(model, *batches.next(), model_params, _run_config(cluster, seed))

        built = _build(cluster, worker_device, batches, compute, settings, bound, steps_per_execution)
        simplify.simplify_graph(graph)
        return built if steps_per_execution == 1 else _with_several(built, cluster, steps_per_execution)


def _run_config(cluster: Cluster, seed: int | None) -> RunConfig:
    return RunConfig(
        task_type=cluster.job, task_id=cluster.index, is_chief=cluster.is_chief, num_ps_replicas=len(cluster.ps),
        num_worker_replicas=cluster.num_workers, tf_random_seed=seed)


def _with_scaffold(update: Update, scaffold: Any) -> Update:
    """Returns the update with what the model initialises in each session."""
    check_scaffold(scaffold)
    local_init_op = getattr(scaffold, "local_init_op", None)
    if local_init_op is None:
        return update
    return update._replace(local_init_op=tf.group(update.local_init_op, local_init_op))


def _hooks(spec: ModelSpec, cluster: Cluster, settings: UpdateSettings) -> Hooks:
    own = [*spec.training_hooks, *(spec.training_chief_hooks if cluster.is_chief else ())]
    return Hooks(usable(own, is_in_rounds=settings.period.steps > 1))


def _build(
    cluster: Cluster, worker_device: str, batches: Batches, compute: Callable[[], TrainModel], settings: UpdateSettings,
    bound: staleness.Bound | None, steps_per_execution: int,
) -> TrainGraph:
    """Adds model, update, summaries and saver to the current graph; `compute` builds the model on a mini-batch."""
    graph, global_step = tf.get_default_graph(), tf.train.get_global_step()
    trained = compute()
    devices.check_devices(graph, cluster)
    placement.check_lookups(tf.global_variables())
    event_files.add_loss(trained.spec.loss)
    _refuse_in_rounds(batches, settings)
    update = _with_scaffold(
        model_update.build_model_update(trained, global_step, settings, compute, steps_per_execution),
        trained.spec.scaffold)
    saver = tf.train.Saver(tf.global_variables(), save_relative_paths=True)
    update.packed.save_from(saver)
    single = Execution(1, _progress(cluster, global_step, update, bound), update.loss)
    return TrainGraph(
        graph=graph,
        update=update,
        single=single,
        several=single,
        status=_status(cluster, global_step, bound),
        global_step=global_step,
        summary_op=_merged_summaries(worker_device),
        join_op=_join(cluster, bound),
        input_init_op=batches.initializer,
        queues=queues.Queues(),
        feed=input_feed(graph),
        saved_variables=tf.global_variables(),
        saver=saver,
        hooks=_hooks(trained.spec, cluster, settings),
        init_fn=getattr(trained.spec.scaffold, "init_fn", None),
    )


def _with_several(built: TrainGraph, cluster: Cluster, num_steps: int) -> TrainGraph:
    update = built.update
    unrolled = steps.unroll(
        built.single, num_steps, pulled=update.pulled, worker=cluster.worker_number,
        first_ps_device=built.global_step.device)
    return built._replace(
        several=unrolled.execution, update=update._replace(rest=unrolled.rest),
        join_op=tf.group(built.join_op, unrolled.reset_op))


def _refuse_in_rounds(batches: Batches, settings: UpdateSettings) -> None:
    """Refuses local steps on an input that gives only one mini-batch per session run."""
    if settings.period.steps > 1 and (batches.is_one_a_run or tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)):
        raise ConfigError("--communication_period: the input comes from queues or from tensors, which give one "
                          "mini-batch per session run, and a round of local steps needs several; let input_fn return "
                          "a tf.data.Dataset, or leave the flag out")


def _progress(
    cluster: Cluster, global_step: tf.Variable, update: Update, bound: staleness.Bound | None
) -> tf.Tensor:
    """Returns the `StepStatus` after a step as one tensor, so that a step fetches only one from ps 0."""
    with _on_first_ps(cluster):
        begun = global_step.read_value()
        with tf.control_dependencies([update.train_op]):
            reached = global_step.read_value()
            counted = [staleness.count_steps(cluster.worker_number, update.num_taken)] if bound else [reached]
        with tf.control_dependencies(counted):
            age = staleness.measure(begun=begun, reached=reached, num_taken=update.num_taken)
            return tf.stack([[reached, variables.read("state"), update.num_taken, age, *_lead(cluster, bound)]])


def _status(cluster: Cluster, global_step: tf.Variable, bound: staleness.Bound | None) -> tf.Tensor:
    with _on_first_ps(cluster):
        nothing = tf.constant(0, tf.int64)
        return tf.stack([global_step.read_value(), variables.read("state"), nothing, nothing,
                         *_lead(cluster, bound)])


def _lead(cluster: Cluster, bound: staleness.Bound | None) -> tuple[tf.Tensor, tf.Tensor]:
    if bound is None:
        return tf.constant(0, tf.int64), tf.constant(cluster.worker_number, tf.int64)
    return staleness.lead(cluster.worker_number, bound)


def _join(cluster: Cluster, bound: staleness.Bound | None) -> tf.Operation:
    with _on_first_ps(cluster):
        return staleness.join_at_slowest(cluster.worker_number, bound) if bound else tf.no_op()


def _on_first_ps(cluster: Cluster) -> Any:
    return tf.device(cluster.ps[0].device + "/cpu:0")


def _merged_summaries(worker_device: str) -> tf.Tensor:
    with tf.device(worker_device):
        return tf.summary.merge_all()
