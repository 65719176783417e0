"""One replica's graph: placement, input, model, loss, train op, summaries.

    dataset --> features, labels --> model_fn --> loss --> optimizer --> train_op
                     on this worker       variables on the ps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import blackboard, optimizer, placement
from ps_train.cluster import Cluster
from ps_train.errors import UserCodeError
from ps_train.inputs import input_feed
from ps_train.plugins import TRAIN, Dataset, Model, ModelSpec


class TrainGraph(NamedTuple):
    """What a worker runs.

    Attributes:
      graph: the finished graph.
      update: the train op and what its update mode needs around it.
      loss: scalar, of the mini-batch of the step that it is fetched with.
      progress: int64 [2], the global step and the training state, read on ps 0 after the train op.
      status: the same, read without training.
      global_step: the variable, on ps 0.
      summary_op: scalar string, all summaries of the step that it is fetched with.
      input_init_op: initialises the input; run it with `feed`.
      feed: placeholder -> numpy array.
      saved_variables: all global variables, which a checkpoint has.
      saver: saves and restores them.
    """

    graph: tf.Graph
    update: optimizer.Update
    loss: tf.Tensor
    progress: tf.Tensor
    status: tf.Tensor
    global_step: tf.Variable
    summary_op: tf.Tensor
    input_init_op: tf.Operation
    feed: Mapping[tf.Tensor, Any]
    saved_variables: list[tf.Variable]
    saver: tf.train.Saver


def build(
    cluster: Cluster,
    worker_device: str,
    model: Model,
    model_params: Mapping[str, Any],
    dataset: Dataset,
    dataset_params: Mapping[str, Any],
    settings: optimizer.Settings,
    seed: int | None = None,
) -> TrainGraph:
    """Builds the graph of this worker.

    Args:
      worker_device: where the model computes, such as "/job:worker/task:0/cpu:0".
      seed: graph-level seed, or None.

    Raises:
      UserCodeError: a plug-in breaks its contract, or the update mode cannot use its train_op.
    """
    with tf.Graph().as_default() as graph, placement.on_cluster(cluster, worker_device):
        if seed is not None:
            # Each worker draws its own dropout; the initial values all come from the chief, which is number 0.
            tf.set_random_seed(seed + cluster.worker_number)
        with tf.device(cluster.ps[0].device + "/cpu:0"):
            global_step = tf.train.create_global_step()
        iterator, features, labels = _input(dataset, dataset_params, cluster.shard, cluster.task.device + "/cpu:0")
        spec = call_model_fn(model, features, labels, TRAIN, model_params)
        tf.summary.scalar("loss", spec.loss)
        update = _update(spec, global_step, settings)
        return TrainGraph(
            graph=graph,
            update=update,
            loss=spec.loss,
            progress=_progress(cluster, global_step, [update.train_op]),
            status=_progress(cluster, global_step, []),
            global_step=global_step,
            summary_op=_merged_summaries(worker_device),
            input_init_op=iterator.initializer,
            feed=input_feed(graph),
            saved_variables=tf.global_variables(),
            saver=tf.train.Saver(tf.global_variables(), save_relative_paths=True),
        )


def _input(dataset: Dataset, params: Mapping[str, Any], shard: tuple[int, int], device: str) -> tuple:
    """Returns (iterator, features, labels) of this worker's share of the training data."""
    with tf.device(device), tf.name_scope("input"):
        batches = dataset.input_fn(mode=TRAIN, params=params, shard=shard)
        if not isinstance(batches, tf.compat.v2.data.Dataset):
            raise UserCodeError(f"{dataset.name}.input_fn returned {type(batches).__name__}; it must return a "
                                "tf.data.Dataset of (features, labels)")
        iterator = tf.data.make_initializable_iterator(batches.prefetch(2))
        element = iterator.get_next()
    if not isinstance(element, tuple) or len(element) != 2:
        raise UserCodeError(f"{dataset.name}.input_fn: its dataset yields {batches.element_spec}; it must yield "
                            "(features, labels)")
    return iterator, *element


def call_model_fn(
    model: Model, features: Any, labels: Any, mode: str, params: Mapping[str, Any]
) -> ModelSpec:
    """Adds the model to the current graph and checks what its model_fn returned.

    Raises:
      UserCodeError: it returned no ModelSpec, or a loss that is no scalar.
    """
    spec = model.model_fn(features=features, labels=labels, mode=mode, params=params)
    if not isinstance(spec, ModelSpec):
        raise UserCodeError(f"{model.name}.model_fn returned {type(spec).__name__}; it must return a "
                            "ps_train.ModelSpec, which has the same fields as an EstimatorSpec")
    if not tf.is_tensor(spec.loss) or spec.loss.shape.rank not in (None, 0):
        raise UserCodeError(f"{model.name}.model_fn returned the loss {spec.loss!r}; it must be a scalar tensor")
    return spec


def _update(spec: ModelSpec, global_step: tf.Variable, settings: optimizer.Settings) -> optimizer.Update:
    if spec.train_op is None:
        return optimizer.build(spec.loss, global_step, settings)
    if settings.replicas_to_aggregate is not None:
        raise UserCodeError("model_fn returned a train_op of its own, which --sync_replicas cannot aggregate; "
                            "return the loss only and choose the rule with --optimizer")
    return optimizer.for_train_op(spec.train_op)


def _progress(cluster: Cluster, global_step: tf.Variable, after: list[tf.Operation]) -> tf.Tensor:
    """Returns int64 [2]: one tensor, so that a step fetches one thing from ps 0."""
    with tf.control_dependencies(after), tf.device(cluster.ps[0].device + "/cpu:0"):
        return tf.stack([global_step.read_value(), blackboard.state_tensor(cluster.ps[0])])


def _merged_summaries(worker_device: str) -> tf.Tensor:
    with tf.device(worker_device):
        return tf.summary.merge_all()
