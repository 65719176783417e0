"""Reports the steps of a worker: progress lines, summaries, and how stale its updates were."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.runtime.periodic import Periodic
from ps_train.runtime.reports import Progress
from ps_train.training.reporting import Report
from ps_train.updates.staleness import Histogram


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
