"""The step loop: runs training steps until something ends them; knows no cluster."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import finite
from ps_train.beats import Beats
from ps_train.blackboard import ChiefFailedError, State
from ps_train.errors import UserCodeError
from ps_train.graph import TrainGraph
from ps_train.progress import End, Outcome, Progress

_MOST_SKIPPED = 100  # batches in a row: then it is not the batch
_log = logging.getLogger(__name__)


class Schedule(NamedTuple):
    """When the loop does what.

    Attributes:
      train_steps: global step at which training ends.
      batch_size: examples in a mini-batch.
      log_steps: local steps between progress lines, 0 for none.
      save_summaries_steps: local steps between summaries, 0 for none.
      step_timeout_secs: bound of one step.
      on_nan: "stop" or "skip", where a loss or gradient is not finite.
    """

    train_steps: int
    batch_size: int
    log_steps: int
    save_summaries_steps: int
    step_timeout_secs: float
    on_nan: str = "stop"


class Loop:
    """One worker's loop over one session."""

    def __init__(
        self,
        session: tf.Session,
        graph: TrainGraph,
        schedule: Schedule,
        stop: threading.Event,
        write_summary: Callable[[bytes | tf.Summary, int], None] | None,
        beats: Beats,
    ) -> None:
        """Prepares the loop.

        Args:
          stop: ends the loop after the step at hand.
          write_summary: takes a summary and its global step; None where this worker writes none.
          beats: is told each global step.
        """
        self._session = session
        self._graph = graph
        self._schedule = schedule
        self._stop = stop
        self._write_summary = write_summary
        self._beats = beats
        self._options = tf.RunOptions(timeout_in_ms=math.ceil(schedule.step_timeout_secs * 1000))
        self._train = [graph.update.train_op, graph.progress]
        self._local_steps = 0
        self._skipped_in_a_row = 0
        self._last_report = (0.0, 0, 0)

    def run(self) -> Outcome:
        """Trains until the end and says why it came.

        Raises:
          tf.errors.OpError: the session failed.
          ChiefFailedError: the chief's own code has failed.
        """
        first_step, state = self._run(self._graph.status)
        step = first_step
        start_secs = time.monotonic()
        self._last_report = (start_secs, first_step, 0)
        try:
            while (end := self._end(step, state)) is None:
                step, state = self._one_finite_step()
                self._beats.step = int(step)
        except tf.errors.OutOfRangeError:
            end = End.DATA
        return Outcome(end, int(first_step), int(step), self._local_steps, time.monotonic() - start_secs)

    def _end(self, step: int, state: int) -> End | None:
        if state == State.FAILED:
            raise ChiefFailedError
        if step >= self._schedule.train_steps:
            return End.STEPS
        if state >= State.STOPPING:
            return End.ANNOUNCED
        return End.SIGNAL if self._stop.is_set() else None

    def _one_finite_step(self) -> tuple[int, int]:
        """Runs one step; where its numbers are not finite, nothing of it reaches a ps.

        Raises:
          UserCodeError: so it is, and that is to stop training, or it is so again and again.
        """
        try:
            step, state = self._one_step()
        except tf.errors.InvalidArgumentError as error:
            found = finite.found_in(error)
            if found is None:
                raise
            self._skip(found, error)
            step, state = self._run(self._graph.status)
        else:
            self._skipped_in_a_row = 0
        return step, state

    def _skip(self, found: str, error: tf.errors.InvalidArgumentError) -> None:
        self._skipped_in_a_row += 1
        where = f"{self._beats.worker_name}, in the step after global step {self._beats.step}: {found}"
        if self._schedule.on_nan == "stop" or self._skipped_in_a_row > _MOST_SKIPPED:
            raise UserCodeError(f"{where}; nothing of it was applied. Look at that batch and at the model, lower "
                                "--learning_rate, or skip such batches with --on_nan=skip") from error
        _log.warning("%s; this batch is skipped", where)

    def _one_step(self) -> tuple[int, int]:
        """Runs one step, with what is due in it, and returns the global step and the training state after it."""
        logs = _is_due(self._local_steps + 1, self._schedule.log_steps)
        summarises = self._write_summary is not None and _is_due(
            self._local_steps, self._schedule.save_summaries_steps)
        if not logs and not summarises:
            _, (step, state) = self._run(self._train)
            self._local_steps += 1
            return step, state
        due = {"train": self._train, "loss": self._graph.loss}
        if summarises:
            due["summary"] = self._graph.summary_op
        fetched = self._run(due)
        self._local_steps += 1
        _, (step, state) = fetched["train"]
        self._report(int(step), float(fetched["loss"]), fetched.get("summary"), logs)
        return step, state

    def _run(self, fetches: Any) -> Any:
        return self._session.run(fetches, options=self._options)

    def _report(self, step: int, loss: float, summary: bytes | None, logs: bool) -> None:
        then_secs, then_step, then_local = self._last_report
        now_secs = time.monotonic()
        elapsed_secs = max(now_secs - then_secs, 1e-9)
        examples_per_sec = (self._local_steps - then_local) * self._schedule.batch_size / elapsed_secs
        steps_per_sec = (step - then_step) / elapsed_secs
        if summary is not None:
            self._write_summary(summary, step)
            self._write_summary(_rates(steps_per_sec, examples_per_sec), step)
        if logs:
            _log.info(Progress(step, self._schedule.train_steps, loss, steps_per_sec, examples_per_sec).format())
            self._last_report = (now_secs, step, self._local_steps)


def _is_due(step: int, period_steps: int) -> bool:
    return period_steps > 0 and step % period_steps == 0


def _rates(steps_per_sec: float, examples_per_sec: float) -> tf.Summary:
    values = {"global_step/sec": steps_per_sec, "examples/sec": examples_per_sec}
    return tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
