"""TensorFlow in the mode that a task uses, and its servers in this process."""

from __future__ import annotations

import gc
import os

import pytest

# With oneDNN, TensorFlow looks through all of its kernels for each op of each graph that a session runs: a quarter of
# the CPU time of a training of 30 steps. Which kernels compute is nothing that these tests are about.
is_chosen = "TF_ENABLE_ONEDNN_OPTS" in os.environ
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from tests import cached_boards, plain_graphs  # noqa: E402 (TensorFlow reads the variable when it is imported)
from tests.server_fixtures import start_servers  # noqa: E402 (the same)

if not is_chosen:
    del os.environ["TF_ENABLE_ONEDNN_OPTS"]  # a process that a test starts decides for itself
gc.freeze()  # what the imports have made stays; without it each collection looks through it
plain_graphs.install()
cached_boards.install()

__all__ = ["start_servers"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Decides before any fixture trains whether TensorFlow optimises the graphs of a test."""
    plain_graphs.are_wanted = item.get_closest_marker("optimised") is None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Leaves tests of other folders as they are."""
    plain_graphs.are_wanted = False
