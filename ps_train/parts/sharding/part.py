"""The part of dynamic sharding in a worker: its input comes from the queue of ranges on ps 0.

    train until the data ends --> report what is done --> a range is free             --> go on with it
                                                          others hold the last ranges --> chief: wait, others: leave
                                                          none is left                --> training is over
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.state import Finished, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError
from ps_train.graph import batches
from ps_train.part import Part
from ps_train.parts.readers import files
from ps_train.parts.sharding import position
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.local_ranges import QueueSource, RangeSettings
from ps_train.parts.sharding.position import PositionOps, PositionWriter
from ps_train.parts.sharding.range_queue import QueueState, RangeQueue
from ps_train.runtime import clock, waits
from ps_train.storage.merging_saver import SavedPart
from ps_train.tasks.setup import WorkerSettings
from ps_train.training.loop import Loop
from ps_train.training.reporting import End, Outcome
from ps_train.updates.update import Update

_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker
_log = logging.getLogger(__name__)


class ShardingPart(Part):
    """Dynamic sharding in one worker, over all its sessions."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns --dynamic_sharding."""
        return config.dynamic_sharding

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the epochs and the seed from the flags."""
        self._cluster, self._timeouts = cluster, config.timeouts
        follows = config.follow
        self._source = QueueSource(RangeSettings(1, None, follows) if follows else RangeSettings(
            config.num_epochs, config.seed or 0))
        self._idle_secs = config.follow_idle_secs or math.inf
        self._position: PositionOps | None = None  # of the graph
        self._rejoin_op: tf.Operation | None = None  # as well
        self._trainer: RangeTrainer | None = None

    def adjust(self, settings: WorkerSettings) -> WorkerSettings:
        """Returns the settings, without summaries of rounds."""
        # Such a summary takes a mini-batch that no step trains on, and so the examples would not count once.
        if settings.graph.updates.period.steps == 1 or not settings.loop.save_summaries_steps:
            return settings
        if self._cluster.is_chief:
            _log.info("--dynamic_sharding: no summaries are written with --communication_period, as they would take "
                      "examples that are not trained on")
        return settings._replace(loop=settings.loop._replace(save_summaries_steps=0))

    def around_task(self, stop: threading.Event) -> contextlib.AbstractContextManager:
        """Returns a context in which evaluations, too, treat the files as growing, if they are followed."""
        return files.growing() if self._source.settings.follows else contextlib.nullcontext()

    def begin_graph(self) -> None:
        """Lets the input take its ranges from the queue."""
        batches.set_source(self._source)

    def update(self, update: Update) -> Update:
        """Returns the update, in sync with notes on whose gradients were lost."""
        self._position = PositionOps(self._source.local, tf.train.get_global_step().device)
        if not update.verdict:
            return update
        self._rejoin_op = update.init.every_worker
        return update._replace(train_op=self._source.local.judge(update.train_op, *update.verdict))

    def saved_part(self) -> SavedPart:
        """Returns what writes the position."""
        return lambda session, folder, is_delta: PositionWriter(self._position, session, folder)

    def check_origin(self, path: str | None) -> None:
        """Checks that a checkpoint has a position in this data; see `check_position`."""
        if path is not None:
            position.check_position(path, self._source.local)

    @contextlib.contextmanager
    def at_server(self, connected: Any) -> Iterator[None]:
        """Returns a context with a connection to the queue."""
        settings, heartbeat_secs = self._source.settings, self._timeouts.heartbeat_secs
        with contextlib.closing(RangeQueue(connected.target, self._cluster, num_epochs=settings.num_epochs,
                                           seed=settings.seed, heartbeat_timeout_secs=heartbeat_secs)) as queue:
            queue.own_claim = connected.board.own_claim
            feeder = RangeFeeder(self._source.local, queue, self._cluster, connected.progress, heartbeat_secs)
            self._trainer = RangeTrainer(
                feeder, queue, self._cluster, connected, self._timeouts, settings.num_epochs,
                rejoin_op=self._rejoin_op, followed=self._followed())
            yield

    def _followed(self) -> Followed | None:
        growing = self._source.local.growing
        return Followed(", ".join(growing.patterns), self._idle_secs) if growing else None

    def status(self) -> Mapping[str, Any]:
        """Returns, in the chief, how fresh the training is, if it follows files that grow."""
        return {"freshness": self._trainer.freshness} if self._trainer and self._trainer.freshness else {}

    def after_restore(self, session: tf.Session, path: str) -> None:
        """Begins the queue, new or at the position in the checkpoint."""
        self._position.begin(session, path)

    def running(self, session: tf.Session, is_live: bool) -> contextlib.AbstractContextManager:
        """Returns a context in which the input is fed."""
        return self._trainer.feeding(session)

    def around_loop(self, loop: Loop, session: tf.Session) -> RangeLoop:
        """Returns a loop that trains until no range is left."""
        return RangeLoop(self._trainer, loop, session)


class Followed(NamedTuple):
    """Files that grow.

    Attributes:
      patterns: find them.
      idle_secs: training ends if nothing new came for so long.
    """

    patterns: str
    idle_secs: float


class RangeTrainer:
    """Trains one worker on ranges, in one session after the other.

    Every method raises tf.errors.UnavailableError, as of a lost session, if ps 0 does not answer.
    """

    def __init__(
        self, feeder: RangeFeeder, queue: RangeQueue, cluster: Any, connected: Any, timeouts: waits.Timeouts,
        num_epochs: int | None, *, rejoin_op: tf.Operation | None, followed: Followed | None,
    ) -> None:
        """Prepares it; nothing is sent yet.

        Args:
          connected: the `tasks.worker.ConnectedWorker`.
          rejoin_op: begins this worker's next step after others have made updates without it; None in async.
          followed: the files, if they grow.
        """
        self._feeder, self._queue, self._cluster = feeder, queue, cluster
        self._board, self._stop, self._graph = connected.board, connected.stop, connected.graph
        self._timeouts, self._num_epochs = timeouts, num_epochs
        self._rejoin_op, self._followed = rejoin_op, followed

    @property
    def freshness(self) -> Mapping[str, Any]:
        """What `Freshness` says, {} if the files do not grow."""
        return self._feeder.watch.freshness.status

    @contextlib.contextmanager
    def feeding(self, session: tf.Session) -> Iterator[None]:
        """Feeds the input of a session while its body runs."""
        try:
            self._start(session)
            yield
        finally:
            self._feeder.stop()

    def _start(self, session: tf.Session) -> None:
        with _as_lost_session():
            self._feeder.start(session)

    def train(self, loop: Loop, session: tf.Session) -> Outcome:
        """Runs the step loop of a session until training is over.

        Raises:
          ClusterLostError: workers that are alive hold ranges, and took no step within the time limit of one.
          ChiefFailedError: the chief's own code has failed.
          Exception: from `Loop.run`.
        """
        begin_secs = clock.now()
        outcome = loop.run()
        first_step, elapsed_secs = outcome.first_step, outcome.elapsed_secs
        while (end := self._end_after(session, outcome.end)) is None:
            self._restart_input(session)
            outcome = loop.run()
            elapsed_secs += outcome.elapsed_secs
        with contextlib.suppress(BlackboardError):
            if self._cluster.is_chief:
                self._log_progress(self._queue.state())
        waiting_secs = clock.now() - begin_secs - elapsed_secs
        return outcome._replace(first_step=first_step, elapsed_secs=elapsed_secs, end=end, waiting_secs=waiting_secs)

    def _end_after(self, session: tf.Session, end: End) -> End | None:
        """Reports what is done when the loop has ended; returns why training is over, or None if a range is free."""
        with _as_lost_session():
            self._feeder.settle(session, is_data_end=end is End.DATA)
            if end in (End.SIGNAL, End.HOOK):
                self._feeder.give_back()
            return self._wait_for_more(session) if end is End.DATA else end

    def _restart_input(self, session: tf.Session) -> None:
        """Lets the input go on with further ranges, after the data has ended for now."""
        options = tf.RunOptions(timeout_in_ms=int(self._timeouts.start_secs * 1000))
        sessions.run_bounded(session, self._graph.input.init_op, self._graph.input.feed, options=options)
        self._start(session)

    def _wait_for_more(self, session: tf.Session) -> End | None:
        """Waits until a range is free; returns None then, or why training is over."""
        if decision := self._decide():
            return decision.end
        # While it waits, no other worker waits for it: in an update, or because of the staleness bound.
        self._report(Finished.PAUSES)
        try:
            while (decision := self._decide()) is None:
                self._wait_for_change(session)
            if decision.end is None:
                self._return(session)
        except StoppedError:
            return End.SIGNAL
        return decision.end

    def _return(self, session: tf.Session) -> None:
        """Lets others wait for this worker again; synchronous updates would drop its gradients before they do."""
        if self._rejoin_op is None:
            # Before they wait for it: it joins the staleness bound where they are by now.
            sessions.run_bounded(session, self._graph.steps.join_op, options=_CALL)
            self._report(Finished.NO)
            return
        self._report(Finished.RETURNS)
        self._wait_until(lambda: not self._is_returning(),
                         lambda: f"{self._cluster.chief} to let updates wait for this worker again")
        sessions.run_bounded(session, self._rejoin_op, options=_CALL)

    def _is_returning(self) -> bool:
        snapshot = self._board.snapshot()
        return snapshot.finished[self._cluster.worker_number] == Finished.RETURNS and snapshot.state < State.STOPPING

    def _report(self, finished: Finished) -> None:
        self._board.report_finished(self._cluster.worker_number, finished)

    def _decide(self) -> _Decision | None:
        """Returns None while this worker has to wait."""
        queue, snapshot = self._queue.state(), self._board.snapshot()
        if snapshot.state == State.FAILED:
            raise ChiefFailedError
        if snapshot.state >= State.STOPPING:
            return _Decision(End.ANNOUNCED)
        if queue.has_free(self._num_epochs):
            return _Decision(None)
        if self._num_epochs is None:
            return None
        num_left = queue.num_left(self._num_epochs)
        if self._followed:
            is_idle = self._feeder.watch.idle_secs >= self._followed.idle_secs
            return _Decision(End.DATA) if self._cluster.is_chief and not num_left and is_idle else None
        # If a worker dies now, the chief trains on its ranges.
        is_left_to_others = not self._cluster.is_chief and num_left == sum(queue.holders().values())
        return _Decision(End.DATA) if not num_left or is_left_to_others else None

    def _wait_for_change(self, session: tf.Session) -> None:
        previous, start_secs = self._activity(), clock.now()

        def has_changed() -> bool:
            if self._cluster.is_chief:  # its saver may have closed the session, and saves only in a new one
                sessions.run_bounded(session, self._graph.steps.status, options=_CALL)
            self._feeder.look_around()
            return self._activity() != previous or self._decide() is not None or is_quiet()

        def is_quiet() -> bool:  # no worker is to take a step before there is new data, for which the chief looks
            return (self._followed is not None and clock.now() - start_secs > self._timeouts.step_secs / 2
                    and not self._queue.state().holders() and self._is_chief_here())

        self._wait_until(has_changed, self._awaited, "alive, but without a step; see the logs")

    def _wait_until(self, condition: Callable[[], bool], awaited: Callable[[], str], advice: str = "") -> None:
        """Waits as long as for a step."""
        try:
            waits.until(condition, self._timeouts.step_secs, awaited, self._stop, advice)
        except ClusterLostError as error:
            if self._rejoin_op is None:
                raise
            # As a step that waits too long. The answer to the chief's last update may be lost; a new session begins the
            # updates again.
            raise tf.errors.UnavailableError(None, None, str(error)) from error

    def _is_chief_here(self) -> bool:
        """Returns whether the chief has sent a heartbeat for as long as others wait for it at the start."""
        number = self._cluster.number_of(self._cluster.chief)
        return self._cluster.is_chief or self._board.snapshot().is_alive(number, self._timeouts.start_secs)

    def _activity(self) -> tuple:
        """Returns a value that changes with each step, and each range that is assigned or done."""
        queue, snapshot = self._queue.state(), self._board.snapshot()
        return queue.done.tobytes(), queue.owners.tobytes(), int(snapshot.local_steps.sum())

    def _awaited(self) -> str:
        try:
            holders = self._queue.state().holders()
        except BlackboardError:
            return f"{self._board.first_ps}"
        if holders or not self._followed:
            return ", ".join(f"{self._cluster.worker_name(worker)}, which holds {count} of the last ranges"
                             for worker, count in holders.items()) or "a range that is free"
        return f"new data in {self._followed.patterns}, for which {self._cluster.chief} looks"

    def _log_progress(self, queue: QueueState) -> None:
        if self._followed:
            _log.info("input: %d ranges of the data so far are not done", queue.num_left(1))
            return
        num_epochs, epoch = self._num_epochs, int(queue.done.min())
        of_all = f" of {num_epochs}" if num_epochs is not None else ""
        of_next = f", and {int((queue.done > epoch).sum())} of {len(queue.done)} ranges of the next"
        _log.info("input: %d%s epochs done%s", epoch, of_all, of_next if epoch != num_epochs else "")


class RangeLoop(NamedTuple):
    """Runs the step loop of one session until training is over."""

    trainer: RangeTrainer
    loop: Loop
    session: tf.Session

    def run(self) -> Outcome:
        """Returns how training has ended; see `RangeTrainer.train`."""
        return self.trainer.train(self.loop, self.session)


class _Decision(NamedTuple):
    """What a worker without ranges does: `end` says why training is over, None that a range is free."""

    end: End | None


@contextlib.contextmanager
def _as_lost_session() -> Iterator[None]:
    """Turns an error of a ps that does not answer into that of a lost session, which is then opened again."""
    try:
        yield
    except BlackboardError as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from error
