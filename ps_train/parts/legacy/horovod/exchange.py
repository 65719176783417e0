"""Exchanges values between all workers, by way of ps 0: what `hvd.allreduce` and the like are made of.

    each worker   write its value and the number of its round to ps 0 --> notify the others
                  wait until each worker that is there has written this round --> read the values

Values of one name belong together, whatever else the workers exchange meanwhile. A value of the last round stays until
the next but one, so a slower worker can still read it. Nobody waits for a worker that has died or finished. One that
comes back has lost count of its rounds, so it is refused.
"""

from __future__ import annotations

import functools
import logging
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError
from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.runtime.waits import Reminder
from ps_train.updates.sync.aggregation import Condition
from ps_train.updates.sync.runner import Quorum
from ps_train.updates.update import RUN_OPTIONS, SyncSettings

_log = logging.getLogger(__name__)
_TensorFlowSession = tf.Session  # a script's own is replaced by one that prepares its training


class Exchange:
    """The values that this worker exchanges with the others."""

    def __init__(self, member: Membership) -> None:
        """Takes the membership of this worker; the first value joins the cluster."""
        self._member = member
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}

    def values(self, name: str, value: Any) -> list:
        """Returns the values of all workers that are there, by rank, once each of them has called this.

        Args:
          name: the name of the value, the same on all workers.
          value: an array or another object; it is pickled.

        Raises:
          ConfigError: this worker has come back to a training in which values are exchanged.
          ClusterLostError: ps 0 was lost.
        """
        with self._lock:
            if name not in self._channels:
                self._channels[name] = _Channel(self._member, name)
                self._member.update_services.append(self._channels[name])
        return self._channels[name].exchange(value)


class _Channel:
    """The values of one name. The membership calls `check` once a second."""

    is_of_training = False  # a script with several trainings goes on with its rounds

    def __init__(self, member: Membership, name: str) -> None:
        self._member, self._name = member, name
        self._number, self._size = member.cluster.worker_number, member.cluster.num_workers
        self._round = 0
        self._quorum = Quorum(SyncSettings(self._size, self._size))
        self._quorum.expect(member.timeouts.start_secs)
        self._awaited = frozenset(range(self._size)) - {self._number}
        self._reminder: Reminder | None = None
        member.join()
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(member.cluster.ps[0].device):
            self._build()
        self._session = _TensorFlowSession(member.target, graph=self._graph, config=membership.with_filters(
            None, membership.filters_of(self._graph, member.cluster)))
        if self._session.run(self._last_round) >= 0:
            raise ConfigError(
                "horovod_worker_returned", f"{member.cluster.task} has come back to a training whose workers exchange "
                f"values ({name}), and cannot tell which values are next; start all tasks again: they continue from "
                "the last checkpoint")
        self._write_awaited()

    def _build(self) -> None:
        """Builds the operations, on ps 0."""
        numbers = range(self._size)
        rounds = [self._handle("round", number, tf.int64) for number in numbers]
        # As bytes: TensorFlow copies a string more often on its way.
        values = [[self._handle(f"value_{parity}", number, tf.uint8, [None]) for number in numbers]
                  for parity in range(2)]
        awaited = self._handle("awaited", self._number, tf.bool, [self._size])
        conditions = [Condition(f"ps_train/horovod/{self._name}/condition/{number}", self._member.cluster.ps[0].device)
                      for number in numbers]
        self._in_round = tf.placeholder(tf.int64, [])
        self._in_value = tf.placeholder(tf.uint8, [None])
        self._in_awaited = tf.placeholder(tf.bool, [self._size])

        def must_wait() -> tf.Tensor:
            is_late = tf.stack([_round_in(handle) for handle in rounds]) < self._in_round
            return tf.reduce_any(is_late & tf.raw_ops.ReadVariableOp(resource=awaited, dtype=tf.bool))

        self._write = []
        for parity in range(2):
            written = tf.raw_ops.AssignVariableOp(resource=values[parity][self._number], value=self._in_value)
            with tf.control_dependencies([written]):
                counted = tf.raw_ops.AssignVariableOp(resource=rounds[self._number], value=self._in_round)
            with tf.control_dependencies([counted]):
                self._write.append(tf.group(*(condition.notify() for condition in conditions)))
        self._last_round = _round_in(rounds[self._number])
        self._all_rounds = tf.stack([_round_in(handle) for handle in rounds])
        self._wait = conditions[self._number].wait_while(must_wait)
        self._read = [[tf.raw_ops.ReadVariableOp(resource=one, dtype=tf.uint8) for one in values[parity]]
                      for parity in range(2)]
        with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=awaited, value=self._in_awaited)]):
            self._await = conditions[self._number].notify()

    def _handle(self, kind: str, number: int, dtype: Any, shape: Sequence[int | None] = ()) -> tf.Tensor:
        return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, container="",
                                      shared_name=f"ps_train/horovod/{self._name}/{kind}/{number}")

    def exchange(self, value: Any) -> list:
        """Returns the values of this round."""
        parity, feed = self._round % 2, {self._in_round: self._round}
        pickled = np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8)
        self._reminder = Reminder(self._describe)
        try:
            self._session.run(self._write[parity], {**feed, self._in_value: pickled})
            self._session.run(self._wait, feed)
            came = np.flatnonzero(self._session.run(self._all_rounds) >= self._round)
            found = self._session.run([self._read[parity][number] for number in came])
        except tf.errors.OpError as error:
            raise ClusterLostError("ps_unreachable", f"lost {self._member.cluster.ps[0]} while the workers exchanged "
                                   f"{self._name}") from error
        finally:
            self._reminder = None
        if not self._round:  # those that are there have come, so one that dies is not awaited as if it were still to
            self._quorum.expect(0.0)
        self._round += 1
        return [pickle.loads(each) for each in found]

    def _describe(self) -> str:
        names = ", ".join(map(self._member.cluster.worker_name, sorted(self._awaited)))
        return f"a value of {names} for {self._name}: each worker must exchange it equally often"

    def check(self) -> None:
        """Lets this worker wait for those that are there only."""
        if (reminder := self._reminder) is None:
            return
        reminder.remind()
        try:
            members = self._quorum.check(self._member.snapshot(), self._number).members
        except BlackboardError as error:
            _log.debug("ps 0 did not say who is there: %s", error)
            return
        if members - {self._number} != self._awaited:
            self._awaited = members - {self._number}
            self._write_awaited()

    def _write_awaited(self) -> None:
        mask = np.isin(np.arange(self._size), list(self._awaited))
        sessions.run_bounded(self._session, self._await, {self._in_awaited: mask}, options=RUN_OPTIONS)

    def conclude(self, *, waits_for_others: bool, is_final: bool) -> None:
        """Closes the session, when the script has ended; the arguments are those of `MemberRunner`."""
        sessions.close_in_background(self._session)


def _round_in(handle: tf.Tensor) -> tf.Tensor:
    """Returns the last round that a worker has written, -1 before its first."""
    return tf.cond(tf.raw_ops.VarIsInitializedOp(resource=handle),
                   lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64),
                   lambda: tf.constant(-1, tf.int64))


def mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the mean, of the same dtype if that is one of floats, else float64."""
    total = functools.reduce(np.add, values)
    return total / np.asarray(len(values), total.dtype if np.issubdtype(total.dtype, np.floating) else np.float64)


REDUCTIONS = {
    "Average": mean,
    "Sum": lambda values: functools.reduce(np.add, values),
    "Min": lambda values: functools.reduce(np.minimum, values),
    "Max": lambda values: functools.reduce(np.maximum, values),
    "Product": lambda values: functools.reduce(np.multiply, values),
}
