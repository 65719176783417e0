"""How does a server of a cluster without workers learn that its clients have ended?

    task 1, in `join`                     task 2, in `join`                     task 0, the client
    sets a mark in its own server  <-->   sets a mark in its own server   -->   has none, and ends

A task without the mark that was there, and is there no more, was a client. So tasks that have joined do not wait for
each other. A client that is no task of the cluster has no address: then they wait for a signal, as TensorFlow's do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.coordination import sessions
from ps_train.errors import StoppedError
from ps_train.runtime.waits import Reminder

_MARK = "ps_train/has_joined"
_ARRIVAL_POLL_SECS = 0.05  # a client may be there for a moment only
_POLL_SECS = 0.5
_MARK_POLL_SECS = 2.0  # each look at a mark opens a session


def wait_for_clients(own: Task, others: Iterable[Task], stop: threading.Event) -> None:
    """Marks this task as one that serves only; returns when each other task that did not has come and ended.

    Raises:
      StoppedError: a signal asked this process to stop.
    """
    watch, is_marked = _Watch(others), False
    while not watch.have_clients_ended():
        is_marked = is_marked or mark_as_joined(own)
        if stop.wait(_POLL_SECS if watch.came else _ARRIVAL_POLL_SECS):
            raise StoppedError("stopped", "stopped while serving")


class _Watch:
    """The other tasks, as they come, join and end.

    Attributes:
      came: those that were there, and have no mark that was seen.
    """

    def __init__(self, others: Iterable[Task]) -> None:
        self._others, self.came = list(others), set[Task]()
        self._joined: set[Task] = set()
        self._look_secs: dict[Task, float] = {}  # when the mark of a task is looked at again
        self._reminder = Reminder(lambda: ", ".join(sorted(task.name for task in self.came)) or "a client")

    def have_clients_ended(self) -> bool:
        """Returns whether a client was there, and none is there any more."""
        there = {task for task in self._others if reachability.accepts(task.address)}
        self._joined &= there  # what comes again at that address may be a client
        self._joined |= {task for task in there - self._joined if self._has_joined(task)}
        self.came = (self.came | there) - self._joined
        if self.came and not there - self._joined:
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
