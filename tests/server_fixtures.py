"""Fixtures that start TensorFlow servers in the test's process; importing this puts TensorFlow into a task's mode."""

from __future__ import annotations

import contextlib

import pytest

from tests import clusters
from tests.tensorflow_mode import tf


@contextlib.contextmanager
def starting_servers():
    """Yields a function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    with contextlib.ExitStack() as clocks:
        def start(num_ps, num_workers):
            cluster = clusters.start(num_ps, num_workers)
            clocks.enter_context(cluster.keeping_time())
            return cluster

        yield start


@pytest.fixture
def start_servers():
    """A function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    with starting_servers() as start:
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
            cluster.create_blackboard()
            if numbers not in timed:
                timed.add(numbers)
                clocks.enter_context(cluster.keeping_time())
            return cluster

        yield start
