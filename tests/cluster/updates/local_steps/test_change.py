"""Which workers are alive and train, as a step on ps 0 sees it."""

from __future__ import annotations

import pytest

from ps_train.coordination import variables
from ps_train.updates import staleness
from ps_train.updates.local_steps import change
from tests.tensorflow_mode import tf

CLOCK_SECS = 10000.0
TIMEOUT_SECS = 1000.0  # the clock goes on while a test looks, by seconds on a busy machine


class Variables:
    """The variables of the blackboard on one server."""

    def __init__(self, server):
        self._server = server
        self.run(variables.clear_first_ps)
        self.run(lambda: [variables.write("clock", CLOCK_SECS)])

    def run(self, make):
        """Returns the values of what that function adds to an empty graph."""
        with tf.Graph().as_default(), tf.Session(self._server) as session:
            return session.run(make())

    def write(self, worker, **values):
        """Writes a worker's elements."""
        self.run(lambda: [variables.write_element(name, worker, value) for name, value in values.items()])


@pytest.fixture
def board(start_servers):
    """A blackboard on which worker 0 trains and has just sent a heartbeat."""
    found = Variables(start_servers(1, 1).target("ps", 0))
    found.write(0, claims=5, heartbeats=CLOCK_SECS, joined=5)
    return found


@pytest.mark.parametrize("other, is_alive, expected", [
    ({"claims": 6, "heartbeats": CLOCK_SECS - 900, "joined": 6}, True, 2),
    ({"claims": 6, "heartbeats": CLOCK_SECS}, True, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS, "joined": 5}, True, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS - 1100, "joined": 6}, False, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS, "joined": 6, "finished": 1}, False, 1),
    ({"heartbeats": CLOCK_SECS}, False, 1),
], ids=["trains", "has not trained yet", "its predecessor trained", "silent", "finished", "never came"])
def test_which_workers_are_alive_and_which_train(board, other, is_alive, expected):
    """A worker is alive from its claim on, and trains from when its first round has begun."""
    board.write(3, **other)
    found, num_training = board.run(
        lambda: [staleness.alive_workers(TIMEOUT_SECS), change.count_training(0, TIMEOUT_SECS)])
    assert [*found.nonzero()[0]] == ([0, 3] if is_alive else [0])
    assert num_training == expected


def test_a_worker_always_counts_itself(board):
    """Even if its heartbeat is overdue: its change is there."""
    assert board.run(lambda: change.count_training(7, TIMEOUT_SECS)) == 2


def test_a_worker_that_begins_counts_those_that_may_begin_too(board):
    """Two that begin at the same time count each other, though neither has joined; one that trains does not."""
    def seen_by_each():
        return board.run(lambda: [change.count_training(worker, TIMEOUT_SECS) for worker in (2, 3, 0)])

    for worker in (2, 3):
        board.write(worker, claims=6 + worker, heartbeats=CLOCK_SECS)
    assert seen_by_each() == [3, 3, 1]
    board.run(lambda: staleness.join_training(2))
    assert seen_by_each() == [2, 3, 2]


def test_joining_is_recorded_with_the_claim(board):
    """So that the next process with the same number is not counted before it trains."""
    board.write(3, claims=6, heartbeats=CLOCK_SECS)
    board.run(lambda: staleness.join_training(3))
    assert board.run(lambda: change.count_training(0, TIMEOUT_SECS)) == 2
    board.write(3, claims=8)
    assert board.run(lambda: change.count_training(0, TIMEOUT_SECS)) == 1
