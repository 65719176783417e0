"""How a task is configured, and how two of them differ."""

from __future__ import annotations

import json

import pytest

from ps_train.cluster.resolve import find_cluster
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import agreement

PS = Task("ps", 0, "a:1")


def flags(job, index, num_ps=2, num_workers=2, elastic=None):
    """Returns the cluster of a task with the classic flags."""
    return find_cluster(
        ps_hosts=",".join(f"ps{i}:1" for i in range(num_ps)), job_name=job, task_index=index, elastic=elastic,
        worker_hosts=",".join(f"w{i}:1" for i in range(num_workers)))


def tf_config(cluster, job, index):
    """Returns the cluster of a task with TF_CONFIG."""
    return find_cluster(tf_config=json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))


@pytest.mark.parametrize(("ps", "worker", "expected"), [
    (flags("ps", 0, num_workers=1), flags("worker", 1),
     "ps:0 a:1 was configured with 1 worker, worker:1 w1:1 with 2 workers; "),
    (flags("ps", 0, num_workers=3), flags("worker", 0),
     "ps:0 a:1 was configured with 3 workers, worker:0 w0:1 with 2 workers; "),
    (flags("ps", 0), flags("worker", 1, num_ps=1), "ps:0 a:1 was configured with 2 ps, worker:1 w1:1 with 1 ps; "),
    (flags("ps", 0, num_ps=3, num_workers=1), flags("worker", 0),
     "ps:0 a:1 was configured with 3 ps and 1 worker, worker:0 w0:1 with 2 ps and 2 workers; "),
    (flags("ps", 1), flags("worker", 0),
     "worker:0 w0:1 was configured with ps:0 at a:1, but ps:1 runs there; "),
    (flags("ps", 0), tf_config({"ps": ["p:1", "q:1"], "chief": ["c:1"], "worker": ["w:1"]}, "chief", 0),
     "ps:0 a:1 was configured with no chiefs and 2 workers, chief:0 c:1 with 1 chief and 1 worker; "),
    (tf_config({"ps": ["p:1"], "worker": {"0": "w:1", "2": "x:1"}}, "ps", 0), flags("worker", 1, num_ps=1),
     "ps:0 a:1 was configured with workers 0, 2, worker:1 w1:1 with 2 workers; "),
    (flags("ps", 0, elastic=True), flags("worker", 0),
     "ps:0 a:1 was configured for an elastic cluster, worker:0 w0:1 for a fixed one; "),
])
def test_difference_names_both_settings(ps, worker, expected):
    """Both tasks, and the difference."""
    line = agreement._cluster_difference(worker, PS, agreement.describe_cluster(ps))
    assert line.startswith(expected)
    assert "\n" not in line


@pytest.mark.parametrize(("ps", "worker"), [
    (flags("ps", 0), flags("worker", 1)),
    (flags("ps", 0), Cluster("worker", 1, {"ps": {0: "t:1", 1: "t:2"}, "worker": {0: "t:3", 1: "t:4"}})),  # a tunnel
    (tf_config({"ps": ["p:1"], "chief": ["c:1"], "worker": ["w:1", "x:1"]}, "ps", 0),  # a sparse worker
     tf_config({"ps": ["p:1"], "chief": ["c:1"], "worker": {"1": "x:1"}}, "worker", 1)),
    (tf_config({"ps": ["p:1"], "chief": ["c:1"], "worker": ["w:1"], "evaluator": ["e:1"]}, "ps", 0),
     tf_config({"ps": ["p:1"], "chief": ["c:1"], "worker": ["w:1"]}, "chief", 0)),
    (tf_config({"ps": ["p:1"], "worker": {}}, "ps", 0),  # enableDynamicWorker
     tf_config({"ps": ["p:1", "q:1"], "worker": {"3": "w:1"}}, "worker", 3)),
    (flags("ps", 0, elastic=True), flags("worker", 5, num_workers=1, elastic=True)),
])
def test_tasks_that_fit_together_do_not_differ(ps, worker):
    """Addresses are not compared, and a task may be configured with a part of the cluster."""
    assert agreement._cluster_difference(worker, PS, agreement.describe_cluster(ps)) == ""


def test_a_ps_knows_the_tasks_of_its_cluster():
    """If it was configured with a part of a job, it may know any task of that job."""
    assert agreement._knows(agreement.describe_cluster(flags("ps", 0)), Task("worker", 1, ""))
    assert not agreement._knows(agreement.describe_cluster(flags("ps", 0)), Task("ps", 2, ""))
    assert agreement._knows(agreement.describe_cluster(flags("ps", 0, elastic=True)), Task("worker", 7, ""))


def test_many_indexes_are_cut_off():
    """The line stays readable."""
    assert agreement._words("worker", range(1, 100)) == "workers 1, 2, 3, 4, 5, 6, 7, 8, ..."
