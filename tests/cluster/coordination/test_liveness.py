"""Who is alive and trains, as a step on ps 0 sees it."""

from __future__ import annotations

import pytest

from ps_train.coordination import liveness, variables
from ps_train.updates.local_steps import sharing
from tests.tensorflow_mode import tf

CLOCK_SECS = 100.0
TIMEOUT_SECS = 10.0


class Notes:
    """The notes of one server, and what they say of four workers."""

    def __init__(self, server):
        self._server = server
        self.run(variables.clear_first_ps)
        self.run(lambda: [variables.write("clock", CLOCK_SECS)])

    def run(self, make):
        """Returns the values of what that function adds to an empty graph."""
        with tf.Graph().as_default(), tf.Session(self._server) as session:
            return session.run(make())

    def write(self, worker, **values):
        """Writes what the notes say of a worker."""
        self.run(lambda: [variables.write_element(name, worker, value) for name, value in values.items()])


@pytest.fixture
def board(start_servers):
    """Notes in which worker 0 is there, trains and was just heard of."""
    found = Notes(start_servers(1, 1).target("ps", 0))
    found.write(0, claims=5, beats=CLOCK_SECS, joined=5)
    return found


@pytest.mark.parametrize("other, lives, shares", [
    ({"claims": 6, "beats": CLOCK_SECS - 9, "joined": 6}, True, 2),
    ({"claims": 6, "beats": CLOCK_SECS}, True, 1),
    ({"claims": 6, "beats": CLOCK_SECS, "joined": 5}, True, 1),
    ({"claims": 6, "beats": CLOCK_SECS - 11, "joined": 6}, False, 1),
    ({"claims": 6, "beats": CLOCK_SECS, "joined": 6, "finished": 1}, False, 1),
    ({"beats": CLOCK_SECS}, False, 1),
], ids=["trains", "has not trained yet", "the one before it trained", "not heard of", "finished", "never came"])
def test_who_lives_and_who_shares(board, other, lives, shares):
    """A worker lives from its claim on, and shares from when its first round has begun."""
    board.write(3, **other)
    found, num_sharing = board.run(lambda: [liveness.is_alive(TIMEOUT_SECS), sharing.num_sharing(0, TIMEOUT_SECS)])
    assert [*found.nonzero()[0]] == ([0, 3] if lives else [0])
    assert num_sharing == shares


def test_a_worker_always_counts_itself(board):
    """Though it was not heard of for long: what it brings is there."""
    assert board.run(lambda: sharing.num_sharing(7, TIMEOUT_SECS)) == 2


def test_who_begins_counts_those_who_may_begin_too(board):
    """Two that begin at the same time count each other, though neither has joined; who trains already does not."""
    def seen_by_each():
        return board.run(lambda: [sharing.num_sharing(worker, TIMEOUT_SECS) for worker in (2, 3, 0)])

    for worker in (2, 3):
        board.write(worker, claims=6 + worker, beats=CLOCK_SECS)
    assert seen_by_each() == [3, 3, 1]
    board.run(lambda: liveness.join(2))
    assert seen_by_each() == [2, 3, 2]


def test_who_trains_is_noted_with_the_claim(board):
    """So that a process which takes the number is not counted before it trains."""
    board.write(3, claims=6, beats=CLOCK_SECS)
    board.run(lambda: liveness.join(3))
    assert board.run(lambda: sharing.num_sharing(0, TIMEOUT_SECS)) == 2
    board.write(3, claims=8)
    assert board.run(lambda: sharing.num_sharing(0, TIMEOUT_SECS)) == 1
