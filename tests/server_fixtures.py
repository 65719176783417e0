"""Fixtures that start TensorFlow servers in the test's process; importing this puts TensorFlow into a task's mode.

TensorFlow cannot stop a server, and each has some 85 threads and its memory. So the tests of a process share them: a
test gets those of an earlier one, with nothing left of what ran on them.
"""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests import clusters
from tests.tensorflow_mode import tf

_started: dict[tuple[int, int], clusters.LocalCluster] = {}  # by num_ps and num_workers


@contextlib.contextmanager
def starting_servers():
    """Yields a function (num_ps, num_workers) -> LocalCluster of in-process servers.

    A second call with the same numbers does to the first one's servers what a restart would.
    """
    with contextlib.ExitStack() as clocks:
        timed = set()

        def start(num_ps, num_workers):
            numbers = num_ps, num_workers
            if numbers not in _started:
                _started[numbers] = clusters.LocalCluster(*numbers)
            cluster = _started[numbers]
            for task in cluster.servers:
                tf.Session.reset(cluster.target(*task))
            cluster.create_blackboard()
            if numbers not in timed:
                timed.add(numbers)
                clocks.enter_context(cluster.keeping_time())
            return cluster

        yield start
    if any(thread.name == "heartbeat" or isinstance(thread, clusters.Worker) for thread in threading.enumerate()):
        _started.clear()  # a worker that the test has left behind would join the training of the next one


@pytest.fixture
def start_servers():
    """A function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    with starting_servers() as start:
        yield start
