"""Faults between and in real tasks: what goes wrong, and that training goes on; rows of the fault matrix by number."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from typing import NamedTuple

import pytest

from tests.processes import REPO, TaskCluster
from tests.proxy import DOWN, UP, Proxy

TINY = ["--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=5"]
MODES = {"async": [], "sync": ["--sync_replicas"]}
ENDLESS = ["--train_steps=1000000", "--params=batch_secs=0.05"]


class Link(NamedTuple):
    """What is between a ps and a worker: TensorFlow's requests go both ways, over separate connections."""

    to_ps: Proxy
    to_worker: Proxy

    def each(self, do) -> list:
        """Returns `do(proxy)` of both."""
        return [do(self.to_ps), do(self.to_worker)]


@pytest.fixture
def elsewhere(tmp_path):
    """A working directory outside the repository, with a plug-in in it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(REPO / "tests/plugins/tiny.py", folder)
    return folder


@pytest.fixture
def start_linked(elsewhere, tmp_path, start_process):
    """A function that starts a ps and a worker with all of their traffic through proxies, and returns the Link."""
    with contextlib.ExitStack() as proxies:
        def start(*flags):
            cluster = TaskCluster(1, 1)
            ps_port, worker_port = cluster.ports
            link = Link(*(proxies.enter_context(Proxy(port)) for port in (ps_port, worker_port)))
            links = {"ps": {cluster.workers[0]: link.to_worker.address}, "worker": {cluster.ps[0]: link.to_ps.address}}
            for job, index in cluster.tasks():
                start_process.start(job, [*cluster.flags(job, index, links[job]), *TINY, *flags,
                                          f"--train_dir={tmp_path}/train"], cwd=elsewhere)
            return link

        yield start


def wait_for_further_steps(group):
    """Returns when the worker has reported a step that it had not taken before the call."""
    group.wait_for_line("worker", "examples/s", number=group.log("worker").count("examples/s") + 2)


def stop_all(group):
    """Ends the training, which is far from its last step, as a scheduler does."""
    for name in ("ps", "worker"):
        group.signal(name, signal.SIGTERM)
    assert group.wait() == {"ps": 143, "worker": 143}


HOLES = {
    "requests to the ps": lambda link: link.to_ps.drop(UP),
    "answers of the ps": lambda link: link.to_ps.drop(DOWN),
    "requests to the worker": lambda link: link.to_worker.drop(UP),
    "answers of the worker": lambda link: link.to_worker.drop(DOWN),
    "all": lambda link: link.each(Proxy.drop),
}


@pytest.mark.parametrize(("mode", "holes"), [("async", [*HOLES]), ("sync", ["answers of the ps", "all"])])
def test_rows_17_and_18_training_goes_on_after_its_connections_were_cut_or_silent(
        start_linked, start_process, mode, holes):
    """All connections are reset with a step under way: the same processes take further steps.

    Then nothing arrives in one direction: the step times out, and the same processes go on when the link heals. One
    training has all of the holes, one after the other.
    """
    link = start_linked(*ENDLESS, "--step_timeout_secs=2", *MODES[mode])
    start_process.wait_for_line("worker", "step 5 of")
    link.each(Proxy.drop)
    assert link.to_ps.cut() > 0
    link.to_worker.cut()
    link.each(Proxy.heal)
    wait_for_further_steps(start_process)
    assert min(link.to_ps.num_bytes[UP], link.to_ps.num_bytes[DOWN]) > 0
    for hole in holes:
        num_lost = start_process.log("worker").count("lost the session at step")
        HOLES[hole](link)
        line = start_process.wait_for_line("worker", "lost the session at step", number=num_lost + 1)
        assert re.search("DEADLINE_EXCEEDED|deadline|waited|timed out|imeout", line, re.IGNORECASE), hole
        link.each(Proxy.heal)
        wait_for_further_steps(start_process)
    stop_all(start_process)
    assert "restoring" not in start_process.log("worker"), "the parameters were live all the time"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_row_19_a_slow_link_is_no_error(start_linked, start_process, mode):
    """From before the first connection to the last step: slower, and no more.

    The link has 100 ms of latency, both ways together, and passes 100 kB/s.
    """
    link = start_linked("--train_steps=20", *mode)
    link.each(lambda proxy: proxy.delay(0.05))
    link.each(lambda proxy: proxy.throttle(100_000))
    assert start_process.wait() == {"ps": 0, "worker": 0}
    log = start_process.log("worker")
    assert re.search(r"After 20 training steps", log)
    assert "lost" not in log and "restoring" not in log, log


def test_the_tools_freeze_and_end_a_process(elsewhere, start_process):
    """A paused process stands still until it is resumed; a killed one has ended when `kill` returns."""
    ps = start_process.start("ps", [*TaskCluster(1, 1).flags("ps", 0), *TINY], cwd=elsewhere)
    for act, is_stopped in ((start_process.pause, True), (start_process.resume, False), (start_process.pause, True)):
        act("ps")
        with open(f"/proc/{ps.pid}/stat", encoding="ascii") as stat:
            assert (stat.read().rpartition(")")[2].split()[0] == "T") == is_stopped
    start_process.kill("ps")
    assert ps.returncode == -9
