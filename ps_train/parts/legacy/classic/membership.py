"""This process among the other tasks, in a script that makes its own `Server`.

    Server created --> first remote session: join --> the script trains --> the script ends: finish
                       the ps answer, claim, heartbeat                      no task waits for this one

There is at most one membership in a process: `current()`. A script may have the servers of several workers in one
process, often with those of the ps; then it joins as the first of them, and at its end reports that of the others.

A thread ends a worker whose script is inside TensorFlow, waiting for something that may never come:

    another process has its number       --> ClusterLostError
    its cluster differs from the others' --> ConfigError
    the chief's script has failed        --> ChiefFailedError, unless the script ends by itself first
    a ps, or in sync the chief, is lost  --> ClusterLostError, after the start time-out
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Collection
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.heartbeat import Heartbeat, WorkerProgress
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError, PsTrainError
from ps_train.graph.devices import task_of
from ps_train.parts.legacy.classic.trainings import ScriptTraining
from ps_train.runtime import reports, threads, waits
from ps_train.runtime.waits import Timeouts

SERVES_ONLY = -1  # instead of a worker's number of steps
_CHECK_SECS = 1.0
_LATE_JOIN_SECS = 10.0
_CHIEF_FAILED_SECS = 3.0  # for the script to end by itself
_FIRST_RETRYABLE_CODE = 128
_log = logging.getLogger(__name__)


class Membership:
    """A worker (or chief) that runs a user's script.

    Attributes:
      cluster: the cluster and this task in it.
      target: the address of this task's server.
      timeouts: the bounds of its waits.
      stop: ends every wait.
      board: its view of the blackboard; None before `join`.
      was_live: whether its last session found parameters that were in use.
      update_services: each a MemberRunner of updates.py, which the chief runs for synchronous training, or what else
        has to look at the other workers once a second. Those with `is_of_training` end with their training.
      is_sync: whether this worker waits for the chief's updates.
      training: that whose parameters are on the ps; None if this process has prepared or found none there.
      others: the numbers of further workers whose servers are in this process.
    """

    def __init__(
        self, cluster: Cluster, target: str, timeouts: Timeouts, end_process: Callable[[BaseException], None]
    ) -> None:
        """Sends nothing yet; `end_process` ends this process because of an error that the script cannot notice."""
        self.cluster, self.target, self.timeouts = cluster, target, timeouts
        self.stop = threading.Event()
        self.board: Blackboard | None = None
        self.was_live = False
        self.update_services: list[Any] = []
        self.is_sync = False
        self.others: set[int] = set()
        self._end_process = end_process
        self._heartbeat: Heartbeat | None = None
        self._answered_secs = self._chief_seen_secs = 0.0
        self._chief_failed_secs = math.inf
        self._progress = WorkerProgress()
        self.training: ScriptTraining | None = None
        # At the last `find_parameters`: the incarnations of the ps, and how many trainings came before.
        self._incarnations: tuple[int, ...] | None = None
        self._found_number = self._number = 0
        self._has_joined = False
        self._is_late = False  # it joins to report its end: it has trained without the ps
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()

    def join(self) -> Blackboard:
        """Makes this process the worker of its number, once; returns its view of the blackboard.

        Raises:
          ClusterLostError: a ps did not answer within the start time-out; the error names it.
          ConfigError: another process has the number, or the tasks were configured with different clusters.
        """
        with self._lock:
            if not self._has_joined:
                self._join()
                self._has_joined = True
            assert self.board is not None
            return self.board

    def _join(self) -> None:
        cluster, timeouts = self.cluster, self.timeouts
        agreement.check(cluster, timeouts.start_secs, self.stop)
        self.board = blackboard.for_worker(self.target, cluster, timeouts.heartbeat_secs)
        self._heartbeat = Heartbeat(
            self.board, cluster.task, cluster.worker_number, self._progress, self.stop, has_bound=True)
        with contextlib.closing(blackboard.for_client(cluster, timeouts.heartbeat_secs)) as visitor:
            self._heartbeat.claim(visitor, timeouts.start_secs)
        self._answered_secs = self._chief_seen_secs = time.monotonic()
        self._stack.enter_context(self._heartbeat.running())
        self._stack.enter_context(threads.repeating(self._check, period_secs=_CHECK_SECS, name="membership"))
        joined = reports.Joined(cluster.task.name, ", ".join(map(str, cluster.ps)))
        if not self._is_late:
            reports.send(joined, [joined.format()])
        _log.info("%s", joined.format())

    def join_as_server(self) -> None:
        """Joins as a worker that only serves, for a client in another task: nobody waits for its end.

        One that had a session before has trained, and takes no more steps.
        """
        has_trained = self._has_joined
        board = self.join()
        self._progress.local_steps = SERVES_ONLY
        if has_trained:
            with contextlib.suppress(BlackboardError):  # ps 0 has ended, and so has every wait for this task
                board.report_finished(self.cluster.worker_number)

    def find_parameters(self, training: ScriptTraining) -> bool:
        """Returns whether the parameters are in use already; then the chief must not overwrite them.

        Those of another training do not count: the chief creates new ones now. The first training of a chief is
        compared with the one that the process before it has announced.

        Raises:
          ClusterLostError: a ps did not answer within the start time-out.
        """
        is_live, self._incarnations, fingerprint = self._ask(
            lambda board: (board.is_prepared(), board.incarnations(), board.fingerprint()),
            f"an answer of {self._all_ps()}")
        before = self.training
        if before is not None:
            is_another = not (training.continues(before) if is_live else training.resembles(before))
        else:
            is_another = is_live and self.cluster.is_chief and training.is_another(fingerprint)
        self._found_number = self._number + int(is_another and before is not None)
        self.was_live = is_live and not is_another
        if self.was_live:
            self.training = before or training  # as an object, by which an outer session knows that it may save
            return True
        with contextlib.suppress(BlackboardError):  # only the messages of workers that wait say less then
            self.join().note_activity("runs the initialisation of its script")
        if before is not None and not is_another:
            training.warn_of_loss()
        if is_another:
            _log.info("the parameters on the ps are of another training; this one restores or initialises its own")
            self._end_updates()
        return False

    def _end_updates(self) -> None:
        """Ends those of the training before."""
        for service in [service for service in self.update_services if service.is_of_training]:
            service.conclude(waits_for_others=False, is_final=True)
            self.update_services.remove(service)

    def announce_prepared(self, training: ScriptTraining) -> None:
        """Announces that the chief has prepared them; raises BlackboardError if a ps has ended or has restarted."""
        fingerprint = training.fingerprint(self._found_number) if self.cluster.is_chief else ""
        self.join().start_run(fingerprint, self._incarnations)
        self.training, self._number = training, self._found_number

    def wait_until_prepared(self) -> None:
        """Waits until the chief has prepared the parameters.

        Raises:
          ClusterLostError: the start time-out is over, or the chief's script has failed.
        """
        awaited = f"{self.cluster.chief} (chief) to prepare {self._all_ps()}"
        self._ask(self._ask_whether_prepared, lambda: f"{awaited} ({self.join().describe_joined(self.cluster)})")
        self.was_live = True

    def _all_ps(self) -> str:
        return ", ".join(map(str, self.cluster.ps))

    def _ask_whether_prepared(self, board: Blackboard) -> bool:
        if board.state() == State.FAILED:
            raise ChiefFailedError
        return board.is_prepared()

    def _ask(self, ask: Callable[[Blackboard], Any], awaited: str | Callable[[], str]) -> Any:
        """Returns the first true answer; a ps that was lost may come back within the start time-out."""
        timeout_secs = self.timeouts.start_secs
        reachability.wait_for_tasks(self.cluster.ps, timeout_secs, self.stop)

        def answer() -> Any:
            try:
                return ask(self.join())
            except ChiefFailedError:
                raise
            except BlackboardError as error:
                _log.debug("%s", error)
                return None

        return waits.until(answer, timeout_secs, awaited, self.stop)

    def snapshot(self) -> Snapshot:
        """Returns what ps 0 knows of the workers."""
        return self.join().snapshot()

    def _check(self) -> None:
        """Ends this process if it waits, inside TensorFlow, for something that does not come."""
        try:
            self._check_heartbeat()
            for service in list(self.update_services):
                service.check()
            self._check_others()
        except Exception as error:  # noqa: BLE001 (of the chief's updates, in which the user's optimizer may raise anything)
            self._end_process(error)

    def _check_heartbeat(self) -> None:
        """Raises the error that this worker's heartbeat has noticed."""
        heartbeat, cluster = self._heartbeat, self.cluster
        if heartbeat.is_replaced:
            raise ClusterLostError(
                "worker_replaced", f"another process has replaced {cluster.task}, which had no heartbeat for "
                f"{self.timeouts.heartbeat_secs:g} s; this one ends")
        if heartbeat.last.mismatch:
            raise ConfigError("clusters_differ", heartbeat.last.mismatch)
        if heartbeat.last.state == State.FAILED and not cluster.is_chief:
            self._chief_failed_secs = min(self._chief_failed_secs, time.monotonic())
            if time.monotonic() - self._chief_failed_secs > _CHIEF_FAILED_SECS:
                raise ChiefFailedError

    def _check_others(self) -> None:
        """Raises ClusterLostError if a ps, or in sync the chief, has been lost for the start time-out."""
        start_secs, now_secs = self.timeouts.start_secs, time.monotonic()
        try:
            self.board.is_prepared()  # asks every ps
            snapshot = self.board.snapshot()
        except BlackboardError as error:
            if now_secs - self._answered_secs > start_secs:
                raise ClusterLostError(
                    "timed_out", f"waited {start_secs:g} s for an answer of {self._all_ps()}: {error}") from error
            return
        self._answered_secs = now_secs
        chief = self.cluster.chief
        if snapshot.is_alive(self.cluster.number_of(chief)) or not self.is_sync:
            self._chief_seen_secs = now_secs
        elif now_secs - self._chief_seen_secs > start_secs:
            raise ClusterLostError("timed_out", f"waited {start_secs:g} s for {chief} (chief), which makes the updates")

    def finish(self, code: int) -> None:
        """Leaves the cluster after the script, whose exit code this is; from 128 on, this worker may come back."""
        try:
            if code < _FIRST_RETRYABLE_CODE and not self._has_joined:
                self._join_late()
            if not self._has_joined:
                return
            self._report_end(code)
            for service in self.update_services:
                service.conclude(waits_for_others=code == 0, is_final=code == 0)
        except BlackboardError as error:
            _log.debug("ps 0 has ended, and with it every wait for this task: %s", error)
        finally:
            self._stack.close()
            if self.board is not None:
                self.board.close()

    def report_failure(self, code: int) -> None:
        """Reports to the others that this process ends in the middle of its script, with this exit code."""
        with contextlib.suppress(BlackboardError):  # ps 0 has ended, and so has every wait for this task
            if self._has_joined:
                self._report_end(code)

    def _join_late(self) -> None:
        """Joins for a script without a session: the others must learn of its end."""
        self.timeouts = Timeouts(start_secs=_LATE_JOIN_SECS, heartbeat_secs=self.timeouts.heartbeat_secs)
        self._is_late = True
        with contextlib.suppress(PsTrainError):
            self.join()

    def _report_end(self, code: int) -> None:
        assert self.board is not None
        if code >= _FIRST_RETRYABLE_CODE:
            return
        if code and self.cluster.is_chief:
            self.board.announce(State.FAILED)
        else:
            for worker in sorted({self.cluster.worker_number, *self.others}):
                self.board.report_finished(worker)

    def takes_in(self, other: Membership) -> bool:
        """Returns whether this membership stands for another worker, too, whose server is in the same process."""
        own_number, number = self.cluster.worker_number, other.cluster.worker_number
        is_first = self._has_joined or own_number < number
        if self.cluster.addresses != other.cluster.addresses or own_number == number or not is_first:
            return False
        self.others |= {number, *other.others}
        return True


class Serving(NamedTuple):
    """The ps that this process is; a script may open sessions there, too.

    Attributes:
      cluster: all tasks.
      timeouts: the bounds of its waits.
      stop: ends them.
    """

    cluster: Cluster
    timeouts: Timeouts
    stop: threading.Event


class Outside(NamedTuple):
    """The server of this process in a cluster without a ps or without workers, which nobody joins.

    Attributes:
      cluster: all tasks.
      target: the address of the server.
      timeouts: the bounds of its waits.
    """

    cluster: Cluster
    target: str
    timeouts: Timeouts


_current: list[Membership] = []
_serving: list[Serving] = []
_outside: list[Outside] = []
_has_remote = threading.Event()


def note_remote() -> None:
    """Notes that this process has a server, or a session with one, which it can lose."""
    _has_remote.set()


def can_lose() -> bool:
    """Returns whether this process has, or had, something of a cluster that it can lose."""
    return _has_remote.is_set() or bool(_current)


def current() -> Membership | None:
    """Returns the membership of this process, or None before its `Server` is created, and on a ps."""
    return _current[0] if _current else None


def current_training() -> ScriptTraining | None:
    """Returns the training whose parameters are on the ps; None if this process has prepared or found none there."""
    return _current[0].training if _current else None


def enter(membership: Membership) -> None:
    """Makes it that of this process, or adds its worker to the one that the process has."""
    before = current()
    if before is not None and before.takes_in(membership):
        return
    if before is not None:
        membership.takes_in(before)
    set_current(membership)


def set_current(membership: Membership | None) -> None:
    """Sets what `current` returns."""
    _current[:] = [membership] if membership else []


def serving_ps() -> Serving | None:
    """Returns the ps of this process, or None where it is none."""
    return _serving[0] if _serving else None


def set_serving(ps: Serving) -> None:
    """Sets what `serving_ps` returns."""
    _serving[:] = [ps]


def outside() -> Outside | None:
    """Returns the last server of this process that is outside of any training, or None."""
    return _outside[0] if _outside else None


def set_outside(server: Outside) -> None:
    """Sets what `outside` returns."""
    _outside[:] = [server]


def filters_of(graph: tf.Graph, cluster: Cluster) -> list[str]:
    """Returns the device filters of a session of this task; [] if the graph has no operation yet."""
    operations = graph.get_operations()
    if not operations:
        return []
    tasks = {task_of(device) for device in {operation.device for operation in operations}}
    # A job without a task, as `replica_device_setter` names the workers, is this task: a session that could see the
    # others would wait for one that has ended, and break with it.
    named = {f"/job:{job}" if index is None else f"/job:{job}/task:{index}" for job, index in tasks
             if job is not None and (job, index) != (cluster.job, None)}
    return sorted(named | {cluster.task.device} | {task.device for task in cluster.ps})


def with_filters(config: tf.ConfigProto | None, filters: Collection[str]) -> tf.ConfigProto:
    """Returns session options with the filters, unless the script has set some."""
    merged = tf.ConfigProto(allow_soft_placement=True)
    if config is not None:
        merged.CopyFrom(config)
    if not merged.device_filters:
        merged.device_filters.extend(filters)
    return merged
