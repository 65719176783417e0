"""The history of a training by its journal: what the chief notes of the workers, how it ended, and what happened.

    blackboard, every second --Diary--> journal.jsonl <-- the other events of the chief
    journal.jsonl --read_ending--> how the last training ended, for `ps_train status`
                  --run_histories--> of each run: its cluster, its events in words, the progress of each worker

A run begins with a process of the chief. A chief that was killed or has lost the cluster, and is started again with the
same command, continues its run. A training ends by the last line "end" behind the last line "start":

    with a step, all steps taken, or the data at its end --> finished       exit code 0
    with a step before --train_steps                     --> stopped early  0
    "StoppedError: ..."                                  --> stopped        143
    "ClusterLostError: ..."                              --> lost           138
    another error                                        --> failed         1
    no line "end"                                        --> lost           138
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import json
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import Finished, Snapshot
from ps_train.errors import BlackboardError, TrainingEndedError
from ps_train.runtime import threads
from ps_train.storage import journal
from ps_train.storage.journal import Journal

FINISHED, STOPPED_EARLY, STOPPED, FAILED, LOST = "finished", "stopped early", "stopped", "failed", "lost"
RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"  # of a training without a blackboard
STARTING = "starting"
_EXIT_CODES = {FINISHED: 0, STOPPED_EARLY: 0, STOPPED: 143, FAILED: 1, LOST: 138, RUNNING: 0, ENDED: 0, UNKNOWN: 0,
               STARTING: 0}
_LOST_ERRORS = ("ClusterLostError", "BlackboardError", "FolderLostError")
_STOP_ERRORS = ("StoppedError", "StopRequestedError")
NO_END = "its journal has no end: its chief was killed, or it cannot be reached from here"
PUBLISH_NAME = "publish.json"  # in the train_dir: what `ps_train publish` has published last
_Event = Mapping[str, Any]  # a line of the journal
_POLL_SECS = 1.0
_MOST_DISORDER_SECS = 1.0  # of events that several threads note
_SAMPLE_SECS = 5.0  # between two samples at the start
_SAMPLES_PER_LENGTH = 200  # later this part of the time since the start: a month takes a few thousand lines
_SOURCES = {
    "new parameters": "training begins with new parameters",
    "live parameters": "the chief continues with the parameters on the ps",
}
_CHANGES = {
    "joined again": "joined again, as a new process",
    "silent": "sends no heartbeat: dead, frozen or cut off",
    "back": "sends heartbeats again",
    "finished": "has finished",
    "left": "left before the end",
}


def worker_changes(previous: Snapshot | None, current: Snapshot) -> list[tuple[int, str]]:
    """Returns (number, change) of the workers that changed between two snapshots, the first of which may be missing."""
    numbers = np.flatnonzero(current.claims) if previous is None else np.flatnonzero(
        (current.claims != 0) | (previous.claims != 0) | (current.finished != Finished.NO))
    changes = [(int(number), _change(previous, current, int(number))) for number in numbers]
    return [(number, change) for number, change in changes if change]


def has_finished(snapshot: Snapshot, number: int) -> bool:
    """Returns whether a worker takes no more steps, and does not merely wait for more data (--dynamic_sharding)."""
    return bool(snapshot.finished[number] == Finished.ENDED)


def _change(previous: Snapshot | None, current: Snapshot, number: int) -> str:
    """Returns "" for no change."""
    old, new = (0 if previous is None else int(previous.claims[number])), int(current.claims[number])
    if has_finished(current, number) and (previous is None or not has_finished(previous, number)):
        return "finished"
    if not new:
        return "left" if old and not has_finished(current, number) else ""
    if previous is None or not old:
        return "joined"
    if old != new:
        return "joined again"
    if previous.is_alive(number) != current.is_alive(number):
        return "back" if current.is_alive(number) else "silent"
    return ""


class Diary:
    """Notes in the chief's journal which workers come and go, and at growing intervals their progress."""

    def __init__(self, notes: Journal, board: Any, cluster: Cluster, global_step: Callable[[], int]) -> None:
        """Prepares it.

        Args:
          board: the chief's `coordination.blackboard.Blackboard`.
          global_step: returns the step that the chief has seen last.
        """
        self._journal, self._board, self._cluster, self._global_step = notes, board, cluster, global_step
        self._previous: Snapshot | None = None
        self._start_secs = time.monotonic()
        self._next_sample_secs = self._start_secs

    def update(self, is_last: bool = False) -> None:
        """Reads the blackboard on ps 0, and notes the changes; the last time, the progress in any case."""
        try:
            current = self._board.snapshot()
        except BlackboardError:  # ps 0 is lost, which the training notes; the claims on its successor are new
            return
        # A clock that went back is that of a new ps 0, on which all workers will join again.
        is_new_ps = self._previous is not None and current.now_secs < self._previous.now_secs
        for number, change in () if is_new_ps else worker_changes(self._previous, current):
            self._journal.note("worker", name=self._cluster.worker_name(number), what=change, step=self._global_step())
        self._previous = current
        now_secs = time.monotonic()
        if is_last or now_secs >= self._next_sample_secs:
            self._next_sample_secs = now_secs + max(_SAMPLE_SECS, (now_secs - self._start_secs) / _SAMPLES_PER_LENGTH)
            self._journal.note("sample", workers=self._progress(current),
                               step=max(self._global_step(), int(current.steps.max())))

    def _progress(self, current: Snapshot) -> Mapping[str, Any]:
        staleness = np.zeros(len(current.claims)) if current.staleness is None else current.staleness
        return {self._cluster.worker_name(int(number)): {
            "steps": int(current.local_steps[number]), "staleness": round(float(staleness[number]), 3)}
            for number in np.flatnonzero((current.claims != 0) | (current.local_steps != 0))}


@contextlib.contextmanager
def keeping_diary(notes: Journal, board: Any, cluster: Cluster, global_step: Callable[[], int]) -> Iterator[None]:
    """Keeps a `Diary` while its body runs; for the chief."""
    diary = Diary(notes, board, cluster, global_step)
    with threads.repeating(diary.update, period_secs=_POLL_SECS, name="diary", join_secs=_POLL_SECS):
        yield
    diary.update(is_last=True)


class Ending(NamedTuple):
    """How a training has ended that does not answer any longer, or what its folder says if it never answers.

    Attributes:
      state: FINISHED, STOPPED_EARLY, STOPPED, FAILED or LOST; without a blackboard RUNNING, ENDED, UNKNOWN or LOST;
        STARTING if a launch begins another training in the folder.
      why: the reason, in a line.
      step: the last global step in the journal, or None.
      metrics: name -> value in the evaluation of the last checkpoint; {} without an evaluation.
    """

    state: str
    why: str
    step: int | None
    metrics: Mapping[str, float]

    def __str__(self) -> str:
        """Returns a line such as "finished at step 200: the global step reached train_steps; accuracy 0.9579"."""
        at_step = "" if self.step is None else f" at step {self.step}"
        metrics = "".join(f"; {name} {value:.4g}" for name, value in sorted(self.metrics.items()))
        return f"{self.state}{at_step}: {self.why}{metrics}"

    def raise_if_failed(self, train_dir: str, has_command: bool = True) -> None:
        """Raises an error with the exit code of the training, unless it has finished or was stopped early.

        Args:
          has_command: whether the folder has the command that continues it.
        """
        if exit_code := _EXIT_CODES[self.state]:
            advice = (f"`ps_train resume --train_dir={shlex.quote(train_dir)}` prints the command that continues it"
                      if has_command else "the same command continues it")
            raise TrainingEndedError("training_ended", f"the training in {train_dir} does not run: {self}; {advice}",
                                     exit_code)


def read_ending(train_dir: str) -> Ending | None:
    """Returns how the last training in a folder ended; None if its journal has none, or cannot be read."""
    try:
        events = journal.read_journal(train_dir) if train_dir else []
    except OSError:
        return None
    start, later_events = _since_start(events)
    if start is None:
        return None
    step = next((event["step"] for event in reversed(later_events) if isinstance(event.get("step"), int)), None)
    ends = [event for event in later_events if event["event"] == "end"]
    if not ends:
        return Ending(LOST, NO_END, step, {})
    return Ending(_state(ends[-1], start), str(ends[-1].get("why", "")), step, ends[-1].get("metrics") or {})


def read_published(train_dir: str) -> dict[str, Any]:
    """Returns what `ps_train publish` wrote last; {} without it, or if it cannot be read."""
    try:
        with open(os.path.join(train_dir, PUBLISH_NAME), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def describe_published(published: Mapping[str, Any]) -> list[str]:
    """Returns the result of `read_published` as lines: of the folder, and of each target."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(published["time"]))
    lines = [f"published: step {published['step']} as push {published['number']}, at {at}{_ages(published)}"]
    for target in published["targets"]:
        has = "never reached" if target["number"] is None else f"has push {target['number']}"
        problem = f": {target['problem']}" if target["problem"] else ""
        lines.append(f"target {target['target']} {has}{problem}{_ages(target)}")
    return lines


def _ages(of_place: Mapping[str, Any]) -> str:
    return "".join(f"; from {first} to served {of_place[f'{first}_to_served_secs_p50']:.1f} s in the median, "
                   f"{of_place[f'{first}_to_served_secs_p99']:.1f} s at 99 %"
                   for first in ("trained", "event") if of_place[f"{first}_to_served_secs_p50"] is not None)


def _since_start(events: Sequence[_Event]) -> tuple[_Event | None, Sequence[_Event]]:
    """Returns the last start of the chief, None without one, and the events after it."""
    starts = [index for index, event in enumerate(events) if event["event"] == "start"]
    return (events[starts[-1]], events[starts[-1] + 1:]) if starts else (None, ())


def _is_lost_end(end: _Event) -> bool:
    """Returns whether the chief had lost the cluster, so that the same command continues the training."""
    return "step" not in end and str(end.get("why", "")).partition(":")[0] in _LOST_ERRORS


def _state(end: _Event, start: _Event) -> str:
    if "step" not in end:
        error = str(end.get("why", "")).partition(":")[0]
        return STOPPED if error in _STOP_ERRORS else LOST if _is_lost_end(end) else FAILED
    train_steps = (start.get("run") or {}).get("train_steps")
    is_early = train_steps is not None and end["step"] < train_steps and not end.get("is_data_end")
    return STOPPED_EARLY if is_early else FINISHED


class TrainingEvent(NamedTuple):
    """An event in words.

    Attributes:
      time: seconds since the epoch.
      step: the global step that the chief had seen, None where the event has none.
      task: the task, or "chief".
      description: the event in words.
      is_fault: whether something went wrong.
      is_routine: whether it is one of many, such as a checkpoint.
    """

    time: float
    step: int | None
    task: str
    description: str
    is_fault: bool
    is_routine: bool = False


class Sample(NamedTuple):
    """The progress of each worker at a time: name -> steps, and name -> mean staleness of its updates."""

    time: float
    step: int
    steps: Mapping[str, int]
    staleness: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class RunHistory:
    """One run, as the journal records it.

    Attributes:
      begin, end: its first and its last time in the journal, in seconds since the epoch; 0 without one. All its times
        are those of `SteadyTime`.
      lost_secs: how far the clock had been set back, from 0 to what it was at the end.
      progress: (time, step) of each event with a step.
      run: the chief's description of its last process in this run, see `describe_run`; {} without a journal.
      placed: the variables on each ps, see `describe_placement`; {} without a journal.
      events: in order.
      samples: in order.
      losses: (time, step) of each lost session.
      ending: how the last process of the chief ended, "" if that is unknown.
    """

    begin: float
    end: float
    lost_secs: Sequence[float]
    progress: Sequence[tuple[float, int]]
    run: Mapping[str, Any]
    placed: Mapping[str, Any]
    events: Sequence[TrainingEvent]
    samples: Sequence[Sample]
    losses: Sequence[tuple[float, int]]
    ending: str


def run_histories(events: Sequence[_Event]) -> list[RunHistory]:
    """Returns the history of each run; a single empty one without a journal."""
    runs: list[list[_Event]] = [[]]
    for event in events:
        if event["event"] == "start" and _begins_run(event, runs[-1]):
            runs.append([])
        runs[-1].append(event)
    return [run_history(run) for run in runs]


def run_at(histories: Sequence[RunHistory], time: float) -> int:
    """Returns the index of the run that had this time or, between two runs, of the last one that had begun; or 0."""
    last_begun = max(0, bisect.bisect_right([history.begin for history in histories], time) - 1)
    if histories[last_begun].begin <= time <= histories[last_begun].end:
        return last_begun
    # A clock that was set back may give a run times before those of an earlier one.
    holding = (index for index, history in enumerate(histories) if history.begin <= time <= history.end)
    return next(holding, last_begun)


class SteadyTime:
    """The times of events, in their order, as of a clock that nobody has set back: it goes on from the event before."""

    def __init__(self, lost_secs: float = 0.0) -> None:
        """Begins where the clock had been set back by `lost_secs`."""
        self._last_secs, self.lost_secs = -math.inf, lost_secs

    def of(self, secs: float) -> float:
        """Returns the time of the next event, of which the clock gave this one."""
        if secs + self.lost_secs < self._last_secs - _MOST_DISORDER_SECS:
            self.lost_secs = self._last_secs - secs
        self._last_secs = secs + self.lost_secs
        return self._last_secs


def clock_loss(histories: Sequence[RunHistory], secs: float, step: int) -> float:
    """Returns how far the clock had been set back when it gave this time to an event at a step.

    A time alone may be of before or after, so it is what brings the event nearest to its step in the journal.
    """
    if not any(any(history.lost_secs) for history in histories):
        return 0.0
    distances = [(abs(secs + lost_secs - _time_of(history, step)), lost_secs)
                 for history in histories if history.progress for lost_secs in history.lost_secs]
    return min(distances, default=(0.0, 0.0))[1]


def _time_of(history: RunHistory, step: int) -> float:
    times, steps = zip(*history.progress)
    return float(np.interp(step, np.maximum.accumulate(steps), times))  # a lost session goes back to earlier steps


def _begins_run(start: _Event, earlier_events: Sequence[_Event]) -> bool:
    """Returns whether a start of the chief begins another run than that of the events before."""
    earlier_start, later_events = _since_start(earlier_events)
    if earlier_start is None:
        return any(event["event"] == "end" for event in earlier_events)
    ends = [event for event in later_events if event["event"] == "end"]
    return earlier_start["run"].get("command") != start["run"].get("command") or bool(
        ends and not _is_lost_end(ends[-1]))


def run_history(events: Sequence[_Event]) -> RunHistory:
    """Returns the history of one run, from its events in the journal."""
    steady, lost_secs = SteadyTime(), [0.0]
    times = []
    for event in events:
        times.append(steady.of(event["time"]))
        if steady.lost_secs != lost_secs[-1]:
            lost_secs.append(steady.lost_secs)
    events = [{**event, "time": time} for event, time in zip(events, times)]
    start, later_events = _since_start(events)
    ends = [event["why"] for event in later_events if event["event"] == "end"]
    return RunHistory(
        begin=events[0]["time"] if events else 0.0, end=events[-1]["time"] if events else 0.0,
        lost_secs=lost_secs,
        progress=[(event["time"], event["step"]) for event in events if isinstance(event.get("step"), int)],
        run=(start or {}).get("run", {}), placed=(start or {}).get("placed", {}),
        events=[described for event in events if (described := _training_event(event)) is not None],
        samples=[Sample(event["time"], event["step"],
                        {name: worker["steps"] for name, worker in event["workers"].items()},
                        {name: worker["staleness"] for name, worker in event["workers"].items()})
                 for event in events if event["event"] == "sample"],
        losses=[(event["time"], event["step"]) for event in events if event["event"] == "lost"],
        ending=ends[-1] if ends else "")


def _training_event(event: _Event) -> TrainingEvent | None:
    kind, task, description, is_fault, is_routine = event["event"], "chief", "", False, False
    if kind == "start":
        description = f"starts: {event['run']['model']} on {event['run']['dataset']}"
    elif kind == "session":
        source = event["source"]
        is_fault = bool(event["step"]) and source not in _SOURCES
        description = _SOURCES.get(source, f"restores all ps from {source}") + (
            "; steps after it are taken again" if is_fault else "")
    elif kind == "lost":
        lost_tasks = f"{', '.join(event['gone'])} did not answer; " if event["gone"] else ""
        description, is_fault = f"lost its session: {lost_tasks}{event['reason']}", True
    elif kind == "checkpoint":
        description, is_routine = f"has saved {event['path']}", True
    elif kind == "worker":
        task, is_fault = event["name"], event["what"] == "silent"
        description = _CHANGES.get(event["what"]) or event["what"]
    elif kind == "end":
        description, is_fault = f"ends: {event['why']}", "Error:" in event["why"]
    else:  # a sample, or of a later version of ps_train
        return None
    return TrainingEvent(event["time"], event.get("step"), task, description, is_fault, is_routine)
