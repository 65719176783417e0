"""Whose gradients an update waits for, on snapshots of a blackboard and a clock that the test sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.coordination.state import Snapshot, State
from ps_train.updates.sync.aggregation import share
from ps_train.updates.sync.quorum import Quorum

BEAT_TIMEOUT_SECS = 5.0


class Clock:
    """A clock that stands still."""

    secs = 0.0

    def __call__(self):
        return self.secs


def _snapshot(beats, claims=None, finished=()):
    """Returns what ps 0 knows at second 100 by its clock."""
    claims = np.ones(len(beats), np.int64) if claims is None else np.array(claims)
    zeros = np.zeros(len(beats), np.int64)
    return Snapshot(State.RUNNING, 100.0, claims, np.array(beats), zeros, zeros,
                    np.array([number in finished for number in range(len(beats))]), BEAT_TIMEOUT_SECS)


def _look(quorum, snapshot, own=0):
    return quorum.look(snapshot, own)


@pytest.mark.parametrize("snapshot, living, missing, finished", [
    (_snapshot([99.0, 99.0, 99.0]), {0, 1, 2}, set(), set()),
    (_snapshot([99.0, 90.0, 99.0]), {0, 2}, {1}, set()),
    (_snapshot([99.0, 99.0, 99.0], claims=[1, 1, 0]), {0, 1}, {2}, set()),
    (_snapshot([99.0, 99.0, 99.0], finished=[0, 1]), {2}, set(), {0, 1}),
    (_snapshot([10.0, 10.0, 10.0]), {0}, {1, 2}, set()),
], ids=["all", "one silent", "one left", "two finished", "only the chief, which asks"])
def test_the_living_are_those_that_beat_and_are_not_finished(snapshot, living, missing, finished):
    """By ps 0's clock; the chief never takes itself for dead."""
    need = _look(Quorum(3, 1, 3), snapshot)
    assert (need.living, need.missing, need.finished) == (living, missing, finished)


def test_those_who_are_expected_count_as_living_until_they_came_or_the_patience_is_over():
    """So the first update has the gradients of all; one that came and died is not waited for again."""
    clock = Clock()
    quorum = Quorum(3, 1, 3, clock)
    quorum.expect(60.0)
    absent = _snapshot([99.0, 0.0, 0.0], claims=[1, 0, 0])
    assert _look(quorum, absent).living == {0, 1, 2}
    assert _look(quorum, _snapshot([99.0, 99.0, 0.0], claims=[1, 1, 0])).living == {0, 1, 2}
    clock.secs = 59.0
    assert _look(quorum, absent).living == {0, 2}
    clock.secs = 60.0
    need = _look(quorum, absent)
    assert (need.living, need.missing, need.required) == ({0}, {1, 2}, 1)


def test_for_restored_parameters_those_are_expected_that_lived_before():
    """After a ps has come back empty, the living take a moment to be heard of; the dead are not waited for again."""
    quorum = Quorum(3, 1, 3)
    _look(quorum, _snapshot([99.0, 99.0, 10.0]))
    quorum.expect(60.0)
    assert _look(quorum, _snapshot([0.0, 0.0, 0.0], claims=[0, 0, 0])).living == {0, 1}


@pytest.mark.parametrize("replicas, floor, num_workers, num_living, expected", [
    (3, 1, 3, 3, 3), (3, 1, 3, 2, 2), (3, 1, 3, 1, 1), (3, 2, 3, 1, 2), (2, 1, 3, 3, 2), (2, 1, 3, 2, 2),
    (2, 1, 3, 1, 1), (4, 1, 2, 2, 4), (4, 1, 2, 1, 2), (5, 1, 2, 1, 3), (5, 4, 2, 1, 4),
])
def test_the_number_of_gradients_follows_the_living(replicas, floor, num_workers, num_living, expected):
    """Never below the floor; of several mini-batches per worker those of the living are left."""
    snapshot = _snapshot([99.0 if number < num_living else 0.0 for number in range(num_workers)])
    assert _look(Quorum(replicas, floor, num_workers), snapshot).required == expected


@pytest.mark.parametrize("replicas, num_workers, shares", [
    (3, 3, [1, 1, 1]), (2, 3, [1, 1, 1]), (4, 2, [2, 2]), (5, 2, [3, 2]), (7, 3, [3, 2, 2]),
])
def test_the_shares_of_all_workers_make_an_update(replicas, num_workers, shares):
    """One each, of which the first are taken, or several where there are more gradients than workers."""
    assert [share(replicas, num_workers, worker) for worker in range(num_workers)] == shares


def test_too_few_for_the_floor_is_timed_and_hopeless_only_where_they_are_finished():
    """Expected ones count as living, but not as there: the time for the floor begins at the start."""
    clock = Clock()
    quorum = Quorum(3, 2, 3, clock)
    clock.secs = 0.5
    quorum.expect(60.0)
    for clock.secs, beats, short_secs in (
            (1, [99, 99, 0], 0), (4, [99, 0, 0], 3), (9, [99, 0, 0], 8), (10, [99, 99, 99], 0)):
        need = _look(quorum, _snapshot(beats))
        assert (need.short_secs, need.is_hopeless) == (short_secs, False)
    assert not _look(quorum, _snapshot([99, 0, 99], finished=[2])).is_hopeless
    assert _look(quorum, _snapshot([99, 99, 99], finished=[1, 2])).is_hopeless
