"""From which workers an update waits for gradients, on snapshots of a blackboard and a clock that the test sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.coordination.state import Finished, Snapshot, State
from ps_train.updates.sync.runner import Quorum
from ps_train.updates.update import SyncSettings

BEAT_TIMEOUT_SECS = 5.0


class Clock:
    """A clock that stands still."""

    secs = 0.0

    def __call__(self):
        return self.secs


def _snapshot(heartbeats, claims=None, finished=(), pausing=()):
    """Returns what ps 0 knows at second 100 by its clock."""
    claims = np.ones(len(heartbeats), np.int64) if claims is None else np.array(claims)
    zeros = np.zeros(len(heartbeats), np.int64)
    reports = [Finished.ENDED if number in finished else Finished.PAUSES if number in pausing else Finished.NO
               for number in range(len(heartbeats))]
    return Snapshot(State.RUNNING, 100.0, claims, np.array(heartbeats), zeros, zeros, np.array(reports),
                    BEAT_TIMEOUT_SECS)


def _quorum(replicas, floor, num_workers, **options):
    return Quorum(SyncSettings(replicas, num_workers, floor), **options)


def _check(quorum, snapshot):
    return quorum.check(snapshot, chief_number=0)


@pytest.mark.parametrize("snapshot, members, missing, finished", [
    (_snapshot([99.0, 99.0, 99.0]), {0, 1, 2}, set(), set()),
    (_snapshot([99.0, 90.0, 99.0]), {0, 2}, {1}, set()),
    (_snapshot([99.0, 99.0, 99.0], claims=[1, 1, 0]), {0, 1}, {2}, set()),
    (_snapshot([99.0, 99.0, 99.0], finished=[0, 1]), {2}, set(), {0, 1}),
    (_snapshot([10.0, 10.0, 10.0]), {0}, {1, 2}, set()),
], ids=["all", "one silent", "one left", "two finished", "only the chief, which asks"])
def test_the_members_are_alive_and_not_finished(snapshot, members, missing, finished):
    """By ps 0's clock; the chief always counts itself as alive."""
    status = _check(_quorum(3, 1, 3), snapshot)
    assert (status.members, status.missing, status.finished) == (members, missing, finished)


def test_expected_workers_are_members_until_they_came_or_the_time_is_over():
    """So the first update has a gradient from each; a worker that came and died is not waited for again."""
    clock = Clock()
    quorum = _quorum(3, 1, 3, now=clock)
    quorum.expect(60.0)
    absent = _snapshot([99.0, 0.0, 0.0], claims=[1, 0, 0])
    assert _check(quorum, absent).members == {0, 1, 2}
    assert _check(quorum, _snapshot([99.0, 99.0, 0.0], claims=[1, 1, 0])).members == {0, 1, 2}
    clock.secs = 59.0
    assert _check(quorum, absent).members == {0, 2}
    clock.secs = 60.0
    status = _check(quorum, absent)
    assert (status.members, status.missing, status.required) == ({0}, {1, 2}, 1)


def test_for_restored_parameters_the_workers_that_were_alive_before_are_expected():
    """After a ps has restarted, live workers take a moment to send a heartbeat; dead ones are not awaited again."""
    quorum = _quorum(3, 1, 3)
    _check(quorum, _snapshot([99.0, 99.0, 10.0]))
    quorum.expect(60.0)
    assert _check(quorum, _snapshot([0.0, 0.0, 0.0], claims=[0, 0, 0])).members == {0, 1}


@pytest.mark.parametrize("replicas, floor, num_workers, num_alive, expected", [
    (3, 1, 3, 3, 3), (3, 1, 3, 2, 2), (3, 1, 3, 1, 1), (3, 2, 3, 1, 2), (2, 1, 3, 3, 2), (2, 1, 3, 2, 2),
    (2, 1, 3, 1, 1), (4, 1, 2, 2, 4), (4, 1, 2, 1, 2), (5, 1, 2, 1, 3), (5, 4, 2, 1, 4),
])
def test_the_number_of_gradients_follows_the_live_workers(replicas, floor, num_workers, num_alive, expected):
    """Never below the floor; with several mini-batches per worker, those of the live workers count."""
    snapshot = _snapshot([99.0 if number < num_alive else 0.0 for number in range(num_workers)])
    assert _check(_quorum(replicas, floor, num_workers), snapshot).required == expected


@pytest.mark.parametrize("replicas, num_workers, numbers", [
    (3, 3, [1, 1, 1]), (2, 3, [1, 1, 1]), (4, 2, [2, 2]), (5, 2, [3, 2]), (7, 3, [3, 2, 2]),
])
def test_the_gradients_of_all_workers_make_an_update(replicas, num_workers, numbers):
    """One each, of which the first are taken, or several where there are more gradients than workers."""
    assert [*map(SyncSettings(replicas, num_workers).gradients_of, range(num_workers))] == numbers


def test_too_few_for_the_floor_is_timed_and_hopeless_only_where_they_are_finished():
    """Expected workers are members, but not here yet: the time for the floor begins at the start."""
    clock = Clock()
    quorum = _quorum(3, 2, 3, now=clock)
    clock.secs = 0.5
    quorum.expect(60.0)
    for clock.secs, heartbeats, short_secs in (
            (1, [99, 99, 0], 0), (4, [99, 0, 0], 3), (9, [99, 0, 0], 8), (10, [99, 99, 99], 0)):
        status = _check(quorum, _snapshot(heartbeats))
        assert (status.short_secs, status.is_hopeless) == (short_secs, False)
    assert not _check(quorum, _snapshot([99, 0, 99], finished=[2])).is_hopeless
    assert _check(quorum, _snapshot([99, 99, 99], finished=[1, 2])).is_hopeless


def test_workers_that_all_pause_may_do_so_for_ever():
    """None of them waits for an update; new data may come. It is over once too few are left that may go on."""
    clock = Clock()
    quorum = _quorum(2, 1, 2, now=clock)
    for clock.secs in (0, 1000):
        for pausing, finished, is_hopeless in ([0, 1], [], False), ([0], [1], False), ([], [0, 1], True):
            status = _check(quorum, _snapshot([99, 99], finished=finished, pausing=pausing))
            assert status.is_hopeless == is_hopeless and (is_hopeless or not status.short_secs)
    assert not _check(quorum, _snapshot([99, 0], pausing=[0])).is_hopeless  # the other is dead, and may come back
