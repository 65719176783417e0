"""A whole cluster in threads of this process, as users test their own models with it."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from ps_train import testing
from ps_train.cluster import ports
from ps_train.cluster.spec import Task
from ps_train.launch.machines import hold_ports
from ps_train.runtime import threads
from ps_train.training.reporting import End
from tests.errors import raises

PLUGIN = """
import numpy as np
import ps_train
import tensorflow.compat.v1 as tf

DEFAULT_PARAMS = {"breaks": False}
TRUE_WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


def model_fn(features, labels, mode, params):
    if params["breaks"] and mode == ps_train.TRAIN:
        raise ValueError("the model is broken")
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    predictions = tf.linalg.matvec(features, weights)
    return ps_train.ModelSpec(
        loss=tf.reduce_mean(tf.square(predictions - labels)),
        eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})


def input_fn(mode, params, shard):
    index, count = shard
    features = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)[index::count]
    return ps_train.from_arrays((features, features @ TRUE_WEIGHTS), params["batch_size"],
                                repeat=mode == ps_train.TRAIN)
"""


@pytest.fixture
def linear(tmp_path, monkeypatch):
    """A function that trains a linear regression by run_in_threads, in tmp_path/train."""
    (tmp_path / "threaded_linear.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(**options):
        flags = {"batch_size": 8, "optimizer": "sgd", "learning_rate": 0.05, "train_steps": 400, "log_steps": 0,
                 "save_summaries_steps": 0, **options}
        return testing.run_in_threads("threaded_linear", "threaded_linear", train_dir=tmp_path / "train", **flags)

    return run


@pytest.mark.parametrize("options", [
    {"num_ps": 2, "num_workers": 2}, {"sync_replicas": True}, {"elastic": True}], ids=["async", "sync", "elastic"])
def test_a_cluster_trains_evaluates_and_ends(linear, tmp_path, options):
    """Both workers take part; the checkpoint has what the data say, and the chief's metrics agree."""
    result = linear(**options)
    assert [outcome.end for outcome in result.outcomes] == [End.STEPS] * 2 or End.ANNOUNCED in {
        outcome.end for outcome in result.outcomes}
    assert not [thread for thread in threading.enumerate() if thread.name == threads.CLOSING]
    assert sum(outcome.local_steps for outcome in result.outcomes) >= 400
    assert result.evaluation.global_step >= 400
    assert result.evaluation.num_examples == 64
    assert json.loads((tmp_path / "train/cluster.json").read_text())["is_elastic"] == options.get("elastic", False)
    saved = testing.read_checkpoint(tmp_path / "train")
    np.testing.assert_allclose(saved["weights"], [1.0, -2.0, 3.0, 0.5], atol=1e-2)
    assert result.evaluation.metrics["error"] < 1e-2


def test_what_the_model_raises_reaches_the_test(linear):
    """Not the losses that follow from it in the other tasks."""
    with pytest.raises(ValueError, match="the model is broken"):
        linear(params="breaks=true")


def test_a_wrong_flag_is_refused_before_anything_starts(linear):
    """As on the command line."""
    with raises("flag_unknown"):
        linear(no_such_flag=1)
    with raises("flag_out_of_range"):
        linear(batch_size=0)


def test_a_cluster_that_does_not_end_is_stopped_and_its_tasks_are_named(tmp_path):
    """After the time that was given for all of it; no thread of a task is left."""
    with raises("timed_out") as overdue:
        testing.run_in_threads("tests.plugins.tiny", "tests.plugins.tiny", train_dir=tmp_path, timeout_secs=5,
                               train_steps=10**8, params="batch_secs=0.02")
    assert "ps:0, worker:0, worker:1" in str(overdue.value)
    assert not {thread.name for thread in threading.enumerate()} & {"ps:0", "worker:0", "worker:1"}


def test_no_checkpoint_is_an_error(tmp_path):
    """It names the folder."""
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no checkpoint"):
        testing.read_checkpoint(tmp_path)


def test_ports_stay_taken_until_the_servers_bind_them():
    """Another process that looks for ports meanwhile finds others; this process's servers can bind their own."""
    for holder in hold_ports(2, 23000):
        port = holder.getsockname()[1]
        ports.let_server_bind(holder)
        others = hold_ports(2, port)
        assert port not in [other.getsockname()[1] for other in others]
        for other in others:
            other.close()
        ports.check_port(Task("worker", 0, f"localhost:{port}"))
