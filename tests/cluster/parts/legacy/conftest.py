"""Fixtures of the tests of unchanged scripts: the classes that replace TensorFlow's, and a worker's membership."""

from __future__ import annotations

import pytest
import tensorflow as tf2
from tensorflow.python.client.session import BaseSession
from tensorflow.python.training import monitored_session, session_manager, supervisor, sync_replicas_optimizer

from ps_train.parts.legacy import run
from ps_train.parts.legacy.classic import membership
from ps_train.runtime.waits import Timeouts
from tests.tensorflow_mode import tf


def refuse_to_end(error):
    """Stands for the end of the process."""
    raise AssertionError from error


@pytest.fixture(autouse=True, scope="module")
def staying():
    """Lets this process go on when training is over on its ps: pytest would end with 0, in the midst of later tests."""
    # It is never taken back, as each ps notices the end of its worker some seconds after the test.
    run.ScriptServer._end_without_join = lambda server: None


@pytest.fixture
def replaced(monkeypatch):
    """TensorFlow's classes are replaced, as in a script, until the end of the test."""
    places = [(session_manager, "SessionManager"), (tf2.distribute, "Server"),
              (run.ScriptServer, "default_timeouts"), (BaseSession, "__init__"),
              (monitored_session._HookedSession, "run"), (monitored_session._MonitoredSession, "__init__"),
              (monitored_session._MonitoredSession, "_close_internal"),
              (tf.train.Coordinator, "join"),
              (monitored_session, "MonitoredTrainingSession"), (supervisor, "Supervisor"),
              (sync_replicas_optimizer, "SyncReplicasOptimizer")]
    for module in (tf, tf2.compat.v1):
        places += [(module, "Session"), (module, "InteractiveSession"), (module.distribute, "Server")]
        places += [(module.train, name) for name in (
            "Server", "Supervisor", "SessionManager", "MonitoredTrainingSession", "SyncReplicasOptimizer",
            "replica_device_setter")]
    for place, name in places:
        monkeypatch.setattr(place, name, getattr(place, name))
    run.replace_classes(Timeouts())


@pytest.fixture
def worker(start_servers, replaced):
    """The membership of a worker whose script has just created its server."""
    yield from first_worker(start_servers(1, 1))


@pytest.fixture
def first_of_two(start_servers, replaced):
    """The same of worker 0 of two."""
    yield from first_worker(start_servers(1, 2))


def first_worker(cluster):
    """Yields the membership of worker 0, which is that of this process meanwhile."""
    member = membership.Membership(cluster.view("worker", 0), cluster.target("worker", 0),
                                   Timeouts(start_secs=60.0, heartbeat_secs=60.0), refuse_to_end)
    membership.set_current(member)
    yield member
    member.finish(0)
    membership.set_current(None)


@pytest.fixture
def graph():
    """A default graph for this test only."""
    with tf.Graph().as_default() as graph:
        yield graph
