"""Fixtures of all tests: clusters of real processes, and logs that are printed when a test fails.

Nothing here imports TensorFlow: a pure test should not wait for it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

import hypothesis
import pytest

from tests import fork_server, processes, training

# No verdict depends on how busy the machine is.
hypothesis.settings.register_profile(
    "ps_train", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ps_train")


@pytest.fixture(scope="session", autouse=True)
def _notes_of_launches(tmp_path_factory):
    """Launches in tests note their folders where no other process, and no person, looks for them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _log_as_it_was():
    """A test that runs the command line in its process leaves no handler on the log for the next ones."""
    logger = logging.getLogger("ps_train")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture
def stop():
    """An event that nobody sets, unless the test does."""
    return threading.Event()


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


def pytest_sessionfinish(session, exitstatus):
    """Keeps the exit code for `pytest_unconfigure`, which is not told."""
    session.config.exit_code = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Ends a process that has used TensorFlow as a task ends: at once.

    A thread that a server, or a peer that is gone, holds inside TensorFlow would else abort the process while the
    interpreter shuts down, with exit code 134.
    """
    fork_server.end()
    if "tensorflow" in sys.modules and hasattr(config, "exit_code"):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.exit_code)
