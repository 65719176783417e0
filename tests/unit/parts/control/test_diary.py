"""What the chief notes of two snapshots of ps 0."""

from __future__ import annotations

import types

import numpy as np

from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError
from ps_train.parts.control.diary import Diary, changes
from ps_train.storage.journal import Journal, read_journal


def snapshot(claims, *, heard=None, finished=None, now_secs=100.0, steps=None):
    """Returns a snapshot in which worker i was heard of `heard[i]` seconds ago."""
    count = len(claims)
    return Snapshot(
        State.RUNNING, now_secs, np.array(claims), now_secs - np.array(heard or [0.0] * count), np.zeros(count, int),
        np.array(steps or [0] * count), np.array(finished or [False] * count), 10.0, np.full(count, 0.5))


def words(before, now):
    """Returns what happened, as `number what`."""
    return [f"{number} {what}" for number, what in changes(before, now)]


def test_each_change_of_a_worker_has_its_word():
    """Nobody who was not there before is new twice."""
    one = snapshot([7, 0, 0])
    assert words(None, one) == ["0 joined"]
    assert words(one, one) == []
    assert words(one, snapshot([7, 8, 0])) == ["1 joined"]
    assert words(one, snapshot([9, 0, 0])) == ["0 joined again"]
    assert words(one, snapshot([7, 0, 0], heard=[11, 0, 0])) == ["0 silent"]
    assert words(snapshot([7, 0, 0], heard=[11, 0, 0]), one) == ["0 back"]
    assert words(one, snapshot([0, 0, 0])) == ["0 left"]
    finished = snapshot([7, 0, 0], finished=[True, False, False])
    assert words(one, finished) == ["0 finished"]
    assert words(finished, snapshot([0, 0, 0], finished=[True, False, False])) == []


class Board:
    """Shows one snapshot after the other; None is a ps 0 that does not answer."""

    def __init__(self, *snapshots):
        self._snapshots = iter(snapshots)

    def snapshot(self):
        """Returns the next one."""
        if (found := next(self._snapshots)) is None:
            raise BlackboardError("ps:0 does not answer")
        return found


def test_the_workers_of_a_new_ps_join_again(tmp_path):
    """A ps 0 that has restarted knows nobody: that is no worker that has left."""
    board = Board(snapshot([7, 8]), None, snapshot([0, 0], now_secs=1.0), snapshot([7, 0], now_secs=2.0, steps=[40, 0]))
    notes = Journal(str(tmp_path))
    diary = Diary(notes, board, types.SimpleNamespace(worker_name="worker:{}".format), lambda: 5)
    for _ in range(3):
        diary.look()
    diary.conclude()
    notes.close()
    found = read_journal(str(tmp_path))
    assert [(event["name"], event["what"]) for event in found if event["event"] == "worker"] == [
        ("worker:0", "joined"), ("worker:1", "joined"), ("worker:0", "joined")]
    assert [event["workers"] for event in found if event["event"] == "sample"] == [
        {"worker:0": {"steps": 0, "staleness": 0.5}, "worker:1": {"steps": 0, "staleness": 0.5}},
        {"worker:0": {"steps": 40, "staleness": 0.5}}]
