"""The tasks that a model names by `tf.device`."""

from __future__ import annotations

import shutil

import pytest

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.graph import devices
from ps_train.plugins import contracts
from ps_train.training import evaluation
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.training.test_replica_graph import build
from tests.errors import raises
from tests.plugins import by_hand
from tests.processes import REPO, TaskCluster
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 1, {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}})
BY_HAND = contracts.Model("by_hand", by_hand.model_fn, {})


def model_on(device: str) -> contracts.Model:
    """Returns a model with a variable on this device."""
    def model_fn(features, labels, mode, params):
        with tf.device(device):
            weights = tf.get_variable("w", [4])
        return ps_train.ModelSpec(loss=tf.reduce_mean(weights * features))

    return contracts.Model("m", model_fn, {})


def test_a_model_placed_by_hand_trains_and_is_evaluated(tmp_path, start_process):
    """Issue: training ended well, then the chief's evaluation died with 233 lines."""
    for name in ("by_hand", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    TaskCluster(2, 2).start(
        start_process, ["--model=by_hand", "--dataset=tiny", "--batch_size=16", "--train_steps=200",
                        f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    assert set(start_process.wait().values()) == {0}
    log = start_process.log("worker-0")
    assert "held-out examples:\n  loss = " in log and "Traceback" not in log
    other = start_process.log("worker-1")
    assert ("the model names /job:worker/task:0 by tf.device; each worker has its own replica, so here that is "
            "worker:1") in other
    assert "the model names" not in log  # for worker 0 nothing is changed


@pytest.mark.parametrize("options", [{"period": Period(10)}, {"steps_per_execution": 4}], ids=["local", "several"])
def test_it_trains_in_rounds_and_several_steps_at_once_too(start_servers, options):
    """Two workers, though the model names one."""
    cluster = start_servers(2, 2)
    workers = [bare_training.BareTraining(cluster, index, model=BY_HAND, **options) for index in range(2)]
    assert all(outcome.global_step >= 40 for outcome in bare_training.train_at_once(workers, 40))


def test_the_ps_that_a_model_names_are_kept_and_its_worker_is_this_one():
    """Variables where they were to be; worker 1 does not compute on worker 0."""
    built = build(BY_HAND)
    placed = {variable.op.name: tf.DeviceSpec.from_string(variable.device) for variable in built.savers.variables}
    assert {name: (placed[name].job, placed[name].task) for name in ("hidden", "weights")} == {
        "hidden": ("ps", 0), "weights": ("ps", 1)}
    found = {tf.DeviceSpec.from_string(op.device) for op in built.graph.get_operations()}
    assert {spec.task for spec in found if spec.job == "worker"} == {1}


def test_a_ps_that_is_not_there_is_named():
    """Before any socket opens; the text says which there are."""
    with raises("device_not_in_cluster"):
        build(model_on("/job:ps/task:7"))


def test_a_variable_on_a_worker_is_refused():
    """Each worker would train its own."""
    with raises("variable_on_worker"):
        build(model_on("/job:worker/task:0"))


def test_a_job_without_a_task_is_left_to_the_placement():
    """`tf.device("/job:ps")` is what the placement does anyway."""
    (variable,) = [one for one in build(model_on("/job:ps")).savers.variables if one.op.name == "w"]
    assert tf.DeviceSpec.from_string(variable.device).job == "ps"


def test_a_workers_own_copy_computes_on_the_worker():
    """Local steps: no operation of their loop is on a ps, though the model puts its loss there."""
    built = clusters.build_graph(clusters.GraphCluster(2, 1), 0, model=BY_HAND, period=Period(4))
    looped = {tf.DeviceSpec.from_string(op.device).job for op in built.graph.get_operations()
              if op._get_control_flow_context() is not None}
    assert "worker" in looped and "ps" not in looped


def test_a_graph_of_one_process_alone_names_no_task():
    """What follows the task stays, here a GPU, which TensorFlow may replace by the CPU."""
    evaluator = evaluation.Evaluator(BY_HAND, {"batch_size": 8, "seed": 1},
                                   clusters.array_dataset(*clusters.linear_data()), {"batch_size": 8, "seed": 1})
    found = {op.device for op in evaluator._graph.get_operations()}
    assert {tf.DeviceSpec.from_string(device).job for device in found} == {None}
    assert "/device:GPU:0" in found


def test_devices_inside_are_changed_and_others_are_not():
    """Only a ps is ignored where only that is asked for."""
    with tf.Graph().as_default(), devices.ignoring_ps():
        with tf.device("/job:ps/task:1/cpu:0"):
            on_ps = tf.constant(1)
        with tf.device("/job:worker/task:1/cpu:0"):
            on_worker = tf.constant(1)
    assert (on_ps.device, on_worker.device) == ("/device:CPU:0", "/job:worker/task:1/device:CPU:0")
