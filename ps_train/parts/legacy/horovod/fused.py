"""Exchanges the values of operations in a graph, all that are there at once: Horovod calls it tensor fusion.

    submit   an operation leaves its value, and waits in a queue of this worker, which takes no thread of TensorFlow
    a round  a thread exchanges all values that were left (exchange.py) --> those that all workers left are done
    take     the next operation combines the values of all workers

Without it, each operation would keep one of TensorFlow's threads until the other workers came to the same one, and two
workers with two threads each could wait for ever, for different ones.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import PsTrainError
from ps_train.parts.legacy.classic import ending, membership
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.parts.legacy.horovod.exchange import Exchange
from ps_train.runtime.waits import Reminder

_CHANNEL = "values of the graph"
_PAUSE_SECS = 0.02  # after a round in which nothing was common
_MOST_STEPS = 1024  # of one operation that are under way at once
_TensorFlowSession = tf.Session  # a script's own is replaced by one that prepares its training
_Key = tuple[str, int]  # the name of a value, and how many of that name this worker has left before


class FusedExchange:
    """What the graphs of this process exchange."""

    def __init__(self, member: Membership, exchange: Exchange) -> None:
        """Takes the membership of this worker and its exchange; nothing runs before the first value."""
        self._member, self._exchange = member, exchange
        self._changed = threading.Condition()
        self._left: dict[_Key, np.ndarray] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._done: dict[str, collections.deque] = collections.defaultdict(collections.deque)
        self._thread: threading.Thread | None = None
        self._wakes: dict[str, tf.Operation] = {}
        self._graph = tf.Graph()
        self._session: tf.Session | None = None

    def operation(self, tensor: tf.Tensor, name: str, combine: Callable[[list], Any], dtype: Any) -> tf.Tensor:
        """Returns a tensor that is made of all workers' values.

        Args:
          tensor: this worker's value.
          name: the same on all workers.
          combine: list of the workers' arrays, by rank -> array.
          dtype: of the result.
        """
        def leave(value: np.ndarray) -> None:
            self._leave(name, value)

        def take() -> np.ndarray:
            try:
                return np.asarray(combine(self._take(name)), tf.as_dtype(dtype).as_numpy_dtype)
            except PsTrainError as error:
                _end_for(error)
                raise

        with tf.control_dependencies([tf.py_func(leave, [tensor], [])]), tf.device(self._member.cluster.task.device), \
                tf.container(""):  # not that of a Keras script's graph: `_wake` uses the queue, too
            woken = _queue_of(name).dequeue()
        with tf.control_dependencies([woken]):
            return tf.py_func(take, [], dtype, name=name.partition("/")[0])

    def _leave(self, name: str, value: np.ndarray) -> None:
        with self._changed:
            self._left[name, self._counts[name]] = value
            self._counts[name] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="fused exchange")
                self._thread.start()
            self._changed.notify_all()

    def _take(self, name: str) -> list[np.ndarray]:
        with self._changed:
            outcome = self._done[name].popleft()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _run(self) -> None:
        """Exchanges what is there, for ever."""
        reminder: Reminder | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left)
                own = dict(self._left)
            outcomes = self._exchange_once(own)
            if outcomes:
                reminder = None
                self._settle(outcomes)
                continue
            reminder = reminder or Reminder(lambda own=own: f"the other workers to exchange {_names(own)}, too")
            reminder.remind()
            with self._changed:
                self._changed.wait_for(lambda own=own: len(self._left) > len(own), _PAUSE_SECS)

    def _exchange_once(self, own: Mapping[_Key, np.ndarray]) -> dict[_Key, Any]:
        """Returns key -> the values of all workers, by rank, or an error; only of those that all workers left."""
        try:
            everyone = self._exchange.values(_CHANNEL, own)
        except Exception as error:  # noqa: BLE001 (raised again by the operations that wait)
            _end_for(error)
            return dict.fromkeys(own, error)
        return {key: [others[key] for others in everyone] for key in own
                if all(key in others for others in everyone)}

    def _settle(self, outcomes: Mapping[_Key, Any]) -> None:
        """Wakes the operations whose outcomes are known."""
        with self._changed:
            for (name, number), outcome in outcomes.items():
                del self._left[name, number]
                self._done[name].append(outcome)
        self._wake([name for name, _ in outcomes])

    def _wake(self, names: Sequence[str]) -> None:
        with self._graph.as_default(), tf.device(self._member.cluster.task.device):
            for name in names:
                if name not in self._wakes:
                    self._wakes[name] = _queue_of(name).enqueue(True)
        if self._session is None:
            self._session = _TensorFlowSession(
                self._member.target, graph=self._graph, config=membership.with_filters(
                    None, membership.filters_of(self._graph, self._member.cluster)))
        self._session.run([self._wakes[name] for name in names])


def _end_for(error: Exception) -> None:
    """Ends the process for an error of ps_train, or the loss of a session, unless a signal ends it already.

    An operation makes an UnknownError of it, which looks like a fault of the script, and is not to be run again.
    """
    is_of_cluster = isinstance(error, PsTrainError) or ending.is_lost_session(error)
    if is_of_cluster and not ending.is_stopping():
        ending.end_process(error)


def _queue_of(name: str) -> tf.FIFOQueue:
    """Returns the queue in which the operations of a name wait on this worker."""
    return tf.FIFOQueue(_MOST_STEPS, [tf.bool], [[]], shared_name=f"ps_train/horovod/{name}")


def _names(values: Mapping[_Key, np.ndarray]) -> str:
    return ", ".join(sorted({name for name, _ in values}))
