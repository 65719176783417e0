"""`Server`: TensorFlow's, with checks of its cluster and its port, and with a `join` that ends with the training.

Nobody announces the end to a ps whose workers run scripts, so `PsLife` reads it from the workers:

    every worker has come, or its start time-out is over --+
    those that came have finished or died                  |
    the chief, whose updates the others need, has left   --+--> the ps ends with 0
    the chief's script has failed                            --> 138
    no worker was there for the idle time-out                --> 138; one that answers may still read its data

`replica_device_setter` balances the bytes on the ps, where TensorFlow's assigns variables in turn.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import re
import threading
import time
from collections.abc import Collection
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses as address_rules
from ps_train.cluster import ports, reachability
from ps_train.cluster.spec import CHIEF_JOBS, Cluster, Task
from ps_train.coordination import blackboard, sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError, StoppedError
from ps_train.graph.devices import task_of
from ps_train.graph.placement import LeastBytes
from ps_train.parts.legacy.classic import clients, ending, imported_script, membership
from ps_train.parts.legacy.classic.membership import SERVES_ONLY, Membership
from ps_train.parts.legacy.classic.placement import placed_types
from ps_train.parts.legacy.classic.script_cluster import addresses_of, launched_cluster, note_moved, sparse_jobs
from ps_train.runtime import reports, waits
from ps_train.runtime.threads import Call
from ps_train.runtime.waits import Reminder, Timeouts
from ps_train.tasks import ps
from ps_train.tasks.setup import session_threads

_POLL_SECS = 0.5
_LINGER_SECS = 1.0  # the last worker must get the answer to its report before the server ends
_FAILURE_SECS = 3.0  # each worker learns of it from one of its heartbeats
_LOOK_SECS = 5.0  # between two looks at the workers that have not joined
_SHARE_OF_GRACE = 0.9
_JOIN_GRACE_SECS = 3.0  # for a ps whose script does not call `join` to end by itself
_TRAINING_JOBS = ("worker", *CHIEF_JOBS)
# Of TensorFlow 1 with RDMA or MPI, and of DeepRec.
_OTHER_PROTOCOLS = re.compile(r"grpc\+.*|star_server(_lite)?")
_log = logging.getLogger(__name__)
_tensorflow_setter = tf.train.replica_device_setter


class Server(tf.train.Server):
    """`tf.compat.v1.train.Server` for a task that ends with the training.

    A ps serves until every worker's script has ended; then `join` returns. A worker claims its number before its first
    remote session, and sends heartbeats. A cluster without a job "ps", or without one that trains, gets TensorFlow's
    own server, which serves until the tasks that do not join have ended, or a signal ends it (clients.py).

    Raises:
      ConfigError: an address is malformed, or the port is in use.
    """

    exits_after_join = False  # whether the process of a ps ends with the training; `ps_train run` sets it
    default_timeouts = Timeouts()

    def __init__(
        self, server_or_cluster_def: Any, job_name: str | None = None, task_index: int | None = None,
        protocol: str | None = None, config: tf.ConfigProto | None = None, start: bool = True, *,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Starts the server. The positional parameters are those of TensorFlow's class.

        Args:
          timeouts: the bounds of this task's waits.
        """
        if isinstance(server_or_cluster_def, tf.train.ServerDef):
            job_name = job_name or server_or_cluster_def.job_name
            task_index = server_or_cluster_def.task_index if task_index is None else task_index
            config = config or server_or_cluster_def.default_session_config
        self._timeouts = timeouts or self.default_timeouts
        written = addresses_of(server_or_cluster_def)
        cluster = launched_cluster(written, job_name, task_index, sparse_jobs(server_or_cluster_def))
        for job, tasks in cluster.addresses.items():
            for index, address in tasks.items():
                address_rules.parse_address(f"tf.train.Server: {job}:{index}", address)
        cluster.refuse_duplicates()
        ports.release_held_port()
        ports.check_port(cluster.task)
        if protocol and _OTHER_PROTOCOLS.fullmatch(protocol):
            _log.info("tf.train.Server: protocol=%r is not in this TensorFlow; using 'grpc'", protocol)
            protocol = None
        super().__init__(tf.train.ClusterSpec(cluster.addresses), cluster.job, cluster.index, protocol or "grpc",
                         _server_config(config, cluster), start)
        self.cluster = cluster
        membership.note_remote()
        note_moved(written, cluster.addresses)
        self._life: Call | None = None
        self._over = threading.Event()
        self._stop = threading.Event()
        self._enter_cluster()

    @staticmethod
    def create_local_server(config: tf.ConfigProto | None = None, start: bool = True) -> Server:
        """Returns the server of a cluster of this process only; its job is "local" as in TensorFlow 1."""
        return Server({"local": ["localhost:0"]}, config=config, start=start)

    def _enter_cluster(self) -> None:
        if not (self.cluster.ps and self.cluster.workers):
            reports.send(reports.Joined(self.cluster.task.name, ""), [])
            membership.set_outside(membership.Outside(self.cluster, self.target, self._timeouts))
            return
        if not self.exits_after_join:
            imported_script.watch_end(self._timeouts.stop_secs)
        if multiprocessing.parent_process() is not None:  # a script that starts its tasks by itself
            ending.finish_with_child()
        if self.cluster.job == "ps":
            ending.on_stop(self._stop.set)
            membership.set_serving(membership.Serving(self.cluster, self._timeouts, self._stop))
            self._life = Call(self._serve, "life of the ps")
        elif self.cluster.job in _TRAINING_JOBS:
            membership.enter(Membership(self.cluster, self.target, self._timeouts, ending.end_process))

    def _serve(self) -> None:
        try:
            PsLife(self.cluster, self.target, self._timeouts, self._stop).run()
        finally:
            self._over.set()
            if self.exits_after_join:
                threading.Thread(target=self._end_without_join, daemon=True, name="end of the ps").start()

    def _end_without_join(self) -> None:
        """Ends the process of a ps whose script sleeps, or waits for something that no worker sends."""
        if not ending.script_ended.wait(_JOIN_GRACE_SECS):  # a script that has ended reports its error by itself
            self.leave()

    def leave(self) -> None:
        """Ends the process of this ps, when training is over."""
        try:
            self._wait_for_life()
        except StoppedError as error:
            ending.report_failure(error)
            ending.leave(error.exit_code)
        except Exception as error:  # noqa: BLE001 (any error ends this process)
            ending.end_process(error)
        ending.leave(0)

    def _wait_for_life(self) -> None:
        """Returns when this ps is no longer needed; raises what its `PsLife` has raised."""
        if self._life is not None:  # else it serves no workers
            self._life.join()
            self._life.result()

    def join(self) -> None:
        """Returns when training is over: on a ps, when every worker's script has ended; on a worker, with the ps.

        Under `ps_train run` the process ends there, as TensorFlow's `join` never returns.

        Raises:
          PsTrainError: no worker was there for the idle time-out, or a worker has lost its ps, for example.
        """
        if self._life is not None:
            while not self._over.wait(_POLL_SECS):  # a bound, as Python handles signals between two waits
                pass
            self._wait_for_life()
        elif self.cluster.workers and (self.cluster.job in _TRAINING_JOBS or self.cluster.ps):
            self._wait_for_the_end()
        else:
            self._serve_clients()
        if self.exits_after_join:
            raise SystemExit(0)

    def _serve_clients(self) -> None:
        """Waits, in a cluster of other jobs, until the tasks that came and did not join have ended; "ps" is no such."""
        own = self.cluster.task
        tasks = [Task(job, index, address) for job, addresses in self.cluster.addresses.items()
                 for index, address in addresses.items()]
        others = [task for task in tasks if task.job != "ps" and (task.job, task.index) != (own.job, own.index)]
        if not others and tf.get_default_graph().get_operations():
            return  # the only task, whose script was the client
        stop = threading.Event()
        ending.on_stop(stop.set)
        clients.wait_for_clients(own, others, stop, self._timeouts.heartbeat_secs)

    def _wait_for_the_end(self) -> None:
        """Waits, on a worker that only serves (in-graph replication), until the ps or the first worker have ended."""
        member = membership.current()
        if member is not None:
            member.join_as_server()
        awaited = self.cluster.ps or [task for task in self.cluster.workers if task != self.cluster.task][:1]
        reachability.wait_for_tasks(awaited, self._timeouts.start_secs, threading.Event())
        stop = member.stop if member is not None else threading.Event()
        watch = clients.ServedWatch(awaited, member, self._timeouts)
        while not watch.have_ended() and not stop.wait(_POLL_SECS):
            pass


class PsLife:
    """Serves until the workers' scripts have ended."""

    def __init__(self, cluster: Cluster, target: str, timeouts: Timeouts, stop: threading.Event) -> None:
        """Prepares it; `stop` makes it end as soon as no worker needs it."""
        self._cluster, self._target, self._timeouts, self._stop = cluster, target, timeouts, stop
        self._begun_secs = self._needed_secs = self._look_secs = time.monotonic()
        self._last: Snapshot | None = None  # of ps 0
        self._came: set[int] = set()  # the numbers of the workers that were there at any time
        self._awaited = "a worker"
        self._reminder = self._new_reminder()

    def run(self) -> None:
        """Serves until training is over.

        Raises:
          ClusterLostError: the chief's script failed, or no worker was there for the idle time-out.
          ConfigError: two tasks were configured with different clusters.
          StoppedError: a signal asked it to stop.
        """
        heartbeat_secs = self._timeouts.heartbeat_secs
        with contextlib.ExitStack() as stack:
            board = stack.enter_context(contextlib.closing(
                blackboard.for_ps(self._target, self._cluster, heartbeat_secs)))
            stack.enter_context(ps.running_clock(board))

            @functools.cache  # an error is not cached: ps 0 may answer later
            def find_first() -> Blackboard:
                if self._cluster.index == 0:
                    return board
                return stack.enter_context(contextlib.closing(
                    blackboard.for_first_ps(board, self._cluster, heartbeat_secs)))

            # Its own server may be slow once, as everything is at the start of many tasks on one machine.
            waits.until(lambda: sessions.if_answered(lambda: [board.create()]), self._timeouts.idle_secs,
                        f"an answer of {self._cluster.task}", self._stop)
            while not self._is_over(board, find_first):
                if self._stop.wait(_POLL_SECS):
                    self._serve_the_last_save(find_first)
                    raise StoppedError("stopped", "stopped while serving")
            self._stop.wait(_LINGER_SECS)

    def _is_over(self, board: Blackboard, find_first) -> bool:
        try:
            if mismatch := board.mismatch():
                raise ConfigError("clusters_differ", mismatch)
            snapshot = self._snapshot(find_first)
        except BlackboardError as error:
            _log.debug("%s", error)
            self._check_needed(has_workers=False, reason=f" ({error})")
            return False
        if snapshot is None:
            return True
        if snapshot.state == State.FAILED:
            self._stop.wait(_FAILURE_SECS)
            raise ChiefFailedError
        has_workers = bool(snapshot.alive())
        if not has_workers and self._is_one_coming(snapshot):
            self._needed_secs = time.monotonic()
        self._check_needed(has_workers=has_workers)
        return self._have_all_ended(snapshot)

    def _is_one_coming(self, snapshot: Snapshot) -> bool:
        """Returns whether no worker has joined, and one answers: its script may read data before its first session."""
        now_secs = time.monotonic()
        if now_secs < self._look_secs or snapshot.claims.any():  # each worker that is not there may cost seconds
            return False
        self._look_secs = now_secs + min(_LOOK_SECS, self._timeouts.idle_secs / 4)
        return any(reachability.accepts(task.address) for task in self._cluster.workers
                   if not self._stop.is_set() and not snapshot.finished[self._cluster.number_of(task)])

    def _snapshot(self, find_first) -> Snapshot | None:
        """Returns the snapshot of ps 0, or None if ps 0 has ended, which it does only after the workers."""
        first = find_first()
        if not reachability.accepts(first.first_ps.address):
            # Training continues if ps 0 was killed and comes back: the workers wait for it for the start time-out.
            is_recent = time.monotonic() - self._needed_secs <= self._timeouts.heartbeat_secs
            if self._last is None or is_recent or self._running(self._last):
                self._awaited = str(first.first_ps)
                raise BlackboardError("ps_unreachable", f"{first.first_ps} does not answer")
            _log.info("ps:0 has ended, so this ps ends too")
            return None
        self._last = first.snapshot()
        return self._last

    def _running(self, last: Snapshot, among: Collection[int] | None = None) -> Task | None:
        """Returns a worker that still answers, and whose script had not ended by the last snapshot of ps 0, if any.

        Args:
          among: the numbers of the workers in question; None for all.
        """
        numbers = {self._cluster.number_of(task): task for task in self._cluster.workers}
        return next((task for number, task in numbers.items() if among is None or number in among
                     if not last.finished[number] and last.local_steps[number] != SERVES_ONLY
                     and reachability.accepts(task.address)), None)

    def _check_needed(self, *, has_workers: bool, reason: str = "") -> None:
        now_secs = time.monotonic()
        if has_workers:
            self._needed_secs = now_secs
            self._reminder = self._new_reminder()
        elif now_secs - self._needed_secs > self._timeouts.idle_secs:
            raise ClusterLostError("no_workers", f"no worker was there for {self._timeouts.idle_secs:g} s "
                                   f"(--idle_timeout_secs){reason}; were they ended, or never started?")
        else:
            self._reminder.remind()

    def _new_reminder(self) -> Reminder:
        return Reminder(lambda: self._awaited, self._timeouts.idle_secs)

    def _have_all_ended(self, snapshot: Snapshot) -> bool:
        workers = {*map(self._cluster.number_of, self._cluster.workers)}
        expected = {worker for worker in workers if snapshot.local_steps[worker] != SERVES_ONLY}
        finished = {worker for worker in workers if snapshot.finished[worker]}  # also those that joined after training
        came = {worker for worker in expected if snapshot.finished[worker] or snapshot.claims[worker]}
        self._came |= came  # one that was stopped has given up its claim
        is_late = time.monotonic() - self._begun_secs > self._timeouts.start_secs
        # The chief reports its end before that of the updates which it makes for the others, and leaves after it.
        chief = self._cluster.number_of(self._cluster.chief)
        is_there = expected & set(snapshot.alive()) - (finished - {chief})
        self._awaited = ", ".join(map(self._cluster.worker_name, sorted(expected - came))) or "a worker"
        if not finished or is_there or not (came == expected or is_late):
            return False
        # One that was started again has its server before its first session, and may read its data for long in between.
        # One that never came has had its start time-out: its script may only sleep, as a server.
        if (running := self._running(snapshot, self._came)) is not None:
            self._awaited = str(running)
            return False
        _log.info("every worker has ended%s; this ps ends",
                  "" if finished >= expected else ", or was lost: " + ", ".join(
                      self._cluster.worker_name(worker) for worker in sorted(expected - finished)))
        return True

    def _serve_the_last_save(self, find_first) -> None:
        """Waits until no worker is alive, or the grace period is nearly over, as the chief saves."""
        end_secs = time.monotonic() + self._timeouts.stop_secs * _SHARE_OF_GRACE
        while time.monotonic() < end_secs:
            try:
                snapshot = self._snapshot(find_first)
            except BlackboardError:
                snapshot = None
            if snapshot is None or not snapshot.alive():
                return
            time.sleep(_POLL_SECS)


def _server_config(config: tf.ConfigProto | None, cluster: Cluster) -> tf.ConfigProto:
    """Returns the options of the server: those of the script, or the share of the cores that ps_train gives a task."""
    merged = session_threads(cluster)
    if config is not None and config.ByteSize():
        merged.CopyFrom(config)
    if cluster.job == "ps":
        merged.device_count["GPU"] = 0
    return merged


def replica_device_setter(
    ps_tasks: int = 0, ps_device: str = "/job:ps", worker_device: str = "/job:worker", merge_devices: bool = True,
    cluster: Any = None, ps_ops: Any = None, ps_strategy: Callable[[tf.Operation], int] | None = None,
) -> Any:
    """Returns a device function; the parameters are those of `tf.compat.v1.train.replica_device_setter`.

    Args:
      ps_strategy: by default each variable goes to the ps with the fewest bytes so far. Every worker must create its
        variables in the same order, as with TensorFlow's.
    """
    if cluster is not None:
        job = task_of(ps_device)[0] or "ps"
        ps_tasks = len(tf.train.ClusterSpec(cluster).as_dict().get(job, ()))
    strategy = ps_strategy or (LeastBytes(ps_tasks) if ps_tasks else None)
    return _tensorflow_setter(ps_tasks=ps_tasks, ps_device=ps_device, worker_device=worker_device,
                              merge_devices=merge_devices, cluster=cluster, ps_ops=placed_types(ps_ops),
                              ps_strategy=strategy)
