"""Fixtures: TensorFlow in the mode that a task uses, clusters of in-process servers, clusters of real processes."""

from __future__ import annotations

import contextlib
import subprocess
import threading

import pytest

from ps_train import logs

logs.import_tensorflow_quietly()

import tensorflow.compat.v1 as tf  # noqa: E402 (see below)

from ps_train import task  # noqa: E402 (what imports TensorFlow comes after it was made quiet)
from tests import clusters, processes, training  # noqa: E402

task.prepare_tensorflow(tf_log=False)  # every test runs in the mode that a task runs in


@pytest.fixture
def stop():
    """An event that nobody sets, unless the test does."""
    return threading.Event()


@pytest.fixture
def start_servers():
    """A function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    with contextlib.ExitStack() as clocks:
        def start(num_ps, num_workers):
            cluster = clusters.start(num_ps, num_workers)
            clocks.enter_context(cluster.keeping_time())
            return cluster

        yield start


@pytest.fixture(scope="module")
def started():
    """(num_ps, num_workers) -> the cluster of all tests of a module that use `renew_servers`."""
    return {}


@pytest.fixture
def renew_servers(started):
    """What `start_servers` is, but the servers are those of the test before, with nothing left of what ran on them.

    For modules that would start more of them than a process may have: they never end.
    """
    with contextlib.ExitStack() as clocks:
        timed = set()

        def start(*numbers):
            if numbers not in started:
                started[numbers] = clusters.LocalCluster(*numbers)
            cluster = started[numbers]
            for task in cluster.servers:
                tf.Session.reset(cluster.target(*task))
            cluster.put_up_blackboard()
            if numbers not in timed:
                timed.add(numbers)
                clocks.enter_context(cluster.keeping_time())
            return cluster

        yield start


@pytest.fixture
def start_process(tmp_path):
    """A ProcessGroup whose processes are ended, and whose logs are printed if the test failed, at the end."""
    with processes.ProcessGroup(tmp_path / "logs") as group:
        yield group


@pytest.fixture
def train(tmp_path, start_process):
    """A function that starts a training.Training, whose arguments it takes."""
    return lambda *args, **kwargs: training.Training(tmp_path, start_process, *args, **kwargs)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 4 MiB of its own; its content ends with the test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs a file system of its own, and may not mount one: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Adds the logs of a failed test's processes to its report."""
    report = yield
    group = item.funcargs.get("start_process") if hasattr(item, "funcargs") else None
    if report.failed and group is not None:
        report.sections.append(("logs of the processes", group.logs()))
    return report
