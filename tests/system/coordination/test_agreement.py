"""Tasks that were told of different clusters."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard
from ps_train.coordination.state import State
from ps_train.errors import ConfigError
from tests import processes
from tests.errors import raises
from tests.processes import REPO, TaskCluster


def told_less(cluster, job, index=1):
    """Returns what a worker of a cluster of two and two was told where one task of a job was left out."""
    view = cluster.view("worker", index)
    fewer = {job: dict(list(view.addresses[job].items())[:1])}
    return dataclasses.replace(view, addresses={**view.addresses, **fewer})


@pytest.fixture
def noted():
    """A function that returns what each ps of a cluster has noted."""
    def read(cluster):
        found = []
        for index in cluster.addresses["ps"]:
            own = blackboard.for_ps(cluster.target("ps", index), cluster.view("ps", index))
            with contextlib.closing(own):
                found.append(own.mismatch())
        return found

    return read


def test_workers_that_were_told_the_same_go_on(start_servers, stop, noted):
    """Nothing is noted; one that was told of itself only, in the sparse form, is welcome too."""
    cluster = start_servers(2, 2)
    agreement.check(cluster.view("worker", 0), 30, stop)
    own = {1: cluster.addresses["worker"][1]}
    agreement.check(Cluster("worker", 1, {"ps": cluster.addresses["ps"], "worker": own}, partial=frozenset({"worker"})),
                    30, stop)
    assert noted(cluster) == ["", ""]


def test_who_finds_a_difference_tells_every_ps_and_so_every_task(start_servers, stop, noted):
    """Also the tasks that fit."""
    cluster = start_servers(2, 2)
    with pytest.raises(ConfigError, match=r"^ps:0 \S+ was configured with 2 workers, worker:0 \S+ with 1 worker; "):
        agreement.check(told_less(cluster, "worker", index=0), 30, stop)
    line = noted(cluster)[0]
    assert line.startswith("the tasks have different cluster settings: ps:0 ")
    assert noted(cluster) == [line, line]
    with pytest.raises(ConfigError, match="^the tasks have different cluster settings: ps:0 .* worker:0 "):
        agreement.check(cluster.view("worker", 1), 30, stop)


@pytest.mark.parametrize("situation", ["took part before", "a stranger", "a client of existing servers", "over"])
def test_a_training_that_is_whole_without_it_goes_on(start_servers, stop, noted, situation):
    """The worker is refused alone."""
    cluster = start_servers(2, 2)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.announce(State.DONE if situation == "over" else State.RUNNING)
        if situation == "took part before":
            board.claim(1, 7)
    own = told_less(cluster, "ps")
    if situation == "a stranger":
        own = dataclasses.replace(own, index=5, addresses={**own.addresses, "worker": {5: "localhost:1"}})
    with raises("clusters_differ"):
        agreement.check(own, 30, stop, existing_servers=situation == "a client of existing servers")
    assert noted(cluster) == ["", ""]


def test_a_client_may_use_some_of_the_servers(start_servers, stop):
    """Of the workers; with all ps."""
    agreement.check(told_less(start_servers(2, 2), "worker", index=0), 30, stop, existing_servers=True)


def test_a_ps_that_is_missing_is_named(start_servers, stop):
    """The wait for it has a bound."""
    view = start_servers(1, 1).view("worker", 0)
    port = processes.free_ports(1)[0]
    own = dataclasses.replace(view, partial=frozenset({"ps"}), addresses={
        **view.addresses, "ps": {**view.addresses["ps"], 1: f"localhost:{port}"}})
    with raises("timed_out"):
        agreement.check(own, 1, stop)


def test_a_ps_of_which_ps_0_was_not_told_says_so(start_servers):
    """No worker that ps 0 lets in uses it; one that ps 0 knows goes on, and so does one whose ps 0 is not there yet."""
    cluster = start_servers(2, 1)
    first = cluster.view("ps", 0).task
    agreement.check_ps(cluster.view("ps", 1), first)
    stranger = Cluster("ps", 2, {"ps": {**cluster.addresses["ps"], 2: "localhost:1"}})
    with raises("clusters_differ"):
        agreement.check_ps(stranger, first)
    with raises("ps_unreachable"):
        agreement.check_ps(stranger, dataclasses.replace(first, address=f"localhost:{processes.free_ports(1)[0]}"))


class Misled:
    """A cluster of real processes in which some tasks are told of fewer ps or workers than the others."""

    def __init__(self, folder, group, num_ps, num_workers, fewer):
        """Starts it; `fewer` has the name of a task -> how many (ps, workers) it is told of."""
        shutil.copy(REPO / "tests/plugins/tiny.py", folder)
        cluster = TaskCluster(num_ps, num_workers)
        for job, index in sorted(cluster.tasks(), key=lambda task: task[0] == "ps"):
            if (job, index) == ("ps", 0):  # it waits 12 s for workers that do not know of the difference, and ends
                for worker in range(num_workers):
                    group.wait_for_line(f"worker-{worker}", "serves at")
            count_ps, count_workers = fewer.get(f"{job}-{index}", (num_ps, num_workers))
            group.start(f"{job}-{index}", [
                f"--ps_hosts={','.join(cluster.ps[:count_ps])}",
                f"--worker_hosts={','.join(cluster.workers[:count_workers])}", f"--job_name={job}",
                f"--task_index={index}", "--model=tiny", "--dataset=tiny", "--train_steps=1000000",
                f"--train_dir={folder}/train", "--start_timeout_secs=3600", "--idle_timeout_secs=3600"], cwd=folder)


@pytest.mark.parametrize(("size", "fewer", "line"), [
    ((1, 2), {"ps-0": (1, 1)}, "ps:0 .* was configured with 1 worker, worker:. .* with 2 workers"),
    ((2, 2), {"worker-1": (1, 2)}, "ps:0 .* was configured with 2 ps, worker:1 .* with 1 ps"),
    ((2, 1), {"ps-0": (1, 1)}, "ps:0 .* was configured with 1 ps, worker:0 .* with 2 ps|"
     "ps:0 .* was not configured with ps:1"),
], ids=["a ps of fewer workers", "a worker of fewer ps", "a ps of fewer ps"])
def test_all_tasks_end_with_2_and_one_line(tmp_path, start_process, size, fewer, line):
    """None of them trains on a part of the data, or waits for tasks that are gone."""
    Misled(tmp_path, start_process, *size, fewer)
    assert set(start_process.wait().values()) == {2}
    for name in start_process.names:
        refusals = [row for row in start_process.log(name).splitlines() if row.startswith("ps_train: ")]
        assert len(refusals) == 1, name
        assert re.search(line, refusals[0]), name
        assert "Traceback" not in start_process.log(name)
        assert "No worker known" not in start_process.log(name)
