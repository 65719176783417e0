"""The part of dynamic sharding in a worker: its input comes from the queue of ranges on ps 0."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph.input import file_ranges
from ps_train.part import Part
from ps_train.parts.sharding import position
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.local_ranges import QueueSource, RangeSettings
from ps_train.parts.sharding.position import PositionOps, PositionWriter
from ps_train.parts.sharding.range_loop import RangeLoop, RangeService
from ps_train.parts.sharding.range_queue import RangeQueue
from ps_train.storage.merging_saver import SavedPart
from ps_train.tasks.settings import WorkerSettings
from ps_train.training.loop import Loop
from ps_train.updates.update import Update

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
        self._source = QueueSource(RangeSettings(config.num_epochs, config.seed or 0))
        self._position: PositionOps | None = None  # of the graph
        self._service: RangeService | None = None

    def adjust(self, settings: WorkerSettings) -> WorkerSettings:
        """Returns the settings, without summaries of rounds."""
        # Such a summary takes a mini-batch that no step trains on, and so the examples would not count once.
        if settings.graph.updates.period.steps == 1 or not settings.loop.save_summaries_steps:
            return settings
        if self._cluster.is_chief:
            _log.info("--dynamic_sharding: no summaries are written with --communication_period, as they would take "
                      "examples that are not trained on")
        return settings._replace(loop=settings.loop._replace(save_summaries_steps=0))

    def begin_graph(self) -> None:
        """Lets the input take its ranges from the queue."""
        file_ranges.set_source(self._source)

    def update(self, update: Update) -> Update:
        """Returns the update, in sync with notes on whose gradients were lost."""
        self._position = PositionOps(self._source.local, tf.train.get_global_step().device)
        if not update.verdict:
            return update
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
        with contextlib.closing(RangeQueue(connected.target, self._cluster, **settings._asdict(),
                                           heartbeat_timeout_secs=heartbeat_secs)) as queue:
            feeder = RangeFeeder(self._source.local, queue, self._cluster, connected.progress, heartbeat_secs)
            self._service = RangeService(
                feeder, queue, self._cluster, connected, self._timeouts, settings.num_epochs)
            yield

    def prepared(self, session: tf.Session, path: str) -> None:
        """Begins the queue, new or at the position in the checkpoint."""
        self._position.begin(session, path)

    def running(self, session: tf.Session, is_live: bool) -> contextlib.AbstractContextManager:
        """Returns a context in which the input is fed."""
        return self._service.feeding(session)

    def around_loop(self, loop: Loop, session: tf.Session) -> RangeLoop:
        """Returns what trains until no range is left."""
        return RangeLoop(self._service, loop, session)
