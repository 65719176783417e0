"""`Server`: TensorFlow's, which here checks its cluster and its port, and whose `join` ends with the training.

`replica_device_setter` balances the bytes on the ps, where TensorFlow's assigns variables in turn.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses as address_rules
from ps_train.cluster import ports, reachability
from ps_train.cluster.spec import CHIEF_JOBS, Cluster
from ps_train.errors import ConfigError, StoppedError
from ps_train.graph.devices import task_of
from ps_train.graph.placement import LeastBytes
from ps_train.parts.legacy.classic import ending, membership
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.parts.legacy.classic.ps_life import PsLife
from ps_train.parts.legacy.source import CLUSTER_VARIABLE
from ps_train.runtime import reports
from ps_train.runtime.threads import Call
from ps_train.runtime.waits import Timeouts
from ps_train.tasks.setup import session_threads

_POLL_SECS = 0.5
_JOIN_GRACE_SECS = 3.0  # for a ps whose script does not call `join` to end by itself
_TRAINING_JOBS = ("worker", *CHIEF_JOBS)
_log = logging.getLogger(__name__)
_tensorflow_setter = tf.train.replica_device_setter

Addresses = dict[str, dict[int, str]]


class Server(tf.train.Server):
    """`tf.compat.v1.train.Server` for a task that ends with the training.

    A ps serves until every worker's script has ended; then `join` returns. A worker claims its number before its first
    remote session, and sends heartbeats. A cluster without a job "ps" gets TensorFlow's own server.

    Raises:
      ConfigError: an address is malformed, or the port is in use.
    """

    # What a ps does when training is over and its script does not wait in `join`; `ps_train run` sets it.
    exits_after_join = False
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
        written = _written_addresses(server_or_cluster_def)
        cluster = _own_cluster(written, job_name, task_index)
        _check_addresses(cluster)
        ports.release_held_port()
        ports.check_port(cluster.task)
        super().__init__(tf.train.ClusterSpec(cluster.addresses), cluster.job, cluster.index, protocol or "grpc",
                         _server_config(config, cluster), start)
        self.cluster = cluster
        _remember(written, cluster.addresses)
        self._life: Call | None = None
        self._over = threading.Event()
        self._stop = threading.Event()
        self._enter_cluster()

    def _enter_cluster(self) -> None:
        if not self.cluster.ps:
            reports.send(reports.Joined(self.cluster.task.name, ""), [])
            return
        if not self.exits_after_join:
            ending.watch_imported_script(self._timeouts.stop_secs)
        if self.cluster.job == "ps":
            ending.on_stop(self._stop.set)
            self._life = Call(self._serve, "life of the ps")
        elif self.cluster.job in _TRAINING_JOBS:
            member = Membership(self.cluster, self.target, self._timeouts, ending.end_process)
            membership.set_current(member)

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
            assert self._life is not None
            self._life.join()
            self._life.result()
        except StoppedError as error:
            ending.report_failure(error)
            ending.leave(error.exit_code)
        except Exception as error:  # noqa: BLE001 (any error ends this process)
            ending.end_process(error)
        ending.leave(0)

    def join(self) -> None:
        """Returns when training is over: on a ps, when every worker's script has ended; on a worker, with the ps.

        Under `ps_train run` the process ends there, as code after `join` was never reached before.

        Raises:
          PsTrainError: the ps was not needed for the idle time-out, for example.
        """
        if self._life is not None:
            while not self._over.wait(_POLL_SECS):  # a bound, as Python handles signals between two waits
                pass
            self._life.join()
            self._life.result()
        elif self.cluster.job in _TRAINING_JOBS or self.cluster.ps:
            self._wait_for_the_end()
        if self.exits_after_join:
            raise SystemExit(0)

    def _wait_for_the_end(self) -> None:
        """Waits, on a worker that only serves (in-graph replication), until the ps or the first worker have ended."""
        member = membership.current()
        if member is not None:
            member.join_as_server()
        awaited = self.cluster.ps or [task for task in self.cluster.workers if task != self.cluster.task][:1]
        reachability.wait_for_tasks(awaited, self._timeouts.start_secs, threading.Event())
        stop = member.stop if member is not None else threading.Event()
        while any(reachability.accepts(task.address) for task in awaited) and not stop.wait(_POLL_SECS):
            pass


# As written in the script -> as the launcher gave it.
_moved: dict[str, str] = {}


def real_target(target: str) -> str:
    """Returns the target of a session, with the launcher's address instead of the one in the script."""
    scheme, separator, address = target.rpartition("://")
    return f"{scheme}{separator}{_moved.get(address, address)}"


def _remember(written: Addresses, real: Mapping[str, Mapping[int, str]]) -> None:
    for job, tasks in written.items():
        for index, address in tasks.items():
            if real.get(job, {}).get(index, address) != address:
                _moved[address] = real[job][index]


def _written_addresses(server_or_cluster_def: Any) -> Addresses:
    if isinstance(server_or_cluster_def, tf.train.ServerDef):
        server_or_cluster_def = server_or_cluster_def.cluster
    spec = tf.train.ClusterSpec(server_or_cluster_def)
    return {job: {index: spec.task_address(job, index) for index in spec.task_indices(job)} for job in spec.jobs}


def _own_cluster(written: Addresses, job_name: str | None, task_index: int | None) -> Cluster:
    """Returns the cluster with the launcher's addresses, if there is a launcher.

    Raises:
      ConfigError: the task is not in the cluster, or the launcher started another number of tasks.
    """
    real = dict(written)
    for job, hosts in json.loads(os.environ.get(CLUSTER_VARIABLE) or "{}").items():
        if job in written:
            if len(hosts) != len(written[job]):
                raise ConfigError(f"the script names {len(written[job])} tasks of job {job!r}, and the launcher "
                                  f"started {len(hosts)}; give --num_ps and --num_workers as in the script")
            real[job] = dict(enumerate(hosts))
    if job_name is None and len(real) == 1:  # as TensorFlow's class does
        job_name = next(iter(real))
    if task_index is None and len(real.get(job_name or "", {})) == 1:
        task_index = next(iter(real[job_name or ""]))
    if task_index is None or task_index not in real.get(job_name or "", {}):
        known = ", ".join(f"{job}:{index}" for job, tasks in real.items() for index in tasks)
        raise ConfigError(f"tf.train.Server: task {job_name}:{task_index} is not in the cluster; allowed: {known}")
    return Cluster(str(job_name), task_index, real)


def _check_addresses(cluster: Cluster) -> None:
    for job, tasks in cluster.addresses.items():
        for index, address in tasks.items():
            address_rules.parse_address(f"tf.train.Server: {job}:{index}", address)
    address_rules.refuse_duplicates(cluster.addresses)


def _server_config(config: tf.ConfigProto | None, cluster: Cluster) -> tf.ConfigProto:
    """Returns the options of the server: those of the script, or the share of the cores that ps_train gives a task."""
    merged = tf.ConfigProto()
    if config is not None and config.ByteSize():
        merged.CopyFrom(config)
    else:
        merged = session_threads(cluster)
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
                              merge_devices=merge_devices, cluster=cluster, ps_ops=ps_ops, ps_strategy=strategy)
