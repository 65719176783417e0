"""The step loop: runs training steps until something ends them. It knows nothing of the cluster."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.coordination.state import State
from ps_train.errors import ChiefFailedError, ClusterLostError, UserCodeError
from ps_train.graph import nan_guard
from ps_train.graph.input import bad_records
from ps_train.runtime import waits
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import End, Outcome, Report
from ps_train.training.step_status import StepReports, StepStatus
from ps_train.updates.staleness import Bound

_POLL_SECS = 0.005
_MOST_SKIPPED = 100  # batches in a row; after that the fault is not in the batches
_log = logging.getLogger(__name__)

# Runs one training step in place of `session.run`. Called with the global step at which the step begins, the seconds
# for which the staleness bound delayed the worker before it, the fetches and the options; returns the fetched values.
RunStep = Callable[[int, float, Any, tf.RunOptions], Any]


def plain_step(session: Any) -> RunStep:
    """Returns what runs a training step with the `run` of a session, and nothing else."""
    return lambda step, held_secs, fetches, options: session.run(fetches, options=options)


class LoopSettings(NamedTuple):
    """When the loop does what.

    Attributes:
      worker_name: of this worker in messages, such as `worker:1`.
      train_steps: the global step at which training ends.
      batch_size: examples in a mini-batch.
      log_steps: local steps between progress lines; 0 prints none.
      save_summaries_steps: local steps between summaries; 0 writes none.
      step_timeout_secs: time limit of one session run.
      on_nan: "stop" or "skip" if a loss or gradient is not finite.
      bound: how far this worker may run ahead of the slowest, or None.
    """

    worker_name: str
    train_steps: int
    batch_size: int
    log_steps: int
    save_summaries_steps: int
    step_timeout_secs: float
    on_nan: str = "stop"
    bound: Bound | None = None


class Loop:
    """The step loop of one worker, over one session."""

    def __init__(
        self,
        session: tf.Session,
        graph: TrainGraph,
        settings: LoopSettings,
        progress: WorkerProgress,
        *,
        stop: threading.Event,
        write_summary: Callable[[bytes | tf.Summary, int], None] | None,
        report: Report | None = None,
        run_step: RunStep | None = None,
    ) -> None:
        """Prepares the loop.

        Args:
          progress: is kept up to date, for the heartbeat.
          stop: ends the loop after the current step.
          write_summary: takes a summary and its global step; None if this worker writes none.
          report: prints the progress; None prints ps_train's own lines.
          run_step: runs each training step in place of `session.run`, for a profiler or a benchmark.
        """
        self._session = session
        hooked = graph.hooks.around(session)
        self._run_step = run_step or plain_step(hooked)
        self._sent: set[tuple[bool, bool]] = set()  # kinds of steps that the servers have the graph of
        self._held_secs = 0.0
        self._graph = graph
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._reports = StepReports(
            train_steps=settings.train_steps, batch_size=settings.batch_size, log_steps=settings.log_steps,
            save_summaries_steps=settings.save_summaries_steps, report=report or Report(), write_summary=write_summary)
        self._options = tf.RunOptions(timeout_in_ms=math.ceil(settings.step_timeout_secs * 1000))
        self._local_steps = 0
        self._last_taken = 1
        self._skipped_in_a_row = 0

    def run(self) -> Outcome:
        """Trains to the end and returns how it came.

        Raises:
          tf.errors.OpError: the session failed.
          ChiefFailedError: the chief's own code has failed.
        """
        status = self._status()
        first_step = status.step
        start_secs = time.monotonic()
        self._reports.start(first_step)
        try:
            while (end := self._end(status)) is None:
                bound = self._settings.bound
                if bound and bound.holds_up(status.lead):
                    status = self._wait_for_slowest(status, bound)
                else:
                    status = self._finite_steps(status)
                self._progress.step = status.step
        except tf.errors.OutOfRangeError:
            end = End.DATA
            status = self._send_rest()
        return Outcome(end, first_step, status.step, self._local_steps, time.monotonic() - start_secs,
                       self._reports.staleness_line())

    def _end(self, status: StepStatus) -> End | None:
        if status.state == State.FAILED:
            raise ChiefFailedError
        if status.step >= self._settings.train_steps:
            return End.STEPS
        if status.state >= State.STOPPING:
            return End.ANNOUNCED
        if self._graph.hooks.should_stop:
            return End.HOOK
        return End.SIGNAL if self._stop.is_set() else None

    def _wait_for_slowest(self, status: StepStatus, bound: Bound) -> StepStatus:
        """Waits until the staleness bound lets this worker continue, or training is over.

        Raises:
          ClusterLostError: the slowest worker is alive, but took no step within the time limit of a step.
        """
        start_secs = moved_secs = time.monotonic()
        last_lead = status.lead
        reminder = waits.Reminder(lambda: f"{bound.names.get(status.slowest, status.slowest)}, as --staleness_bound="
                                  f"{bound.steps} lets nobody run further ahead of it")
        while bound.holds_up(status.lead) and self._end(status) is None:
            if status.lead < last_lead:
                moved_secs, last_lead = time.monotonic(), status.lead
            if time.monotonic() - moved_secs > self._settings.step_timeout_secs:
                raise ClusterLostError(
                    f"{bound.names.get(status.slowest, status.slowest)} is alive but took no step for "
                    f"{self._settings.step_timeout_secs:g} s, and --staleness_bound={bound.steps} lets nobody run "
                    "further ahead of it; see its log")
            reminder.remind()
            self._stop.wait(_POLL_SECS)
            status = self._status()
        self._held_secs = time.monotonic() - start_secs
        return status

    def _finite_steps(self, status: StepStatus) -> StepStatus:
        """Takes the next steps. If a loss or gradient is not finite, nothing of that step reaches a ps.

        Raises:
          UserCodeError: a number is not finite, and --on_nan=stop, or too many batches in a row were skipped; or an
            embedding table cannot have an id.
          DataError: a record of the input is malformed, and --on_bad_record=stop.
        """
        try:
            status = self._steps(status)
        except tf.errors.InvalidArgumentError as error:
            self._graph.rows.explain(error, self._settings.worker_name)
            found = nan_guard.found_in(error)
            if found is None:
                bad_records.raise_if_bad(error)
                raise
            return self._skip(found, error)
        self._skipped_in_a_row = 0
        return status

    def _send_rest(self) -> StepStatus:
        """Counts the steps before the failed one in its session run; those of a round are sent to the ps now."""
        self._took(int(self._run(self._graph.update.rest)))
        return self._status()

    def _skip(self, found: str, error: tf.errors.InvalidArgumentError) -> StepStatus:
        steps_before = self._local_steps
        status = self._send_rest()
        self._skipped_in_a_row = 1 if self._local_steps > steps_before else self._skipped_in_a_row + 1
        where = f"{self._settings.worker_name}, in the step after global step {status.step}: {found}"
        if self._settings.on_nan == "stop" or self._skipped_in_a_row > _MOST_SKIPPED:
            raise UserCodeError(f"{where}; nothing of it was applied. Look at that batch and at the model, lower "
                                "--learning_rate, or skip such batches with --on_nan=skip") from error
        _log.warning("%s; this batch is skipped", where)
        return status

    def _steps(self, status: StepStatus) -> StepStatus:
        """Runs --steps_per_execution steps if so many are left, else one step or round; reports what is due."""
        due = self._reports.due(self._local_steps, self._last_taken)
        # The loss is always fetched: each new set of fetches costs a tenth of a second, as TensorFlow prunes the graph.
        summary_op = [self._graph.summary_op] if due.summarises else []
        several = self._graph.several
        is_near_end = status.step + several.num_steps > self._settings.train_steps
        execution = self._graph.single if due.summarises or is_near_end else several
        held_secs, self._held_secs = self._held_secs, 0.0
        fetches = [execution.progress, execution.loss, *summary_op]
        progress, loss, *summary = self._bounded_at_first(
            (execution is self._graph.single, bool(summary_op)),
            lambda: self._run_step(status.step, held_secs, fetches, self._options))
        status = self._count(progress)
        if any(due) and status.num_taken:
            self._reports.report(due, step=status.step, local_steps=self._local_steps,
                                 total_steps=self._progress.local_steps, loss=float(loss),
                                 summary=next(iter(summary), None))
        return status

    def _bounded_at_first(self, kind: tuple[bool, bool], step: Callable[[], Any]) -> Any:
        """Returns `step()`; the first of a kind needs a second bound, see `sessions.call_bounded`."""
        if kind in self._sent:
            return step()

        def first_step() -> Any:
            with self._graph.graph.as_default():  # for hooks; the default graph is one of the calling thread
                return step()

        values = sessions.call_bounded(first_step, self._options, "the end of a first step")
        self._sent.add(kind)
        return values

    def _count(self, progress: Any) -> StepStatus:
        statuses = [StepStatus(*map(int, row)) for row in progress]
        for one in statuses:
            if one.num_taken:  # 0 in a round that began after the end
                self._reports.count_staleness(one.staleness)
                self._progress.num_updates += 1
                self._progress.sum_staleness += one.staleness
        self._last_taken = sum(one.num_taken for one in statuses)
        self._took(self._last_taken)
        return statuses[-1]

    def _took(self, num_steps: int) -> None:
        self._local_steps += num_steps
        self._progress.local_steps += num_steps

    def _status(self) -> StepStatus:
        return StepStatus(*map(int, self._run(self._graph.status)))

    def _run(self, fetches: Any) -> Any:
        return sessions.run_bounded(self._session, fetches, options=self._options)
