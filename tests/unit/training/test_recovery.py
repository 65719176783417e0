"""How training ends: which workers the chief waits for, and the table of their steps."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import Snapshot, State
from ps_train.coordination.variables import MAX_WORKERS
from ps_train.training import recovery, reporting

FIXED = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1", 2: "d:1"}})
ELASTIC = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}}, is_elastic=True)
WITH_CHIEF = Cluster("chief", 0, {"ps": {0: "a:1"}, "chief": {0: "b:1"}, "worker": {0: "c:1"}})


def snapshot(claimed=(), silent=(), finished=(), local_steps=None):
    """Returns the snapshot of a blackboard with workers that are alive, silent or finished."""
    claims, heartbeats, steps, done = np.zeros((4, MAX_WORKERS), np.int64)
    claims[[*claimed, *silent]] = 7
    heartbeats[list(claimed)] = 100
    done[list(finished)] = 1
    for number, count in (local_steps or {}).items():
        steps[number] = count
    return Snapshot(State.STOPPING, 100.0, claims, heartbeats.astype(np.float64), steps, steps, done.astype(bool))


@pytest.mark.parametrize(("cluster", "seen", "expected"), [
    (FIXED, snapshot(claimed=[0, 1, 2]), ["worker:0 b:1", "worker:1 c:1", "worker:2 d:1"]),
    (FIXED, snapshot(claimed=[0], silent=[1], finished=[0]), ["worker:2 d:1"]),
    (FIXED, snapshot(claimed=[0, 1, 2], finished=[0, 1, 2]), []),
    (ELASTIC, snapshot(claimed=[0, 5], silent=[6], finished=[0]), ["worker:5"]),
    (ELASTIC, snapshot(claimed=[0], finished=[0]), []),
])
def test_the_chief_waits_for_live_workers_and_those_of_its_cluster(cluster, seen, expected):
    """A silent worker is dead; one that the cluster of an elastic chief does not name counts while it is alive."""
    assert recovery.unfinished_workers(cluster, seen) == expected


@pytest.mark.parametrize(("cluster", "seen", "expected"), [
    (ELASTIC, snapshot(finished=[0, 12], local_steps={0: 900, 3: 25, 12: 75}), [
        "Steps of each worker, 1000 in all:",
        "  worker:0 (chief)  900   90.0%",
        "  worker:3           25    2.5%  left before the end",
        "  worker:12          75    7.5%"]),
    (WITH_CHIEF, snapshot(finished=[0, 1], local_steps={0: 1, 1: 9}), [
        "Steps of each worker, 10 in all:",
        "  chief:0 (chief)  1   10.0%",
        "  worker:0         9   90.0%"]),
    (FIXED, snapshot(finished=[0]), []),
])
def test_the_table_has_the_steps_of_each_worker(cluster, seen, expected):
    """Aligned, with the share of each; those that left are in it."""
    assert reporting.steps_table(cluster, seen).splitlines() == expected
