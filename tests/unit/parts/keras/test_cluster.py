"""Which processes a strategy has, and which of them this one is."""

from __future__ import annotations

import json

import pytest

from ps_train.config.launch import LaunchConfig
from ps_train.errors import ConfigError
from ps_train.parts.keras import flags

MIRRORED, SERVED = "--strategy=multi_worker_mirrored", "--strategy=parameter_server"
ALL = {"chief": ["c:1"], "ps": ["p:1"], "worker": ["a:1", "b:1"]}


def _resolve(*argv, cluster=None, **task):
    environ = {} if cluster is None else {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    return flags.resolve_cluster(flags.parse_keras_task(argv, environ))


def _refusal(*argv, **tf_config):
    with pytest.raises(ConfigError) as caught:
        _resolve(*argv, **tf_config)
    return str(caught.value)


@pytest.mark.parametrize("strategy", ["default", "one_device", "mirrored", "central_storage", "tpu"])
def test_these_strategies_are_one_process(strategy):
    """Also where a scheduler writes a TF_CONFIG for a job of one process."""
    assert _resolve(f"--strategy={strategy}") is None
    assert _resolve(f"--strategy={strategy}", cluster={"worker": ["a:1"]}, type="worker", index=0) is None
    assert "is one process, and TF_CONFIG names 2: worker:0, worker:1" in _refusal(
        f"--strategy={strategy}", cluster={"worker": ["a:1", "b:1"]}, type="worker", index=0)


def test_workers_by_flags():
    """The first is the chief; there is no ps."""
    found = _resolve(MIRRORED, "--worker_hosts=a:1,b:1", "--job_name=worker", "--task_index=1")
    assert (found.task.name, found.is_chief, found.ps, found.num_workers) == ("worker:1", False, [], 2)
    assert [str(task) for task in flags.peers(found)] == ["worker:0 a:1"]


def test_coordinator_ps_and_workers_by_flags():
    """The coordinator is the chief, and needs all servers."""
    found = _resolve(SERVED, "--coordinator_host=c:1", "--ps_hosts=p:1", "--worker_hosts=a:1,b:1", "--job_name=chief",
                     "--task_index=0")
    assert found.is_chief
    assert [task.name for task in flags.peers(found)] == ["ps:0", "worker:0", "worker:1"]
    assert found.server_spec == {"chief": {0: "c:1"}, "ps": {0: "p:1"}, "worker": {0: "a:1", 1: "b:1"}}


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
    found = _resolve(strategy, cluster=cluster, type=job, index=0)
    assert found.is_chief is is_chief
    assert found.job == {"master": "chief"}.get(job, job)
    assert "evaluator" not in found.addresses


@pytest.mark.parametrize(("argv", "message"), [
    ([MIRRORED], "--job_name: not given, and TF_CONFIG is not set; give --job_name and --task_index, or run all tasks "
     "on this machine with `ps_train launch keras --strategy=multi_worker_mirrored`"),
    ([MIRRORED, "--job_name=worker"], "--task_index: not given"),
    ([MIRRORED, "--job_name=ps", "--task_index=0"],
     "--job_name: got 'ps'; allowed with --strategy=multi_worker_mirrored: worker"),
    ([MIRRORED, "--job_name=worker", "--task_index=2"],
     "--task_index: got 2; allowed: 0 to 1, since --worker_hosts names 2 tasks"),
    ([SERVED, "--job_name=chief", "--task_index=1"],
     "--task_index: got 1; allowed: 0 to 0, since --coordinator_host names 1 task"),
    ([SERVED, "--job_name=ps", "--task_index=0", "--coordinator_host=a:1,b:1"],
     "--coordinator_host: got 'a:1,b:1'; allowed: one host:port"),
    ([SERVED, "--job_name=ps", "--task_index=0", "--coordinator_host=localhost:2222"],
     "address localhost:2222 is given to both"),
])
def test_wrong_flags_are_refused(argv, message):
    """In one line each."""
    assert _refusal(*argv).startswith(message)


@pytest.mark.parametrize(("argv", "cluster", "task", "message"), [
    ([MIRRORED], ALL, {"type": "worker", "index": 0}, "TF_CONFIG: cluster names ps, and multi_worker_"),
    ([SERVED], {"ps": ["p:1"], "worker": ["a:1"]}, {"type": "worker", "index": 0}, "TF_CONFIG: cluster names no chief"),
    ([SERVED], {"chief": ["c:1"], "worker": ["a:1"]}, {"type": "worker", "index": 0}, "TF_CONFIG: cluster names no ps"),
    ([SERVED], {"chief": ["c:1"], "ps": ["p:1"]}, {"type": "chief", "index": 0}, "TF_CONFIG: cluster names no worker"),
    ([MIRRORED], {"worker": {"1": "b:1"}}, {"type": "worker", "index": 1},
     "TF_CONFIG: cluster['worker'] names the indices 1; multi_worker_mirrored needs to know all tasks"),
    ([SERVED], ALL, {"type": "evaluator", "index": 0}, "TF_CONFIG: task type is 'evaluator'"),
    ([MIRRORED, "--worker_hosts=a:1"], {"worker": ["a:1"]}, {"type": "worker", "index": 0},
     "--worker_hosts: TF_CONFIG defines the cluster"),
])
def test_a_tf_config_that_does_not_fit_is_refused(argv, cluster, task, message):
    """With what is wrong and what is allowed."""
    assert _refusal(*argv, cluster=cluster, **task).startswith(message)


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
