"""The journal: the changes of workers that the chief notes, the end of a training, and its events in words."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from ps_train.coordination.state import Finished, Snapshot, State
from ps_train.errors import BlackboardError
from ps_train.parts.control import history
from ps_train.parts.control.history import Diary, run_histories, run_history, worker_changes
from ps_train.storage.journal import Journal, read_journal
from tests.errors import raises
from tests.journals import EVENTS, moved

_START = {"event": "start", "run": {"train_steps": 100}}
_SAMPLE = {"event": "sample", "step": 70}


def snapshot(claims, *, ages=None, finished=None, now_secs=100.0, steps=None, state=State.RUNNING):
    """Returns a snapshot in which the last heartbeat of worker i is `ages[i]` seconds old."""
    count = len(claims)
    return Snapshot(
        state, now_secs, np.array(claims), now_secs - np.array(ages or [0.0] * count), np.zeros(count, int),
        np.array(steps or [0] * count), np.array(finished or [Finished.NO] * count), 10.0, np.full(count, 0.5))


def changes(previous, current):
    """Returns the changes, as `number change`."""
    return [f"{number} {change}" for number, change in worker_changes(previous, current)]


def test_each_change_of_a_worker_is_noted():
    """Each is noted once."""
    joined = snapshot([7, 0, 0])
    assert changes(None, joined) == ["0 joined"]
    assert changes(joined, joined) == []
    assert changes(joined, snapshot([7, 8, 0])) == ["1 joined"]
    assert changes(joined, snapshot([9, 0, 0])) == ["0 joined again"]
    assert changes(joined, snapshot([7, 0, 0], ages=[11, 0, 0])) == ["0 silent"]
    assert changes(snapshot([7, 0, 0], ages=[11, 0, 0]), joined) == ["0 back"]
    assert changes(joined, snapshot([0, 0, 0])) == ["0 left"]
    waits, finished = (snapshot([7, 0, 0], finished=[report, Finished.NO, Finished.NO])
                       for report in (Finished.PAUSES, Finished.ENDED))
    assert changes(joined, waits) == changes(waits, joined) == []
    assert changes(joined, finished) == changes(waits, finished) == ["0 finished"]
    assert changes(finished, snapshot([0, 0, 0], finished=[Finished.ENDED, Finished.NO, Finished.NO])) == []
    assert changes(waits, snapshot([0, 0, 0], finished=[Finished.PAUSES, Finished.NO, Finished.NO])) == ["0 left"]


class Board:
    """Shows one snapshot after the other; None is a ps 0 that does not answer."""

    def __init__(self, *snapshots):
        self._snapshots = iter(snapshots)

    def snapshot(self):
        """Returns the next one."""
        if (current := next(self._snapshots)) is None:
            raise BlackboardError("ps_unreachable", "ps:0 does not answer")
        return current


def test_the_workers_of_a_new_ps_join_again(tmp_path):
    """A ps 0 that has restarted has no claims: no worker has left."""
    board = Board(snapshot([7, 8]), None, snapshot([0, 0], now_secs=1.0), snapshot([7, 0], now_secs=2.0, steps=[40, 0]))
    notes = Journal(str(tmp_path))
    diary = Diary(notes, board, types.SimpleNamespace(worker_name="worker:{}".format), lambda: 5)
    for _ in range(3):
        diary.update()
    diary.update(is_last=True)
    notes.close()
    events = read_journal(str(tmp_path))
    assert [(event["name"], event["what"]) for event in events if event["event"] == "worker"] == [
        ("worker:0", "joined"), ("worker:1", "joined"), ("worker:0", "joined")]
    assert [event["workers"] for event in events if event["event"] == "sample"] == [
        {"worker:0": {"steps": 0, "staleness": 0.5}, "worker:1": {"steps": 0, "staleness": 0.5}},
        {"worker:0": {"steps": 40, "staleness": 0.5}}]


def _write(folder, *events):
    (folder / "journal.jsonl").write_text("".join(f"{json.dumps({'time': 1.0, **event})}\n" for event in events))


@pytest.mark.parametrize(("end", "state", "step", "exit_code"), [
    ({"why": "the global step reached train_steps", "step": 101}, "finished", 101, 0),
    ({"why": "the data ran out", "step": 60, "is_data_end": True}, "finished", 60, 0),
    ({"why": "the end of training was announced", "step": 60}, "stopped early", 60, 0),
    ({"why": "StoppedError: told to stop at step 70"}, "stopped", 70, 143),
    ({"why": "StopRequestedError: told to stop (`ps_train stop`)"}, "stopped", 70, 143),
    ({"why": "ClusterLostError: waited 300 s for ps:1"}, "lost", 70, 138),
    ({"why": "ZeroDivisionError: division by zero"}, "failed", 70, 1),
    ({"why": "StopIteration: of the user's own code"}, "failed", 70, 1),
    (None, "lost", 70, 138),
])
def test_each_end_has_a_state_and_an_exit_code(tmp_path, end, state, step, exit_code):
    """The end of an earlier training in the folder does not count."""
    ends = [{"event": "end", **end}] if end else []
    _write(tmp_path, _START, {"event": "end", "why": "the data ran out", "step": 5}, _START, _SAMPLE, *ends)
    ending = history.read_ending(str(tmp_path))
    assert (ending.state, ending.step) == (state, step)
    if exit_code:
        with raises("training_ended") as caught:
            ending.raise_if_failed("my run")
        assert caught.value.exit_code == exit_code and str(ending) in str(caught.value)
        assert "`ps_train resume --train_dir='my run'`" in str(caught.value)
    else:
        ending.raise_if_failed("run")


def test_a_training_without_a_step_limit_is_not_stopped_early(tmp_path):
    """With --num_epochs only; the text has the metrics, too."""
    _write(tmp_path, {"event": "start", "run": {"train_steps": None}},
           {"event": "end", "why": "the end of training was announced", "step": 9, "metrics": {"accuracy": 0.95791}})
    assert str(history.read_ending(str(tmp_path))) == (
        "finished at step 9: the end of training was announced; accuracy 0.9579")


@pytest.mark.parametrize("events", [None, [], [{"event": "end", "why": "x", "step": 1}]])
def test_a_folder_without_a_training_has_no_end(tmp_path, events):
    """Nor has an unknown folder."""
    if events is not None:
        _write(tmp_path, *events)
    assert history.read_ending(str(tmp_path)) is None
    assert history.read_ending("") is None


def test_the_story_has_every_event_in_changes():
    """Samples and events of a later version are left out."""
    run = run_history(EVENTS)
    assert [(event.task, event.description, event.is_fault) for event in run.events] == [
        ("chief", "starts: models.<b> on digits", False),
        ("chief", "training begins with new parameters", False),
        ("worker:1", "joined", False),
        ("chief", "lost its session: ps:1 did not answer; Connection reset", True),
        ("chief", "restores all ps from /t/model.ckpt-30; steps after it are taken again", True),
        ("chief", "ends: the global step reached train_steps", False)]
    assert (run.losses, run.ending) == ([(1007.0, 40)], "the global step reached train_steps")


def test_the_ending_is_that_of_the_last_process():
    """A killed chief has no end."""
    [run] = run_histories([*EVENTS[:-1], EVENTS[0]])
    assert run.ending == ""
    assert run_history([]).run == {}


@pytest.mark.parametrize(("why", "run", "num_runs"), [
    (None, {}, 1), ("ClusterLostError: ps:0 is gone", {}, 1), (None, {"command": ["--train_steps=9"]}, 2),
    ("StoppedError: told to stop", {}, 2), ("ValueError: x", {}, 2), ("the global step reached train_steps", {}, 2),
])
def test_a_chief_that_was_lost_continues_its_run_and_any_other_begins_one(why, run, num_runs):
    """With the same command, as of a launcher that starts it again."""
    end = {"time": 1010.0, "event": "end", "why": why, **({} if why is None or "Error" in why else {"step": 100})}
    histories = run_histories([*EVENTS[:5], *([end] if why else []), *moved(EVENTS, 5000, **run)])
    assert len(histories) == num_runs
    assert [len(history_of_run.losses) for history_of_run in histories] == ([2] if num_runs == 1 else [1, 1])
