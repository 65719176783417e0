"""One replica's graph."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.plugins import contracts
from ps_train.runtime import waits
from ps_train.storage.merging_saver import MergingSaver, PartWriter
from ps_train.training import evaluation, replica_graph
from ps_train.updates import update
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 1, {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}})


def settings(worker, gradients=None) -> replica_graph.GraphSettings:
    """Returns those of a worker that trains with Adam."""
    sync = update.SyncSettings(gradients, 2) if gradients else None
    return replica_graph.GraphSettings(
        f"/job:worker/task:{worker}/cpu:0", update.UpdateSettings(OptimizerPlan("adam", 0.01), worker, sync))


def build(model=None, dataset=None, gradients=None) -> replica_graph.TrainGraph:
    """Builds worker 1's graph without any server."""
    params = {"batch_size": 8, "seed": 1}
    return replica_graph.build_train_graph(
        CLUSTER, model or clusters.linear_model(), params, dataset or clusters.array_dataset(*clusters.linear_data()),
        params, settings(1, gradients))


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
    assert tf.DeviceSpec.from_string(built.steps.single.loss.device).to_string() == "/job:worker/task:1/device:CPU:0"
    for on_first in (built.global_step, built.steps.single.progress, built.steps.status):
        assert on_first.device.startswith("/job:ps/task:0"), on_first


def test_the_data_is_not_in_the_graph():
    """A dataset of four megabytes leaves a graph of less than two hundred kilobytes."""
    features = np.ones([250_000, 4], np.float32)
    built = build(dataset=clusters.array_dataset(features, features[:, 0]))
    assert built.graph.as_graph_def().ByteSize() < 200_000
    assert sum(array.nbytes for array in built.input.feed.values()) == 125_000 * 5 * 4  # this worker's half


def test_only_global_variables_are_saved():
    """The blackboard and SyncReplicasOptimizer's local step are no part of a checkpoint."""
    names = {variable.op.name for variable in build(gradients=2).savers.saver._var_list}
    assert names == {"global_step", "weights", "bias", "beta1_power", "beta2_power",
                     "weights/Adam", "weights/Adam_1", "bias/Adam", "bias/Adam_1"}


@pytest.mark.parametrize("parts", [[], [lambda session, folder, is_delta: PartWriter()]], ids=["whole", "in parts"])
def test_a_checkpoint_has_the_graph(tmp_path, parts):
    """Issue: that of one written in parts was empty, as a new thread has a default graph of its own."""
    with tf.Graph().as_default() as graph:
        weights = tf.get_variable("weights", initializer=[1.0, 2.0])
        saver, init = tf.train.Saver(), tf.global_variables_initializer()
        savers = replica_graph.Savers([weights], [weights], saver, MergingSaver(saver, parts) if parts else None)
    path = str(tmp_path / "model.ckpt-5")
    with tf.Session(graph=graph) as session:
        session.run(init)
        waits.bounded(lambda: savers.save(session, path, lambda: path), 60, "a save")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(f"{path}.meta").restore(session, path)
        assert session.run("weights/Read/ReadVariableOp:0").tolist() == [1, 2]


def test_every_worker_places_and_names_the_variables_alike():
    """Worker 0 and worker 1 agree on each variable's device."""
    plans = []
    for index in range(2):
        params = {"batch_size": 8, "seed": 1}
        view = Cluster("worker", index, CLUSTER.addresses)
        built = replica_graph.build_train_graph(
            view, clusters.linear_model(), params, clusters.array_dataset(*clusters.linear_data()), params,
            settings(index))
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


@pytest.mark.parametrize(("model", "gradients", "code"), [
    (contracts.Model("m", lambda features, labels, mode, params: {"loss": 1}, {}), None,
     "plugin_returned_wrong_type"),
    (model_of(loss=None), None, "plugin_returned_wrong_type"),
    (model_of(loss=lambda loss: tf.zeros([2])), None, "plugin_returned_wrong_type"),
    (model_of(train_op=lambda loss: tf.no_op()), 2, "train_op_unsupported"),
], ids=["no spec", "no loss", "a vector", "own train op in sync"])
def test_a_model_that_breaks_its_contract_is_named(model, gradients, code):
    """The error says what it returned and what it must return."""
    with raises(code):
        build(model, gradients=gradients)


@pytest.mark.parametrize("input_fn", [
    lambda mode, params, shard: [1, 2],
    lambda mode, params, shard: tf.data.Dataset.range(3)], ids=["a list", "no pair"])
def test_a_dataset_that_breaks_its_contract_is_named(input_fn):
    """The error says what it returned and what it must return."""
    with raises("plugin_returned_wrong_type"):
        build(dataset=contracts.Dataset("d", input_fn, lambda params: None, {}))


@pytest.mark.optimised
def test_adam_reads_its_powers_once_for_all_variables(start_servers):
    """Of a model with 12 variables: two powers, the variables, the global step."""
    def model_fn(features, labels, mode, params):
        parts = [tf.get_variable(f"v{number}", [4]) for number in range(12)]
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, tf.add_n(parts)) - labels))
        return clusters.ps_train.ModelSpec(loss=loss)

    built = clusters.build_graph(start_servers(1, 1), 0, optimizer_name="adam",
                                 model=clusters.contracts.Model("many", model_fn, {}))
    applied = [op for op in built.graph.get_operations() if op.type == "ResourceApplyAdam"]
    reads = collections.Counter(op.inputs[index].op for op in applied for index in (3, 4))
    assert len(applied) == 12 and sorted(reads.values()) == [12, 12], reads
    assert {op.type for op in reads} == {"ReadVariableOp"}


@pytest.mark.parametrize("make_table", [
    lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0, name="tally"),
    lambda: tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2, name="tally")], ids=["hash", "dense"])
def test_a_table_goes_on_from_a_checkpoint(tmp_path, start_servers, make_table):
    """In the next training, which finds none on its ps, and in evaluation. Issue: it was empty, without a word."""
    def model_fn(features, labels, mode, params):
        table, key = make_table(), tf.constant(7, tf.int64)
        if mode == ps_train.TRAIN:
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, table.insert(key, table.lookup(key) + 1))
        return ps_train.ModelSpec(loss=tf.reduce_mean(features * tf.get_variable("w", [4])),
                                  eval_metric_ops={"tally": tf.metrics.mean(table.lookup(key))})

    model = contracts.Model("tallies", model_fn, {})
    for num_ps, train_steps in ((1, 3), (2, 5)):
        bare_training.train(start_servers(num_ps, 1), tmp_path, train_steps, model=model, continues=num_ps > 1)
    evaluator = evaluation.Evaluator(
        model, clusters.EVAL_PARAMS, clusters.array_dataset(*clusters.linear_data()), clusters.EVAL_PARAMS)
    for _ in range(2):
        assert evaluator.evaluate(tf.train.latest_checkpoint(str(tmp_path))).metrics == {"tally": 5.0}


@pytest.mark.parametrize(("name", "own_tag", "tags"), [
    ("xent", None, {"loss"}),
    ("loss", None, {"loss"}),  # tf.summary.scalar would say loss_1
    ("xent", "loss", {"loss"}),  # a second one would be refused
    ("xent", "error", {"error", "loss"}),
])
def test_the_loss_has_one_tag_whatever_the_model_calls_it(name, own_tag, tags):
    """The evaluation writes its loss under the same tag; a chart then shows both."""
    with tf.Graph().as_default(), tf.Session() as session:
        value = tf.constant(0.5, name=name)
        if own_tag:
            tf.summary.scalar(own_tag, value)
        replica_graph._add_loss_summary(value)
        written = tf.Summary.FromString(session.run(tf.summary.merge_all()))
    assert {one.tag: one.simple_value for one in written.value} == dict.fromkeys(tags, 0.5)
