"""The blackboard on in-process servers."""

from __future__ import annotations

import contextlib
import socket
import time
import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard, sessions, variables
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError
from tests import clusters, processes
from tests.errors import raises
from tests.tensorflow_mode import tf

LONG_SECS = 1000.0  # the clock goes on while a test looks, by seconds on a busy machine


@pytest.fixture
def open_board():
    """A function that closes what it opened at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda board: stack.enter_context(contextlib.closing(board))


def worker_board(cluster, index):
    """Returns a worker's view."""
    return blackboard.for_worker(cluster.target("worker", index), cluster.view("worker", index))







def test_the_clock_of_ps_0_goes_while_it_serves(open_board, monkeypatch):
    """Matrix row 47: a worker grows old by it, neither by the time of day nor by a time that ps 0 stood still."""
    cluster = clusters.start(1, 1)  # nobody lets its clock go but this test
    seconds = [1000.0]
    monkeypatch.setattr(blackboard, "clock", types.SimpleNamespace(now=lambda: seconds[0]))
    board = open_board(worker_board(cluster, 0))
    own = open_board(blackboard.for_ps(cluster.target("ps", 0), cluster.view("ps", 0)))
    board.claim(0, claim=1)
    for elapsed_secs, age_secs in ((0.25, 0.25), (0.5, 0.75), (3600, 1.75), (0.25, 2.0)):
        seconds[0] += elapsed_secs
        own.tick()
        assert board.snapshot().age_secs(0) == age_secs
    assert board.beat(0, claim=1, step=0).is_accepted
    assert board.snapshot().age_secs(0) == 0


def test_a_training_graph_reads_the_state_beside_its_own_variables(start_servers, open_board):
    """A graph of its own reads what the blackboard wrote."""
    cluster = start_servers(1, 1)
    open_board(worker_board(cluster, 0)).announce(State.STOPPING)
    with tf.Graph().as_default():
        with tf.device(cluster.view("worker", 0).ps[0].device):
            state = variables.read("state")
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(state) == State.STOPPING


def test_a_board_that_is_not_up_is_an_error_and_readable_later(open_board):
    """A worker may come before ps 0 has put the blackboard up."""
    cluster = clusters.LocalCluster(1, 1)
    board = open_board(worker_board(cluster, 0))
    with raises("ps_unreachable", kind=ClusterLostError):
        board.state()
    cluster.create_blackboard()
    assert board.state() == State.IDLE


def test_a_server_that_is_gone_is_an_error_in_bounded_time(open_board):
    """Nobody listens at ps 0's address: no method waits for ever."""
    address = f"localhost:{processes.free_ports(1)[0]}"
    view = Cluster("worker", 0, {"ps": {0: address}, "worker": {0: "localhost:1"}})
    board = open_board(blackboard.for_client(view))
    start_secs = time.monotonic()
    with raises("ps_unreachable"):
        board.state()
    assert time.monotonic() - start_secs < 3 * sessions._RUN_TIMEOUT_SECS


@pytest.mark.parametrize("num_ps", [1, 2])
def test_a_task_whose_own_server_is_stuck_reaches_the_blackboard_by_that_of_ps_0(
        start_servers, open_board, monkeypatch, num_ps):
    """One call fails; those after it go the other way, to every ps. Here its server takes connections, and no more."""
    cluster = start_servers(num_ps, 1)
    with socket.create_server(("localhost", 0)) as stuck:
        target = f"grpc://localhost:{stuck.getsockname()[1]}"
        board = open_board(blackboard.for_worker(target, cluster.view("worker", 0)))
        monkeypatch.setattr(sessions, "_RUN_TIMEOUT_SECS", 1.0)
        with raises("ps_unreachable", kind=BlackboardError):
            board.state()
        monkeypatch.undo()
        board.announce(State.RUNNING)
        assert board.state() == State.RUNNING
    assert open_board(worker_board(cluster, 0)).state() == State.RUNNING


def test_a_ps_that_is_gone_before_it_answers_has_heard_that_all_is_done(open_board, monkeypatch):
    """The last announcement may lose its answer; one that is still there and does not answer is an error."""
    address = f"localhost:{processes.free_ports(1)[0]}"
    view = Cluster("worker", 0, {"ps": {0: address}, "worker": {0: "localhost:1"}})
    board = open_board(blackboard.for_client(view))
    monkeypatch.setattr(sessions, "_RUN_TIMEOUT_SECS", 0.2)
    monkeypatch.setattr(blackboard, "_DONE_SECS", 1.0)
    board.announce_done()
    with socket.create_server(("localhost", int(address.split(":")[1]))), raises("ps_unreachable"):
        board.announce_done()
