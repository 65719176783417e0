"""A worker at a server: its blackboard, its heartbeat, and its training over all sessions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard, fingerprint
from ps_train.coordination.heartbeat import Heartbeat, WorkerProgress
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError, StoppedError
from ps_train.runtime import logs, waits
from ps_train.storage.folder_lock import FolderLock
from ps_train.storage.journal import Journal
from ps_train.tasks.settings import WorkerSettings
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import loop, recovery
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import Outcome, Report


class PreparedWorker(NamedTuple):
    """A worker before its server starts; what its parts see of it.

    Attributes:
      settings: of the worker.
      cluster: the cluster, and which of its tasks this is.
      plugins: the model and the dataset.
      graph: the finished training graph.
      journal: of the chief; that of another worker keeps nothing.
      stop: ends every wait and the training.
    """

    settings: WorkerSettings
    cluster: Cluster
    plugins: LoadedPlugins
    graph: TrainGraph
    journal: Journal
    stop: threading.Event


class ConnectedWorker:
    """What a worker needs to train with the others, at its server.

    Attributes:
      target: address of its server.
      graph: the finished training graph.
      board: its view of the blackboard.
      progress: how far it is.
      heartbeat: its sign of life.
      supervised: its training, over all its sessions.
      schedule: when its step loop does what.
      stop: ends every wait and the training.
    """

    def __init__(self, task: PreparedWorker, target: str, lock: FolderLock | None = None) -> None:
        """Prepares everything; nothing is sent yet.

        Args:
          target: address of the server whose sessions these are, such as `grpc://localhost:2223`.
          lock: of the train_dir, which the chief holds.
        """
        settings, cluster, graph, stop = task.settings, task.cluster, task.graph, task.stop
        self._settings, self._cluster, self.stop = settings, cluster, stop
        self.target = target
        self.graph = graph
        self.schedule = settings.loop
        self.board = blackboard.for_worker(target, cluster, settings.timeouts.heartbeat_secs)
        self.progress = WorkerProgress()
        logs.find_step_with(lambda: self.progress.step)
        self.heartbeat = Heartbeat(self.board, cluster.task, cluster.worker_number, self.progress, stop,
                                   has_bound=not settings.server.is_existing)
        self._fingerprint = fingerprint.describe(
            cluster, settings.identity.shared_flags, graph.savers.variables, graph.update.dense.packed.places(),
            graph.rows.fingerprint(), settings.train_dir if cluster.is_chief else "")
        self.supervised = recovery.SupervisedTraining(
            cluster, target, graph, self.board, self.heartbeat, self.progress, settings.sessions, stop=stop, lock=lock,
            journal=task.journal, own_fingerprint=self._fingerprint)

    def claim_number(self) -> None:
        """Makes this process the worker of its number; see `Heartbeat.claim`."""
        settings, cluster = self._settings, self._cluster
        start_secs = settings.timeouts.start_secs
        agreement.check(cluster, start_secs, self.stop, existing_servers=settings.server.is_existing)
        with contextlib.closing(blackboard.for_client(cluster, settings.timeouts.heartbeat_secs)) as visitor:
            # Before the claim, which reads the steps that the worker took before: a chief that begins another training
            # clears them first, then writes its fingerprint.
            (theirs,) = waits.until(lambda: _answered(visitor.fingerprint), start_secs,
                                    f"the blackboard on {visitor.first_ps}", self.stop)
            self.heartbeat.claim(visitor, start_secs)
            if theirs and fingerprint.differences(theirs, self._fingerprint, their_name="the ps"):
                self.progress.local_steps = 0  # those on the ps were taken in another training

    def loop(
        self, session: tf.Session, write_summary: Callable | None, *, report: Report | None = None,
        run_step: loop.RunStep | None = None,
    ) -> loop.Loop:
        """Returns the step loop over a session, with what parts do around it; see `Loop` for the arguments."""
        steps = loop.Loop(session, self.graph, self.schedule, self.progress, stop=self.stop,
                          write_summary=write_summary, report=report, run_step=run_step)
        return self.graph.parts.around_loop(steps, session)

    def train(self, train_once: recovery.Body) -> Outcome:
        """Returns `train_once(session, write_summary)` of the first session that is not lost.

        Raises:
          ClusterLostError: the cluster did not come back, or another process has taken the place of this one.
          ConfigError: two tasks have different clusters.
          StoppedError: stopped while waiting.
        """
        with self.raising_stop_reason():
            return self.supervised.run(train_once)

    def raising_stop_reason(self) -> Any:
        """Returns a context that raises why its body was stopped, if the reason was not a signal; as `train` does."""
        return _raising_stop_reason(self._cluster, self.heartbeat, self._settings.timeouts.heartbeat_secs)

    def close(self) -> None:
        """Closes the connection to the blackboard."""
        self.board.close()


def _answered(ask: Callable[[], str]) -> tuple[str] | None:
    """Returns what `ask()` returns, or None if the blackboard does not answer."""
    try:
        return (ask(),)
    except BlackboardError:
        return None


@contextlib.contextmanager
def _raising_stop_reason(cluster: Cluster, heartbeat: Heartbeat, timeout_secs: float) -> Iterator[None]:
    """Raises why training stopped if the reason was not a signal, however the body ended.

    Raises:
      ClusterLostError: another process has taken the place of this one.
      ConfigError: two tasks have different clusters.
    """
    ended: StoppedError | None = None
    try:
        yield
    except StoppedError as error:
        ended = error
    if heartbeat.is_replaced:
        raise ClusterLostError("worker_replaced", f"another process has taken the place of {cluster.task}, which sent "
                               f"no heartbeat for {timeout_secs:g} s; this one ends") from ended
    if heartbeat.mismatch:
        raise ConfigError("clusters_differ", heartbeat.mismatch) from ended
    if ended:
        raise ended
