"""The step loop: runs training steps until something ends them. It sees the cluster only in
the values that each step returns.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.coordination.state import State
from ps_train.errors import ChiefFailedError, ClusterLostError, UserCodeError
from ps_train.graph import extensions, nan_guard
from ps_train.runtime import clock, tensorflow_errors, waits
from ps_train.runtime.reports import Progress
from ps_train.training.replica_graph import StepStatus, TrainGraph
from ps_train.training.reporting import End, Outcome, Report
from ps_train.updates.staleness import Bound, Histogram

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
    """

    worker_name: str
    train_steps: int
    batch_size: int
    log_steps: int
    save_summaries_steps: int
    step_timeout_secs: float
    on_nan: str = "stop"


class Loop:
    """The step loop of one worker, over one session."""

    def __init__(
        self, session: tf.Session, graph: TrainGraph, settings: LoopSettings, progress: WorkerProgress, *,
        stop: threading.Event, write_summary: Callable[[bytes | tf.Summary, int], None] | None,
        report: Report | None = None, run_step: RunStep | None = None,
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
        self._run_step = run_step or plain_step(graph.hooks.around(session))
        self._sent_kinds: set[tuple[bool, bool]] = set()  # of steps whose graph the servers have
        self._held_secs = 0.0
        self._graph = graph
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._reports = StepReports(settings, report or Report(), write_summary)
        self._options = tf.RunOptions(timeout_in_ms=math.ceil(settings.step_timeout_secs * 1000))
        self._local_steps = 0
        self._last_taken = 1
        self._skipped_in_a_row = 0

    def run(self) -> Outcome:
        """Trains to the end; returns the outcome.

        Raises:
          tf.errors.OpError: the session failed.
          ChiefFailedError: the chief's own code has failed.
        """
        status = self._status()
        first_step = status.step
        start_secs = clock.now()
        self._reports.start(first_step, self._local_steps)
        try:
            while (end := self._end(status)) is None:
                bound = self._graph.steps.bound
                if bound and bound.holds_up(status.lead):
                    status = self._wait_for_slowest(status, bound)
                else:
                    status = self._finite_steps(status)
                self._progress.step = status.step
        except tf.errors.OutOfRangeError:
            end = End.DATA
            status = self._settle_failed_run()
        except tf.errors.OpError as error:
            if not self._stop.is_set() or sessions.is_lost(error):
                raise
            # The processes of a dataset may end by the same signal, as under systemd: what was trained is still saved.
            _log.warning("a step failed while this task was asked to stop: %s", tensorflow_errors.reason(error))
            end, status = End.SIGNAL, self._settle_failed_run()
        return Outcome(end, first_step, status.step, self._local_steps, clock.now() - start_secs,
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
        start_secs = moved_secs = clock.now()
        last_lead = status.lead

        def slowest() -> str:
            return bound.names.get(status.slowest, str(status.slowest))

        reminder = waits.Reminder(
            lambda: f"{slowest()}, as --staleness_bound={bound.steps} lets no worker run further ahead of it")
        while bound.holds_up(status.lead) and self._end(status) is None:
            if status.lead < last_lead:
                moved_secs, last_lead = clock.now(), status.lead
            if clock.now() - moved_secs > self._settings.step_timeout_secs:
                raise ClusterLostError(
                    "worker_stalled", f"{slowest()} is alive but took no step for "
                    f"{self._settings.step_timeout_secs:g} s, and --staleness_bound={bound.steps} lets no worker run "
                    "further ahead of it; see its log")
            reminder.remind()
            self._stop.wait(_POLL_SECS)
            status = self._status()
        self._held_secs = clock.now() - start_secs
        return status

    def _finite_steps(self, status: StepStatus) -> StepStatus:
        """Takes the next steps. If a loss or gradient is not finite, nothing of that step reaches a ps.

        Raises:
          UserCodeError: a number is not finite, with --on_nan=stop or too often in a row; or a table cannot have an id.
          DataError: a record of the input is malformed, and --on_bad_record=stop.
        """
        try:
            status = self._steps(status)
        except tf.errors.InvalidArgumentError as error:
            extensions.explain_error(self._graph.graph, error, self._settings.worker_name)
            fault = nan_guard.nan_in(error)
            if fault is None:
                raise
            return self._skip(fault, error)
        self._skipped_in_a_row = 0
        return status

    def _settle_failed_run(self) -> StepStatus:
        """Counts the steps before the failed one in its session run; those of a round reach the ps now."""
        self._took(int(self._run(self._graph.update.failed_run_steps)))
        return self._status()

    def _skip(self, fault: str, error: tf.errors.InvalidArgumentError) -> StepStatus:
        steps_before = self._local_steps
        status = self._settle_failed_run()
        self._skipped_in_a_row = 1 if self._local_steps > steps_before else self._skipped_in_a_row + 1
        where = f"{self._settings.worker_name}, in the step after global step {status.step}: {fault}"
        if self._settings.on_nan == "stop" or self._skipped_in_a_row > _MOST_SKIPPED:
            raise UserCodeError("not_finite", f"{where}; nothing of it was applied. Look at that batch and at the "
                                "model, lower --learning_rate, or skip such batches with --on_nan=skip") from error
        _log.warning("%s; this batch is skipped", where)
        return status

    def _steps(self, status: StepStatus) -> StepStatus:
        """Runs --steps_per_execution steps if so many are left, else one step or round; reports what is due."""
        due = self._reports.due(self._local_steps, self._last_taken)
        # The loss is always fetched: each new set of fetches costs a tenth of a second, as TensorFlow prunes the graph.
        summary_op = [self._graph.summary_op] if due.summarises else []
        steps = self._graph.steps
        is_near_end = status.step + steps.unrolled.num_steps > self._settings.train_steps
        execution = steps.single if due.summarises or is_near_end else steps.unrolled
        held_secs, self._held_secs = self._held_secs, 0.0
        fetches = [execution.progress, execution.loss, *summary_op]
        progress, loss, *summary = self._bounded_at_first(
            (execution is steps.single, bool(summary_op)),
            lambda: self._run_step(status.step, held_secs, fetches, self._options))
        status = self._count(progress)
        if any(due) and status.num_taken:
            self._reports.report(due, step=status.step, local_steps=self._local_steps,
                                 total_steps=self._progress.local_steps, loss=float(loss),
                                 summary=next(iter(summary), None))
        return status

    def _bounded_at_first(self, kind: tuple[bool, bool], step: Callable[[], Any]) -> Any:
        """Returns `step()`; the first of a kind needs a second bound, see `sessions.call_bounded`."""
        if kind in self._sent_kinds:
            return step()

        def first_step() -> Any:
            with self._graph.graph.as_default():  # for hooks; the default graph is one of the calling thread
                return step()

        values = sessions.call_bounded(first_step, self._options, "the end of a first step")
        self._sent_kinds.add(kind)
        return values

    def _count(self, progress: Any) -> StepStatus:
        statuses = [StepStatus(*map(int, row)) for row in progress]
        for status in statuses:
            if status.num_taken:  # 0 in a round that began after the end
                self._reports.count_staleness(status.staleness)
                self._progress.num_updates += 1
                self._progress.sum_staleness += status.staleness
        self._last_taken = sum(status.num_taken for status in statuses)
        self._took(self._last_taken)
        return statuses[-1]

    def _took(self, num_steps: int) -> None:
        self._local_steps += num_steps
        self._progress.local_steps += num_steps

    def _status(self) -> StepStatus:
        return StepStatus(*map(int, self._run(self._graph.steps.status)))

    def _run(self, fetches: Any) -> Any:
        return sessions.run_bounded(self._session, fetches, options=self._options)


class Periodic:
    """Says when a periodic action is due: each time a count reaches the next multiple of its period."""

    def __init__(self, period_steps: int, at_once: bool = False) -> None:
        """Prepares it; with a period of 0 it is never due."""
        self._period_steps = period_steps
        self._due_step = 0 if at_once else period_steps

    def is_due(self, step: int) -> bool:
        """Returns whether the action is due at this count; if so, it is due next at a later multiple."""
        if not self._period_steps or step < self._due_step:
            return False
        self._due_step = (step // self._period_steps + 1) * self._period_steps
        return True


class Due(NamedTuple):
    """What is to be reported after the next steps."""

    logs: bool
    summarises: bool


class StepReports:
    """Knows after which steps a report is due, and makes it."""

    def __init__(
        self, settings: LoopSettings, report: Report, write_summary: Callable[[bytes | tf.Summary, int], None] | None
    ) -> None:
        self._settings, self._report, self._write_summary = settings, report, write_summary
        self._logs = Periodic(settings.log_steps)
        self._summarises = Periodic(settings.save_summaries_steps if write_summary else 0, at_once=True)
        self._stalenesses, self._new_stalenesses = Histogram(), Histogram()
        self._last = (0.0, 0, 0)

    def start(self, step: int, local_steps: int) -> None:
        """Counts the time from now, and the steps from this global step and so many of this worker."""
        self._last = (clock.now(), step, local_steps)

    def due(self, local_steps: int, last_taken: int) -> Due:
        """Returns what is due, after so many steps of this worker, of which the last session run took `last_taken`."""
        return Due(self._logs.is_due(local_steps + last_taken), self._summarises.is_due(local_steps))

    def count_staleness(self, staleness: int) -> None:
        """Counts an update."""
        self._stalenesses.add(staleness)
        self._new_stalenesses.add(staleness)

    def staleness_line(self) -> str:
        """Returns the staleness of all updates, or "" without updates."""
        return self._stalenesses.line()

    def report(self, due: Due, *, step: int, local_steps: int, total_steps: int, loss: float,
               summary: bytes | None) -> None:
        """Writes what is due.

        Args:
          step: the global step.
          local_steps: the steps of this worker in this session.
          total_steps: the steps of this worker in all its sessions.
          loss: of the last mini-batch.
          summary: of the graph, or None.
        """
        last_secs, last_step, last_local_steps = self._last
        now_secs = clock.now()
        elapsed_secs = max(now_secs - last_secs, 1e-9)
        examples_per_sec = (local_steps - last_local_steps) * self._settings.batch_size / elapsed_secs
        steps_per_sec = (step - last_step) / elapsed_secs
        if summary is not None:
            self._write(summary, step, steps_per_sec, examples_per_sec)
        if due.logs:
            self._report.step(Progress(step, self._settings.train_steps, loss, steps_per_sec, examples_per_sec),
                              total_steps)
            self._last = (now_secs, step, local_steps)

    def _write(self, summary: bytes, step: int, steps_per_sec: float, examples_per_sec: float) -> None:
        self._write_summary(summary, step)
        rates = {"global_step/sec": steps_per_sec, "examples/sec": examples_per_sec}
        summary_of_rates = tf.Summary(value=[
            *(tf.Summary.Value(tag=tag, simple_value=value) for tag, value in rates.items()),
            *self._new_stalenesses.summary().value])
        self._write_summary(summary_of_rates, step)
        self._new_stalenesses = Histogram()
