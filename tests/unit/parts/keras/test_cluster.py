"""Which processes a strategy has, and which of them this one is."""

from __future__ import annotations

import json

import pytest

from ps_train.config.launch import LaunchConfig
from ps_train.errors import ConfigError
from ps_train.parts.keras import flags
from tests.errors import raises

MIRRORED, SERVED = "--strategy=multi_worker_mirrored", "--strategy=parameter_server"
ALL = {"chief": ["c:1"], "ps": ["p:1"], "worker": ["a:1", "b:1"]}


def _resolve(*argv, cluster=None, **task):
    environ = {} if cluster is None else {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    return flags.resolve_cluster(flags.parse_keras_task(argv, environ))


@pytest.mark.parametrize("strategy", ["default", "one_device", "mirrored", "central_storage", "tpu"])
def test_these_strategies_are_one_process(strategy):
    """Also where a scheduler writes a TF_CONFIG for a job of one process."""
    assert _resolve(f"--strategy={strategy}") is None
    assert _resolve(f"--strategy={strategy}", cluster={"worker": ["a:1"]}, type="worker", index=0) is None
    with raises("tf_config_unsuitable") as caught:
        _resolve(f"--strategy={strategy}", cluster={"worker": ["a:1", "b:1"]}, type="worker", index=0)
    assert "worker:0, worker:1" in str(caught.value)


def test_workers_by_flags():
    """The first is the chief, and the cluster has no ps."""
    cluster = _resolve(MIRRORED, "--worker_hosts=a:1,b:1", "--job_name=worker", "--task_index=1")
    assert (cluster.task.name, cluster.is_chief, cluster.ps, cluster.num_workers) == ("worker:1", False, [], 2)
    assert [str(task) for task in flags.peers(cluster)] == ["worker:0 a:1"]


def test_coordinator_ps_and_workers_by_flags():
    """The coordinator is the chief, and needs all servers."""
    cluster = _resolve(SERVED, "--coordinator_host=c:1", "--ps_hosts=p:1", "--worker_hosts=a:1,b:1", "--job_name=chief",
                     "--task_index=0")
    assert cluster.is_chief
    assert [task.name for task in flags.peers(cluster)] == ["ps:0", "worker:0", "worker:1"]
    assert cluster.server_spec == {"chief": {0: "c:1"}, "ps": {0: "p:1"}, "worker": {0: "a:1", 1: "b:1"}}


@pytest.mark.parametrize(("strategy", "cluster", "job", "is_chief"), [
    (MIRRORED, {"worker": ["a:1", "b:1"]}, "worker", True),
    (MIRRORED, {"chief": ["c:1"], "worker": ["a:1"]}, "worker", False),
    (MIRRORED, {"chief": ["c:1"], "worker": ["a:1"], "evaluator": ["e:1"]}, "chief", True),
    (MIRRORED, {"master": ["c:1"], "worker": ["a:1"]}, "master", True),
    (SERVED, ALL, "chief", True),
    (SERVED, ALL, "ps", False),
])
def test_tf_config_places_the_task(strategy, cluster, job, is_chief):
    """As tf.distribute's own guide writes it, and as Kubeflow does."""
    resolved = _resolve(strategy, cluster=cluster, type=job, index=0)
    assert resolved.is_chief is is_chief
    assert resolved.job == {"master": "chief"}.get(job, job)
    assert "evaluator" not in resolved.addresses


@pytest.mark.parametrize(("argv", "code", "part"), [
    ([MIRRORED], "flag_missing", "--job_name: not given"),
    ([MIRRORED, "--job_name=worker"], "flag_missing", "--task_index: not given"),
    ([MIRRORED, "--job_name=ps", "--task_index=0"], "flag_out_of_range", "--job_name: got 'ps'"),
    ([MIRRORED, "--job_name=worker", "--task_index=2"], "flag_out_of_range", "--task_index: got 2; allowed: 0 to 1"),
    ([SERVED, "--job_name=chief", "--task_index=1"], "flag_out_of_range", "--task_index: got 1; allowed: 0 to 0"),
    ([SERVED, "--job_name=ps", "--task_index=0", "--coordinator_host=a:1,b:1"], "flag_malformed",
     "--coordinator_host: got 'a:1,b:1'"),
])
def test_a_wrong_flag_is_refused(argv, code, part):
    """The message has the flag and its value."""
    with raises(code) as caught:
        _resolve(*argv)
    assert str(caught.value).startswith(part)


def test_an_address_of_two_tasks_is_refused():
    """The address is in the message."""
    with pytest.raises(ConfigError, match="localhost:2222"):
        _resolve(SERVED, "--job_name=ps", "--task_index=0", "--coordinator_host=localhost:2222")


@pytest.mark.parametrize(("argv", "cluster", "job", "part"), [
    ([MIRRORED], ALL, "worker", "chief, ps, worker"),
    ([SERVED], {"ps": ["p:1"], "worker": ["a:1"]}, "worker", "of ps, worker"),
    ([SERVED], {"chief": ["c:1"], "ps": ["p:1"]}, "chief", "of chief, ps"),
    ([SERVED], {"chief": ["c:1"], "worker": ["a:1"]}, "worker", "of chief, worker"),
    ([MIRRORED], {"worker": {"1": "b:1"}}, "worker", "cluster['worker'] names the indices 1"),
    ([SERVED], ALL, "evaluator", "'evaluator'"),
])
def test_a_tf_config_that_does_not_fit_is_refused(argv, cluster, job, part):
    """The message has the job."""
    with raises("tf_config_unsuitable") as caught:
        _resolve(*argv, cluster=cluster, type=job, index=1 if isinstance(cluster.get(job), dict) else 0)
    assert part in str(caught.value)


def test_flags_of_the_cluster_and_tf_config_are_refused_together():
    """One of them describes the cluster, not both."""
    with raises("flag_contradicts_tf_config"):
        _resolve(MIRRORED, "--worker_hosts=a:1", cluster={"worker": ["a:1"]}, type="worker", index=0)


@pytest.mark.parametrize(("strategy", "names", "chief"), [
    ("mirrored", ["worker:0"], "worker:0"),
    ("multi_worker_mirrored", ["worker:0", "worker:1", "worker:2"], "worker:0"),
    ("parameter_server", ["ps:0", "chief:0", "worker:0", "worker:1", "worker:2"], "chief:0"),
])
def test_the_launcher_starts_what_the_strategy_needs(strategy, names, chief):
    """The ps first, then the chief."""
    config = flags.parse_keras_task([f"--strategy={strategy}"], {})
    tasks = flags.strategy_tasks(config, LaunchConfig(num_ps=1, num_workers=3))
    assert (tasks.names, tasks.chief, tasks.verb) == (names, chief, ("keras",))
