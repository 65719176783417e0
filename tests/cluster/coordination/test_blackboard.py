"""The blackboard on in-process servers."""

from __future__ import annotations

import contextlib
import socket
import time
import types

import numpy as np
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


def test_what_the_chief_announces_every_task_reads(start_servers, open_board):
    """Each ps on itself, the other worker and an evaluator on ps 0."""
    cluster = start_servers(2, 2)
    chief = open_board(worker_board(cluster, 0))
    readers = [open_board(worker_board(cluster, 1)), open_board(blackboard.for_client(cluster.view("worker", 0)))]
    readers += [open_board(blackboard.for_ps(cluster.target("ps", index), cluster.view("ps", index)))
                for index in range(2)]
    assert [reader.state() for reader in readers] == [State.IDLE] * 4
    for state in (State.RUNNING, State.STOPPING, State.DONE):
        chief.announce(state)
        assert [reader.state() for reader in readers] == [state] * 4


def test_workers_that_finished_are_known_until_the_next_run(start_servers, open_board):
    """The last worker that there may be counts too."""
    cluster = start_servers(1, 2)
    chief, other = open_board(worker_board(cluster, 0)), open_board(worker_board(cluster, 1))
    assert not chief.snapshot().finished.any()
    other.report_finished(1)
    chief.report_finished(variables.MAX_WORKERS - 1)
    np.testing.assert_array_equal(np.flatnonzero(other.snapshot().finished), [1, variables.MAX_WORKERS - 1])
    chief.start_run()
    assert not other.snapshot().finished.any()
    assert other.state() == State.RUNNING


def test_parameters_are_prepared_until_a_ps_restarts(start_servers, open_board):
    """A ps that puts up its part anew has another incarnation: what the chief prepared is no longer whole."""
    cluster = start_servers(2, 1)
    board = open_board(worker_board(cluster, 0))
    assert not board.is_prepared()
    board.start_run()
    assert board.is_prepared()
    open_board(blackboard.for_ps(cluster.target("ps", 1), cluster.view("ps", 1))).create()
    assert not board.is_prepared()
    board.start_run()
    assert board.is_prepared()
    board.announce(State.DONE)
    assert not board.is_prepared()


def test_who_has_finished_and_left_is_not_waited_for_again(start_servers, open_board):
    """After the loss of a ps, workers that are still there train on; a new run begins with all workers."""
    board = open_board(worker_board(start_servers(1, 3), 0))
    board.start_run()
    for worker in range(2):
        board.claim(worker, 7)
        board.report_finished(worker)
    board.leave(1)
    board.start_run()
    assert list(board.snapshot().finished[:3]) == [False, True, False]
    board.announce(State.IDLE)
    board.start_run()
    assert not board.snapshot().finished.any()


def test_a_beat_counts_for_the_process_that_holds_the_number_only(start_servers, open_board):
    """It is stamped with ps 0's clock and brings the step; after another claim, or after leaving, it is refused."""
    cluster = start_servers(1, 1)
    board = open_board(worker_board(cluster, 0))
    board.claim(3, claim=77)
    assert board.beat(3, claim=77, step=12)
    snapshot = board.snapshot()
    assert (snapshot.claims[3], snapshot.steps[3]) == (77, 12)
    assert 0 <= snapshot.age_secs(3) < LONG_SECS
    assert snapshot.alive(within_secs=LONG_SECS) == [3]
    assert snapshot.alive(within_secs=0) == []
    board.claim(3, claim=78)
    assert not board.beat(3, claim=77, step=13)
    assert board.snapshot().steps[3] == 0
    board.leave(3)
    assert not board.beat(3, claim=78, step=14)
    assert board.snapshot().alive(within_secs=LONG_SECS) == []


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
    assert board.beat(0, claim=1, step=0)
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
