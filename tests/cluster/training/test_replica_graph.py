"""One replica's graph."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.errors import UserCodeError
from ps_train.plugins import contracts
from ps_train.training import replica_graph
from ps_train.updates import update
from tests import clusters
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 1, {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}})


def build(model=None, dataset=None, gradients=None) -> replica_graph.TrainGraph:
    """Builds worker 1's graph without any server."""
    params = {"batch_size": 8, "seed": 1}
    return replica_graph.build_train_graph(
        CLUSTER, "/job:worker/task:1/cpu:0", model or clusters.linear_model(), params,
        dataset or clusters.array_dataset(*clusters.linear_data()), params,
        update.UpdateSettings("adam", 0.01, gradients, 2))


def model_of(**spec) -> contracts.Model:
    """Returns a model with a variable whose ModelSpec has these fields; they may be functions of the loss."""
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.get_variable("w", [4]) * features)
        return ps_train.ModelSpec(**{"loss": loss, **{
            name: value(loss) if callable(value) else value for name, value in spec.items()}})

    return contracts.Model("m", model_fn, {})


@pytest.mark.parametrize("gradients", [None, 2], ids=["async", "sync"])
def test_variables_are_on_the_ps_and_the_model_on_its_worker(gradients):
    """The global step, which every step reads, is on ps 0; so is the progress."""
    built = build(gradients=gradients)
    variables = built.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    assert {tf.DeviceSpec.from_string(variable.device).job for variable in variables} == {"ps"}
    assert tf.DeviceSpec.from_string(built.single.loss.device).to_string() == "/job:worker/task:1/device:CPU:0"
    for on_first in (built.global_step, built.single.progress, built.status):
        assert on_first.device.startswith("/job:ps/task:0"), on_first


def test_the_data_is_not_in_the_graph():
    """A dataset of four megabytes leaves a graph of less than two hundred kilobytes."""
    features = np.ones([250_000, 4], np.float32)
    built = build(dataset=clusters.array_dataset(features, features[:, 0]))
    assert built.graph.as_graph_def().ByteSize() < 200_000
    assert sum(array.nbytes for array in built.feed.values()) == 125_000 * 5 * 4  # half of it: this worker's shard


def test_only_global_variables_are_saved():
    """The blackboard and SyncReplicasOptimizer's local step are no part of a checkpoint."""
    names = {variable.op.name for variable in build(gradients=2).saver._var_list}
    assert names == {"global_step", "weights", "bias", "beta1_power", "beta2_power",
                     "weights/Adam", "weights/Adam_1", "bias/Adam", "bias/Adam_1"}


def test_every_worker_places_and_names_the_variables_alike():
    """Worker 0 and worker 1 agree on each variable's device."""
    plans = []
    for index in range(2):
        params = {"batch_size": 8, "seed": 1}
        view = Cluster("worker", index, CLUSTER.addresses)
        built = replica_graph.build_train_graph(
            view, f"/job:worker/task:{index}/cpu:0", clusters.linear_model(), params,
            clusters.array_dataset(*clusters.linear_data()), params, update.UpdateSettings("adam", 0.01, None, 2))
        plans.append({variable.name: variable.device
                      for variable in built.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)})
    assert plans[0] == plans[1]


def test_a_train_op_without_an_optimizer_is_used_as_it_is():
    """What model_fn returns as train_op is what a step runs."""
    def train_op(loss):
        with tf.name_scope("own"):
            return tf.assign_add(tf.train.get_global_step(), 1).op

    built = build(model_of(train_op=train_op))
    names = {operation.name for operation in built.update.train_op.control_inputs}
    assert any("own" in name for name in names), names
    assert not any("Adam" in operation.name for operation in built.graph.get_operations())


@pytest.mark.parametrize(("model", "gradients", "message"), [
    (contracts.Model("m", lambda features, labels, mode, params: {"loss": 1}, {}), None,
     "m.model_fn returned dict; it must return a ps_train.ModelSpec, or an EstimatorSpec"),
    (model_of(loss=None), None, "m.model_fn returned the loss None"),
    (model_of(loss=lambda loss: tf.zeros([2])), None, "it must be a scalar tensor"),
    (model_of(train_op=lambda loss: tf.no_op()), 2, "--sync_replicas cannot aggregate"),
], ids=["no spec", "no loss", "a vector", "own train op in sync"])
def test_a_model_that_breaks_its_contract_is_named(model, gradients, message):
    """The error says what it returned and what it must return."""
    with pytest.raises(UserCodeError, match=message):
        build(model, gradients=gradients)


@pytest.mark.parametrize(("input_fn", "message"), [
    (lambda mode, params, shard: [1, 2], "returned list; it must return a tf.data.Dataset"),
    (lambda mode, params, shard: tf.data.Dataset.range(3), "it must yield \\(features, labels\\)"),
], ids=["a list", "no pair"])
def test_a_dataset_that_breaks_its_contract_is_named(input_fn, message):
    """The error says what it returned and what it must return."""
    with pytest.raises(UserCodeError, match=message):
        build(dataset=contracts.Dataset("d", input_fn, lambda params: None, {}))
