"""The class SyncReplicasOptimizer: TensorFlow's signature, and how it knows which worker it is."""

from __future__ import annotations

import inspect
import json
import types

import numpy as np
import pytest

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.graph import transfer
from ps_train.parts.legacy.classic import membership
from ps_train.updates.update import SyncSettings
from tests import clusters
from tests.cluster.parts.legacy.test_standalone import NUM_STEPS, Script, train_both, values_of
from tests.cluster.parts.tensorflow_sync.test_part import by_numpy
from tests.errors import raises
from tests.tensorflow_mode import tf

HOSTS = {"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1", "d:1"]}


def make(worker=None, device="", total=3, **options):
    """Returns the optimizer of a small graph, after apply_gradients."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        variable = tf.get_variable("x", initializer=1.0)
        optimizer = ps_train.SyncReplicasOptimizer(
            tf.train.MomentumOptimizer(0.1, 0.9), 2, total, worker=worker, **options)
        with tf.device(device):
            optimizer.minimize(variable**2, step)
        assert optimizer.get_slot(variable, "momentum") is not None
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.variables() == [optimizer.get_slot(variable, "momentum")]
        return optimizer


def test_the_constructor_and_the_methods_are_those_of_tensorflow():
    """All of TensorFlow's arguments, in its order and with its defaults; ours follow by keyword."""
    def arguments(function):
        return [(parameter.name, parameter.default) for parameter in inspect.signature(function).parameters.values()
                if parameter.kind is not parameter.KEYWORD_ONLY]

    ours, theirs = ps_train.SyncReplicasOptimizer, tf.train.SyncReplicasOptimizer
    assert issubclass(ours, tf.train.Optimizer)
    public = [name for name in vars(theirs) if not name.startswith("_")]
    assert [name for name in public if name not in vars(ours)] == []
    for name in ["__init__", *public]:
        assert arguments(getattr(ours, name)) == arguments(inspect.unwrap(getattr(theirs, name))), name


def worker_of(monkeypatch, tf_config=None, **options):
    """Returns the number of the worker that the optimizer takes itself for."""
    if tf_config is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    return make(**options).worker_number


@pytest.mark.parametrize("job, index, number", [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_the_worker_is_known_from_tf_config(monkeypatch, job, index, number):
    """Behind a chief task the workers begin at 1; a device without a task says nothing."""
    tf_config = {"cluster": HOSTS, "task": {"type": job, "index": index}}
    assert worker_of(monkeypatch, tf_config, device="/cpu:0") == number
    assert worker_of(monkeypatch, tf_config, device=f"/job:{job}/task:{index}") == number


@pytest.mark.parametrize("job, index, number", [("chief", 0, 0), ("worker", 0, 0), ("worker", 2, 2)])
def test_behind_a_chief_that_is_listed_again_as_worker_0_the_workers_begin_at_1(monkeypatch, job, index, number):
    """The chief and worker 0 are one task."""
    tf_config = {"cluster": {**HOSTS, "worker": ["b:1", "c:1", "d:1"]}, "task": {"type": job, "index": index}}
    assert worker_of(monkeypatch, tf_config, device="/cpu:0") == number
    assert worker_of(monkeypatch, tf_config, device=f"/job:{job}/task:{index}") == number


def test_the_worker_is_known_from_the_device_or_the_keyword(monkeypatch):
    """The keyword comes first."""
    assert worker_of(monkeypatch, device="/job:worker/task:1/cpu:0") == 1
    assert worker_of(monkeypatch, device="/job:worker/task:1", worker=2) == 2


@pytest.mark.parametrize("device", ["", "/job:worker", "/job:ps/task:1", "/cpu:0"])
def test_the_worker_is_known_from_replica_id_where_the_device_names_none(monkeypatch, device):
    """Issue: clients of before 1.0, whose device setter knows only the cluster, were refused."""
    assert worker_of(monkeypatch, device=device, replica_id=2) == 2
    assert worker_of(monkeypatch, device="/job:worker/task:1", replica_id=2) == 1


def test_a_job_of_another_name_is_one_of_workers(monkeypatch):
    """Issue: learners and trainers were refused."""
    assert worker_of(monkeypatch, device="/job:learner/task:2/cpu:0") == 2


@pytest.mark.parametrize("device", ["", "/job:ps/task:1", "/job:worker"])
def test_the_only_worker_has_the_number_0(monkeypatch, device):
    """Issue: a process without a cluster that aggregates gradients of its own was refused."""
    assert worker_of(monkeypatch, device=device, total=1) == 0


def test_a_worker_whose_number_is_unknown_is_refused(monkeypatch):
    """So is one whose number is too large for total_num_replicas."""
    for device in ("", "/job:worker", "/job:ps/task:1"):
        with raises("worker_number_unknown"):
            worker_of(monkeypatch, device=device)
    with raises("worker_number_invalid"):
        worker_of(monkeypatch, worker=2, total=None)


@pytest.mark.parametrize("total", [None, 2, 3, 5])
def test_all_workers_of_the_cluster_train_whatever_number_the_script_gives(monkeypatch, total):
    """Issue: a script that counts its workers without the chief, or gives no number, was refused on the last one."""
    cluster = Cluster("worker", 1, {job: dict(enumerate(hosts)) for job, hosts in HOSTS.items()})
    monkeypatch.setattr(membership, "_current", [types.SimpleNamespace(cluster=cluster)])
    optimizer = make(total=total)
    assert optimizer.worker_number == 2
    assert optimizer._settings == SyncSettings(2, 3)


def test_what_tensorflow_refuses_is_refused(monkeypatch):
    """With its own kind of error, and its words."""
    optimizer = ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 4, 2, worker=0)
    with pytest.raises(ValueError, match="Should be called after apply_gradients"):
        optimizer.get_chief_queue_runner()
    with pytest.raises(ValueError, match="should be called after apply_gradients"):
        optimizer.get_init_tokens_op()
    with pytest.raises(ValueError, match="after apply_gradients"):
        optimizer.make_session_run_hook(is_chief=True).begin()
    with pytest.raises(ValueError, match="at least one variable"):
        optimizer.apply_gradients([])
    with tf.Graph().as_default():
        variable = tf.get_variable("x", initializer=1.0)
        with pytest.raises(ValueError, match="Global step is required"):
            optimizer.minimize(variable**2)
        optimizer.minimize(variable**2, tf.train.create_global_step())
        with pytest.raises(ValueError, match=r"Too few tokens to finish the first step: 1 \(given\) vs 2 \(needed\)"):
            optimizer.get_init_tokens_op(1)
        assert optimizer.get_init_tokens_op().type == "NoOp"


@pytest.mark.parametrize("scope", [tf.name_scope, tf.variable_scope])
def test_variables_have_the_names_that_tensorflow_gives_them(scope):
    """Issue: under a scope Adam's had it in front, so that a checkpoint of TensorFlow did not restore."""
    names = []
    for optimizer_class in (tf.train.SyncReplicasOptimizer, ps_train.SyncReplicasOptimizer):
        with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
            step, variable = tf.train.create_global_step(), tf.get_variable("x", initializer=1.0)
            with scope("train"):
                averages = tf.train.ExponentialMovingAverage(0.9, step)
                optimizer = optimizer_class(tf.train.AdamOptimizer(0.1), 1, 1, averages, [variable])
                optimizer.minimize(variable**2, step)
            names.append(sorted(variable.op.name for variable in tf.global_variables()))
    assert names[0] == names[1] and "beta1_power" in names[1]


def test_what_the_chief_runs_takes_no_mini_batch():
    """Nor what begins a step: only the step runs the update_ops of batch normalisation, say, that it waits for."""
    with tf.Graph().as_default():
        step, variable = tf.train.create_global_step(), tf.get_variable("x", initializer=1.0)
        batch = tf.placeholder(tf.float32, [])
        update_op = tf.assign(tf.get_variable("average", initializer=0.0, trainable=False), batch)
        optimizer = ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1, worker=0)
        with tf.control_dependencies([update_op]):
            train_op = optimizer.minimize(variable**2, step)
        assert batch.op in transfer.upstream([train_op])
        others = [optimizer.chief_init_op, optimizer.local_step_init_op, optimizer.ready_for_local_init_op,
                  optimizer.operations.update_op, optimizer.operations.flush_op, optimizer.operations.release_op]
        assert batch.op not in transfer.upstream(others)


def test_moving_averages_follow_each_update():
    """They are those of the variables after each update: a = 0.5 a + 0.5 v."""
    cluster = clusters.LocalCluster(1, 2)
    averages = [tf.train.ExponentialMovingAverage(0.5) for _ in range(2)]
    scripts = [Script(cluster, index, averages=average) for index, average in enumerate(averages)]
    train_both(scripts, "supervised")
    expected = np.zeros(4)
    for step in range(NUM_STEPS):
        expected = 0.5 * expected + 0.5 * by_numpy(step + 1)[0]
    np.testing.assert_allclose(values_of(cluster, scripts[0])["weights/ExponentialMovingAverage"], expected, rtol=1e-5)
