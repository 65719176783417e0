"""Fixtures: TensorFlow in the mode that a task uses, clusters of in-process servers, clusters of real processes."""

from __future__ import annotations

import threading

import pytest

from ps_train import logs

logs.import_tensorflow_quietly()

from ps_train import task  # noqa: E402 (what imports TensorFlow comes after it was made quiet)
from tests import clusters, processes  # noqa: E402

task.prepare_tensorflow(tf_log=False)  # every test runs in the mode that a task runs in


@pytest.fixture
def stop():
    """An event that nobody sets, unless the test does."""
    return threading.Event()


@pytest.fixture
def start_servers():
    """A function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    return clusters.start


@pytest.fixture
def start_process(tmp_path):
    """A ProcessGroup whose processes are ended, and whose logs are printed if the test failed, at the end."""
    with processes.ProcessGroup(tmp_path / "logs") as group:
        yield group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Adds the logs of a failed test's processes to its report."""
    report = yield
    group = item.funcargs.get("start_process") if hasattr(item, "funcargs") else None
    if report.failed and group is not None:
        report.sections.append(("logs of the processes", group.logs()))
    return report
