"""The value that says who is in the cluster."""

from __future__ import annotations

import pytest

from ps_train.cluster.spec import Cluster

CLUSTER = Cluster("worker", 1, {"ps": {0: "a:1", 1: "b:2"}, "worker": {0: "c:3", 1: "d:4", 2: "e:5"}})


@pytest.mark.parametrize(("addresses", "names"), [
    ({"worker": {0: "b:1", 3: "c:1"}}, {0: "worker:0", 1: "worker:1", 3: "worker:3", 9: "worker:9"}),
    ({"chief": {0: "b:1"}, "worker": {1: "c:1"}}, {0: "chief:0", 1: "worker:0", 2: "worker:1", 9: "worker:8"}),
    ({"master": {0: "b:1"}}, {0: "master:0", 1: "worker:0"}),
])
def test_a_number_has_a_name_whether_the_cluster_tells_of_that_worker_or_not(addresses, names):
    """The inverse of `number_of`."""
    cluster = Cluster("worker", 0, {"ps": {0: "a:1"}, **addresses})
    assert {number: cluster.worker_name(number) for number in names} == names
    for task in cluster.workers:
        assert cluster.worker_name(cluster.number_of(task)) == task.name


def test_devices_and_peers():
    """A session is confined to the ps and its own task."""
    assert CLUSTER.task.device == "/job:worker/task:1"
    assert [task.device for task in CLUSTER.peers] == ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]
    assert CLUSTER.boot == (CLUSTER.server_spec, "worker", 1)
    assert CLUSTER.server_spec == {"ps": {0: "a:1", 1: "b:2"}, "worker": {0: "c:3", 1: "d:4", 2: "e:5"}}


def test_a_cluster_is_frozen():
    """Nothing changes a cluster after it was checked."""
    with pytest.raises(AttributeError):
        CLUSTER.index = 0
