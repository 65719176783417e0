"""The log of a process."""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys

import pytest

from ps_train.runtime import logs

REPO = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def logger():
    """The logger of ps_train, restored after the test."""
    logger = logging.getLogger("ps_train")
    settings = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.level, logger.propagate = settings


def test_lines_go_to_stderr_with_the_time(logger, capsys):
    """Once, also if setup was called twice."""
    logs.setup()
    logs.setup()
    logging.getLogger("ps_train.anything").info("hello %d", 3)
    out, err = capsys.readouterr()
    time_of_day, _, text = err.partition(" ")
    assert (out, text) == ("", "hello 3\n")
    assert [len(part) for part in time_of_day.split(":")] == [2, 2, 2]
    assert not logger.propagate  # absl's root handler would print the line a second time


def test_a_full_disk_under_stderr_does_not_change_the_exit_code():
    """The lines are lost."""
    done = subprocess.run([sys.executable, "-m", "ps_train", "--no_such_flag"], cwd=REPO, stdout=subprocess.DEVNULL,
                          stderr=open("/dev/full", "wb"))  # noqa: SIM115 (it is the child's)
    assert done.returncode == 2
