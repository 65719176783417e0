"""How does a server learn that those have ended for which it serves?

In a cluster with workers, one that only serves asks ps 0 who has finished (`ServedWatch`). In any other cluster:

    task 1, in `join`                     task 2, in `join`                     task 0, the client
    sets a mark in its own server  <-->   sets a mark in its own server   -->   has none, and ends

A task without the mark that was there, and is there no more, was a client. So tasks that have joined do not wait for
each other. A client that is no task of the cluster has no address: then they wait for a signal, as TensorFlow's do.

One connection that fails does not mean that a task has ended: a packet was lost, its name did not resolve for a moment,
or it is started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.coordination import sessions
from ps_train.coordination.state import Snapshot
from ps_train.errors import ClusterLostError, StoppedError
from ps_train.parts.legacy.classic.membership import SERVES_ONLY, Membership
from ps_train.runtime.waits import Reminder, Timeouts

_MARK = "ps_train/has_joined"
_ARRIVAL_POLL_SECS = 0.05  # a client may be there for a moment only
_POLL_SECS = 0.5
_MARK_POLL_SECS = 2.0  # each look at a mark opens a session


class _Silence:
    """For how long tasks have not answered."""

    def __init__(self) -> None:
        self._begun_secs: float | None = None

    def secs(self, *, is_silent: bool) -> float:
        """Returns for how long, up to this call: 0 at the first one, as this process may have been suspended before."""
        if not is_silent:
            self._begun_secs = None
            return 0.0
        self._begun_secs = time.monotonic() if self._begun_secs is None else self._begun_secs
        return time.monotonic() - self._begun_secs


class ServedWatch:
    """The ps, or without a ps the first worker, as a worker that only serves them sees them."""

    def __init__(self, served: Sequence[Task], member: Membership | None, timeouts: Timeouts) -> None:
        """Takes the tasks, and the membership of this process, None without a ps."""
        self._served, self._member, self._timeouts = served, member, timeouts
        self._silence = _Silence()
        self._last: Snapshot | None = None  # of ps 0

    def have_ended(self) -> bool:
        """Returns whether they have ended.

        Raises:
          ClusterLostError: the ps have not answered for the start time-out, and no worker was known to have finished.
        """
        is_silent = not any(reachability.accepts(task.address) for task in self._served)
        silent_secs = self._silence.secs(is_silent=is_silent)
        if not is_silent:
            answer = sessions.if_answered(self._member.snapshot) if self._member is not None else None
            self._last = self._last if answer is None else answer
            return False
        if self._member is None:
            return silent_secs >= self._timeouts.heartbeat_secs
        if self._last is None or not self._last.finished.any():
            if silent_secs >= self._timeouts.start_secs:
                raise ClusterLostError("timed_out", f"waited {self._timeouts.start_secs:g} s for an answer of "
                                       f"{', '.join(map(str, self._served))}")
            return False
        # The ps end when all workers have finished; else they may come back.
        return silent_secs >= (self._timeouts.heartbeat_secs if _is_anyone_training(self._last) else 0.0)


def _is_anyone_training(snapshot: Snapshot) -> bool:
    return any(not snapshot.finished[worker] and snapshot.local_steps[worker] != SERVES_ONLY
               for worker in snapshot.alive())


def wait_for_clients(own: Task, others: Iterable[Task], stop: threading.Event, silent_secs: float) -> None:
    """Marks this task as one that serves only; returns when each other task that did not has come and ended.

    Args:
      silent_secs: a task that has not answered for so long has ended.

    Raises:
      StoppedError: a signal asked this process to stop.
    """
    watch, is_marked = _Watch(others, silent_secs), False
    while not watch.have_clients_ended():
        is_marked = is_marked or mark_as_joined(own)
        if stop.wait(_POLL_SECS if watch.came else _ARRIVAL_POLL_SECS):
            raise StoppedError("stopped", "stopped while serving")


class _Watch:
    """The other tasks, as they come, join and end.

    Attributes:
      came: those that were there, and have no mark that was seen.
    """

    def __init__(self, others: Iterable[Task], silent_secs: float) -> None:
        self._others, self.came = list(others), set[Task]()
        self._silent_secs, self._silence = silent_secs, _Silence()
        self._joined: set[Task] = set()
        self._look_secs: dict[Task, float] = {}  # when the mark of a task is looked at again
        self._reminder = Reminder(lambda: ", ".join(sorted(task.name for task in self.came)) or "a client")

    def have_clients_ended(self) -> bool:
        """Returns whether a client was there, and none is there any more."""
        there = {task for task in self._others if reachability.accepts(task.address)}
        self._joined &= there  # what comes again at that address may be a client
        self._joined |= {task for task in there - self._joined if self._has_joined(task)}
        self.came = (self.came | there) - self._joined
        is_silent = bool(self.came) and not there - self._joined
        if self._silence.secs(is_silent=is_silent) >= self._silent_secs and is_silent:
            return True
        self._reminder.remind()
        return False

    def _has_joined(self, task: Task) -> bool:
        now_secs = time.monotonic()
        if now_secs < self._look_secs.get(task, 0.0):
            return False
        self._look_secs[task] = now_secs + _MARK_POLL_SECS
        return has_joined(task)


def mark_as_joined(own: Task) -> bool:
    """Sets this task's mark, in its own server; returns whether it has answered."""
    return set_mark(own, _MARK)


def has_joined(task: Task) -> bool:
    """Returns whether a task has set its mark; one that does not answer has not."""
    return has_mark(task, _MARK)


def set_mark(task: Task, name: str, is_set: bool = True) -> bool:
    """Sets a mark in the server of a task, or removes it; returns whether the server has answered."""
    graph, handle = _mark(task, name)
    with graph.as_default(), tf.device(task.device):
        change = (tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(True)) if is_set else
                  tf.raw_ops.DestroyResourceOp(resource=handle))
    return sessions.if_answered(lambda: sessions.run_on_ps(task, graph, [change])) is not None


def has_mark(task: Task, name: str) -> bool:
    """Returns whether the server of a task has a mark; one that does not answer has none."""
    graph, handle = _mark(task, name)
    with graph.as_default(), tf.device(task.device):
        is_set = tf.raw_ops.VarIsInitializedOp(resource=handle)
    return bool(sessions.if_answered(lambda: sessions.run_on_ps(task, graph, is_set)))


def _mark(task: Task, name: str) -> tuple[tf.Graph, tf.Tensor]:
    """Returns a graph with a mark of a task: a variable in its server, which other sessions find by its name."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(task.device):
        return graph, tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=name, container="")
