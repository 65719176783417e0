"""What a worker knows after a step, read on ps 0 as one tensor, and its reports: progress lines and summaries."""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import variables
from ps_train.runtime.reports import Progress
from ps_train.training.reporting import Report
from ps_train.updates import staleness
from ps_train.updates.staleness import Histogram
from ps_train.updates.update import Update


class StepStatus(NamedTuple):
    """The state of training after a step, in the order of `Execution.progress`.

    Attributes:
      step: the global step.
      state: the training state, a value of `coordination.state.State`.
      num_taken: mini-batches in this worker's last step.
      staleness: of its last update, see updates/staleness.py.
      lead: how many steps it is ahead of the slowest worker; 0 without a staleness bound.
      slowest: the number of the slowest worker.
    """

    step: int
    state: int
    num_taken: int
    staleness: int
    lead: int
    slowest: int


def progress(
    cluster: Cluster, global_step: tf.Variable, update: Update, bound: staleness.Bound | None
) -> tf.Tensor:
    """Returns the `StepStatus` after a step as one tensor, so that a step fetches only one from ps 0."""
    with on_first_ps(cluster):
        begun = global_step.read_value()
        with tf.control_dependencies([update.train_op]):
            reached = global_step.read_value()
            counted = [staleness.count_steps(cluster.worker_number, update.num_taken)] if bound else [reached]
        with tf.control_dependencies(counted):
            age = staleness.measure(begun=begun, reached=reached, num_taken=update.num_taken)
            return tf.stack([[reached, variables.read("state"), update.num_taken, age, *_lead(cluster, bound)]])


def read_status(cluster: Cluster, global_step: tf.Variable, bound: staleness.Bound | None) -> tf.Tensor:
    """Returns int64 [6], a `StepStatus` read on ps 0 without training."""
    with on_first_ps(cluster):
        nothing = tf.constant(0, tf.int64)
        return tf.stack([global_step.read_value(), variables.read("state"), nothing, nothing,
                         *_lead(cluster, bound)])


def _lead(cluster: Cluster, bound: staleness.Bound | None) -> tuple[tf.Tensor, tf.Tensor]:
    if bound is None:
        return tf.constant(0, tf.int64), tf.constant(cluster.worker_number, tf.int64)
    return staleness.lead(cluster.worker_number, bound)


def join_bound(cluster: Cluster, bound: staleness.Bound | None) -> tf.Operation:
    """Returns the operation with which a worker joins the staleness bound, a no-op without one."""
    with on_first_ps(cluster):
        return staleness.join_at_slowest(cluster.worker_number, bound) if bound else tf.no_op()


def on_first_ps(cluster: Cluster) -> Any:
    """Returns the device of ps 0."""
    return tf.device(cluster.ps[0].device + "/cpu:0")


class Periodic:
    """Tells when a periodic action is due: whenever a count reaches the next multiple of its period."""

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
        self,
        *,
        train_steps: int,
        batch_size: int,
        log_steps: int,
        save_summaries_steps: int,
        report: Report,
        write_summary: Callable[[bytes | tf.Summary, int], None] | None,
    ) -> None:
        """Prepares the reports.

        Args:
          train_steps: the global step at which training ends.
          batch_size: examples in a mini-batch.
          log_steps: local steps between progress lines; 0 prints none.
          save_summaries_steps: local steps between summaries; 0 writes none.
          report: prints the progress.
          write_summary: takes a summary and its global step; None if this worker writes none.
        """
        self._train_steps = train_steps
        self._batch_size = batch_size
        self._report_lines = report
        self._write_summary = write_summary
        self._logs = Periodic(log_steps)
        self._summarises = Periodic(save_summaries_steps if write_summary else 0, at_once=True)
        self._stalenesses, self._new_stalenesses = Histogram(), Histogram()
        self._last = (0.0, 0, 0)

    def start(self, step: int) -> None:
        """Counts the time from now, and the steps from this global step."""
        self._last = (time.monotonic(), step, 0)

    def due(self, local_steps: int, last_taken: int) -> Due:
        """Returns what is due, after so many steps of this worker, of which the last session run took `last_taken`."""
        return Due(self._logs.is_due(local_steps + last_taken), self._summarises.is_due(local_steps))

    def count_staleness(self, staleness: int) -> None:
        """Counts an update that was applied so many updates after its parameters were read."""
        self._new_stalenesses.add(staleness)

    def staleness_line(self) -> str:
        """Returns the staleness of all updates until now, "" if there were none. Call it once, at the end."""
        self._stalenesses.update(self._new_stalenesses)
        return self._stalenesses.line()

    def report(self, due: Due, *, step: int, local_steps: int, total_steps: int, loss: float,
               summary: bytes | None) -> None:
        """Writes what is due.

        Args:
          due: what that is.
          step: the global step.
          local_steps: the steps of this worker in this session.
          total_steps: the steps of this worker in all its sessions.
          loss: of the last mini-batch.
          summary: of the graph, or None.
        """
        then_secs, then_step, then_local = self._last
        now_secs = time.monotonic()
        elapsed_secs = max(now_secs - then_secs, 1e-9)
        examples_per_sec = (local_steps - then_local) * self._batch_size / elapsed_secs
        steps_per_sec = (step - then_step) / elapsed_secs
        if summary is not None:
            self._write(summary, step, steps_per_sec, examples_per_sec)
        if due.logs:
            self._report_lines.step(Progress(step, self._train_steps, loss, steps_per_sec, examples_per_sec),
                                    total_steps)
            self._last = (now_secs, step, local_steps)

    def _write(self, summary: bytes, step: int, steps_per_sec: float, examples_per_sec: float) -> None:
        self._write_summary(summary, step)
        own = _rates(steps_per_sec, examples_per_sec)
        own.value.extend(self._new_stalenesses.summary().value)
        self._write_summary(own, step)
        self._stalenesses.update(self._new_stalenesses)
        self._new_stalenesses = Histogram()


def _rates(steps_per_sec: float, examples_per_sec: float) -> tf.Summary:
    values = {"global_step/sec": steps_per_sec, "examples/sec": examples_per_sec}
    return tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
