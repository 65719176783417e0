"""Trains until no range is left, and waits for ranges that other workers have in hand.

    train until the data ends --> report what is done --> a range is free          --> go on with it
                                                          others have the last ones --> chief: wait for them, else leave
                                                          none is left              --> training is over
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, StoppedError
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.range_queue import RangeQueue, Standing
from ps_train.runtime import waits
from ps_train.runtime.waits import Timeouts
from ps_train.training.loop import Loop
from ps_train.training.reporting import End, Outcome

_log = logging.getLogger(__name__)


class RangeService:
    """Dynamic sharding in one worker, at its server."""

    def __init__(
        self, feeder: RangeFeeder, queue: RangeQueue, cluster: Cluster, connected: Any, timeouts: Timeouts,
        num_epochs: int | None,
    ) -> None:
        """Prepares it; nothing is sent yet.

        Args:
          connected: the `tasks.connected_worker.ConnectedWorker`.
        """
        self._feeder, self._queue, self._cluster = feeder, queue, cluster
        self._board, self._stop, self._graph = connected.board, connected.stop, connected.graph
        self._timeouts, self._num_epochs = timeouts, num_epochs

    @contextlib.contextmanager
    def feeding(self, session: tf.Session) -> Iterator[None]:
        """Feeds the input of a session while its body runs.

        Raises:
          tf.errors.UnavailableError: ps 0 does not answer.
        """
        try:
            self._start(session)
            yield
        finally:
            self._feeder.stop()

    def _start(self, session: tf.Session) -> None:
        with _as_lost_session():
            self._feeder.start(session)

    def settle(self, session: tf.Session, end: End) -> None:
        """Reports what is done, when the loop has ended.

        Raises:
          tf.errors.UnavailableError: ps 0 does not answer.
        """
        with _as_lost_session():
            self._feeder.settle(session, is_data_end=end is End.DATA)
            if end in (End.SIGNAL, End.HOOK):
                self._feeder.give_back()

    def tell_progress(self) -> None:
        """Logs how far the input is, at the end of the chief's training."""
        with contextlib.suppress(BlackboardError):
            if self._cluster.is_chief:
                _log.info("%s", self._progress_line(self._queue.standing()))

    def wait_for_more(self) -> End | None:
        """Waits until a range is free; returns None then, or why training is over.

        Raises:
          ClusterLostError: workers that are alive have ranges in hand, and took no step within the time limit of one.
          ChiefFailedError: the chief's own code has failed.
          tf.errors.UnavailableError: ps 0 does not answer.
        """
        with _as_lost_session():
            if found := self._look():
                return found.end
            # While it waits, no other worker waits for it: in an update, or because of the staleness bound.
            self._board.report_finished(self._cluster.worker_number)
            try:
                while (found := self._look()) is None:
                    self._wait_for_change()
            except StoppedError:
                return End.SIGNAL
            if found.end is None:
                self._board.report_finished(self._cluster.worker_number, is_finished=False)
            return found.end

    def restart_input(self, session: tf.Session) -> None:
        """Lets the input go on with further ranges, after the data has ended for now."""
        options = tf.RunOptions(timeout_in_ms=int(self._timeouts.start_secs * 1000))
        sessions.run_bounded(session, self._graph.input.init_op, self._graph.input.feed, options=options)
        self._start(session)

    def _look(self) -> _Found | None:
        """Returns None while this worker has to wait."""
        standing, snapshot = self._queue.standing(), self._board.snapshot()
        if snapshot.state == State.FAILED:
            raise ChiefFailedError
        if snapshot.state >= State.STOPPING:
            return _Found(End.ANNOUNCED)
        if standing.has_free(self._num_epochs):
            return _Found(None)
        if self._num_epochs is None:
            return None
        num_left = standing.num_left(self._num_epochs)
        # If a worker dies now, the chief trains on its ranges.
        is_left_to_others = not self._cluster.is_chief and num_left == sum(standing.holders().values())
        return _Found(End.DATA) if not num_left or is_left_to_others else None

    def _wait_for_change(self) -> None:
        before = self._key()

        def has_changed() -> bool:
            self._feeder.release_silent()
            return self._key() != before or self._look() is not None

        waits.until(has_changed, self._timeouts.step_secs, self._holders, self._stop,
                    "alive, but without a step; see the logs")

    def _key(self) -> tuple:
        standing, snapshot = self._queue.standing(), self._board.snapshot()
        return standing.done.tobytes(), standing.owners.tobytes(), _steps(snapshot)

    def _holders(self) -> str:
        try:
            holders = self._queue.standing().holders()
        except BlackboardError:
            return f"{self._board.first_ps}"
        return ", ".join(f"{self._cluster.worker_name(worker)}, which has {count} of the last ranges in hand"
                         for worker, count in holders.items()) or "a range that is free"

    def _progress_line(self, standing: Standing) -> str:
        num_epochs, epoch = self._num_epochs, int(standing.done.min())
        of_all = f" of {num_epochs}" if num_epochs is not None else ""
        of_next = f", and {int((standing.done > epoch).sum())} of {len(standing.done)} ranges of the next"
        return f"input: {epoch}{of_all} epochs done{of_next if epoch != num_epochs else ''}"


class RangeLoop:
    """Runs the step loop of one session until training is over."""

    def __init__(self, service: RangeService, loop: Loop, session: tf.Session) -> None:
        self._service, self._loop, self._session = service, loop, session

    def run(self) -> Outcome:
        """Trains to the end and returns how it came; raises as `Loop.run` and `RangeService` do."""
        whole: Outcome | None = None
        while True:
            outcome = self._loop.run()
            whole = outcome if whole is None else outcome._replace(
                first_step=whole.first_step, elapsed_secs=whole.elapsed_secs + outcome.elapsed_secs)
            self._service.settle(self._session, outcome.end)
            end = self._service.wait_for_more() if outcome.end is End.DATA else outcome.end
            if end is not None:
                self._service.tell_progress()
                return whole._replace(end=end)
            self._service.restart_input(self._session)


class _Found(NamedTuple):
    """What a worker without ranges has found: why training is over, or None if a range is free."""

    end: End | None


@contextlib.contextmanager
def _as_lost_session() -> Iterator[None]:
    """Turns an error of a ps that does not answer into that of a lost session, which is then opened again."""
    try:
        yield
    except BlackboardError as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from error


def _steps(snapshot: Snapshot) -> int:
    return int(snapshot.local_steps.sum())
