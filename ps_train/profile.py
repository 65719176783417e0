"""Where the time goes (--profile_steps): a few steps of every worker are traced, told in a table, and drawn.

    each worker   its steps that begin in [A, B) --> spans --> a table in its log
                                                       |
                                                       v  by ps 0's clock (profile_board.py)
    chief         the parts of all workers --> train_dir/profile/steps-A-B.json (collector.py)

A step here is one session run. A profile never ends training: what fails in it is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train import phases, spans, timeline, tracing
from ps_train.beats import Beats
from ps_train.blackboard import BlackboardError
from ps_train.cluster import Cluster
from ps_train.collector import Collector
from ps_train.graph import TrainGraph
from ps_train.phases import Run
from ps_train.profile_board import ProfileBoard, Reading
from ps_train.timeline import Part
from ps_train.tracing import Begin, TracedSession

_MOST_UNTRACED = 100
_log = logging.getLogger(__name__)


class NoProfile:
    """Nothing is recorded, and nothing costs anything."""

    def of_session(self, session: tf.Session, graph: TrainGraph) -> tf.Session:
        """Returns the session as it is."""
        return session

    def finish(self) -> None:
        """Has nothing to do."""

    def close(self) -> None:
        """Has nothing to do."""


class Profile:
    """The profile of one worker's training, over all of its sessions."""

    def __init__(self, steps: range, cluster: Cluster, board: ProfileBoard, beats: Beats, train_dir: str) -> None:
        """Prepares; nothing is sent yet.

        Args:
          steps: the global steps at which a step must begin to be traced.
          board: is closed by `close`.
          beats: knows the global step that this worker saw last.
          train_dir: where the chief writes the trace.
        """
        self._steps = steps
        self._cluster = cluster
        self._board = board
        self._beats = beats
        path = os.path.join(train_dir, "profile", f"steps-{steps.start}-{steps.stop}.json")
        self._collector = Collector(cluster, board, path) if cluster.is_chief else None
        self._traced: list[tuple[int, tuple[float, float, float], Any]] = []
        self._untraced_secs: deque[float] = deque(maxlen=_MOST_UNTRACED)
        self._answered: set[str] = set()
        self._is_new = True
        self._is_finished = False

    def of_session(self, session: tf.Session, graph: TrainGraph) -> TracedSession:
        """Returns what runs steps in that session, and traces those that were asked for."""
        if self._is_new:
            self._is_new = False
            self._answered = tracing.answered(graph.graph)
            with contextlib.suppress(BlackboardError):  # what a run before this one left on servers that live on
                self._board.deliver(self._cluster.worker_number, b"")
        return TracedSession(session, graph, self._beats, self._run_step)

    def finish(self) -> None:
        """Tells what was recorded, and hands it over; no further step is traced."""
        if self._is_finished:
            return
        self._is_finished = True
        part = self._part()
        self._tell(part)
        if self._collector is not None:
            self._collector.start(part)
            return
        try:
            self._board.deliver(self._cluster.worker_number, timeline.pack(part))
        except BlackboardError as error:
            _log.warning("profile: the trace will be without %s: %s", part.worker, error)

    def close(self) -> None:
        """Ends the chief's wait for the parts of the others."""
        if self._collector is not None:
            self._collector.close()
        self._board.close()

    def _run_step(self, session: tf.Session, begin: Begin, fetches: Any, options: tf.RunOptions) -> Any:
        """Runs a training step."""
        if begin.step >= self._steps.stop:
            self.finish()
        if self._is_finished:
            return session.run(fetches, options=options)
        call_secs = time.time()
        start_secs = call_secs if begin.held_secs is None else begin.held_secs
        if begin.step < self._steps.start:
            values = session.run(fetches, options=options)
            self._untraced_secs.append(time.time() - start_secs)
            return values
        tracing, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        tracing.MergeFrom(options)
        values = session.run(fetches, options=tracing, run_metadata=metadata)
        times_us = (start_secs * 1e6, call_secs * 1e6, time.time() * 1e6)
        # It is read when all are done: in sync the others would wait for this worker meanwhile.
        self._traced.append((begin.step, times_us, metadata.step_stats))
        return values

    def _part(self) -> Part:
        """Returns what was recorded, by ps 0's clock as far as that is known."""
        try:
            clocks: Mapping[str, Reading] = self._board.clocks() if self._traced else {}
        except BlackboardError as error:
            _log.warning("profile: the clocks of all tasks are taken to be the same: %s", error)
            clocks = {}
        runs = [_aligned(run, clocks, self._cluster.ps[0].name) for run in self._runs()]
        self._traced = []
        error_secs = max((clock.error_secs for clock in clocks.values()), default=0.0)
        return Part(self._cluster.task.name, runs, error_secs * 1e6)

    def _runs(self) -> list[Run]:
        found = [spans.read(stats) for _, _, stats in self._traced]
        # Of all runs: the ps log what they receive as well as they can, and may miss some of it (master_session.cc).
        worker = self._cluster.task.name
        sent = {span.node for each in found for span in each if span.sender == worker and span.num_bytes}
        gradients = sorted(sent - self._answered)
        return [Run(step, *times_us, each, gradients) for (step, times_us, _), each in zip(self._traced, found)]

    def _tell(self, part: Part) -> None:
        if not part.runs:
            _log.warning("profile: no step of %s began at a global step from %d to %d", part.worker, self._steps.start,
                         self._steps.stop - 1)
            return
        for line in _lines(part, list(self._untraced_secs)):
            _log.info("%s", line)


def of_worker(steps: range, target: str, cluster: Cluster, beats: Beats, train_dir: str) -> Profile | NoProfile:
    """Returns the profile of a worker whose server is at `target`."""
    if not steps:
        return NoProfile()
    return Profile(steps, cluster, ProfileBoard(target, cluster), beats, train_dir)


def _aligned(run: Run, clocks: Mapping[str, Reading], first_ps: str) -> Run:
    """Returns a run whose times are all by the clock of ps 0.

    Args:
      clocks: task -> how far its clock is ahead of this process's own; one that is not there is the same.
    """
    ahead_us = {span.task: 0.0 for span in run.spans}
    ahead_us.update({task: reading.ahead_secs * 1e6 for task, reading in clocks.items()})
    first_us = ahead_us.get(first_ps, 0.0)
    return phases.shifted(run, first_us, {task: first_us - own_us for task, own_us in ahead_us.items()})


def _lines(part: Part, untraced_secs: list[float]) -> list[str]:
    """Returns the table of a part, and what one says around it."""
    batches = sorted({phases.num_batches(run, part.worker) for run in part.runs})
    each = f" of {'/'.join(map(str, batches))} mini-batches each" if batches[-1] > 1 else ""
    first, last = part.runs[0].global_step, part.runs[-1].global_step
    found = [f"profile of {part.worker}: {len(part.runs)} steps{each}, begun at global step {first} to {last}; in ms:",
             *phases.table(part.runs, part.worker)]
    if untraced_secs:
        found.append(f"  a step took {statistics.median(untraced_secs) * 1000:.2f} ms before it was traced, the median "
                     f"of {len(untraced_secs)}")
    return found
