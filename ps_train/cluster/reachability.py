"""Waits until other tasks accept connections, and says which host names do not resolve."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from typing import Callable

from ps_train.cluster.addresses import host_of, port_of
from ps_train.cluster.spec import Task
from ps_train.runtime import waits

_log = logging.getLogger(__name__)


def wait_for_tasks(tasks: Iterable[Task], timeout_secs: float, stop: threading.Event) -> None:
    """Returns when every task's port has accepted a connection.

    Raises:
      ClusterLostError: `timeout_secs` have passed; the error names the missing tasks and their addresses.
      StoppedError: `stop` was set.
    """
    Awaited(tasks, timeout_secs, stop).wait()


class Awaited:
    """Tasks that this process waits for."""

    def __init__(
        self, tasks: Iterable[Task], timeout_secs: float, stop: threading.Event,
        is_ready: Callable[[Task], bool] = lambda task: True,
    ) -> None:
        """Prepares the wait.

        Args:
          timeout_secs: the time limit.
          stop: ends the wait.
          is_ready: called with a task that accepts connections, until it returns true.
        """
        self._missing, self._timeout_secs, self._stop, self._is_ready = list(tasks), timeout_secs, stop, is_ready
        self._unresolved: set[Task] = set()

    def wait(self) -> None:
        """Returns when every task is there; raises as `wait_for_tasks`, or the error of `is_ready`."""
        waits.until(self._are_all_there, self._timeout_secs, self._names, self._stop,
                    "is it started, and reachable from this machine?")

    def _are_all_there(self) -> bool:
        # Each unreachable host costs two seconds. After a signal, do not try the remaining ones.
        self._missing[:] = [task for task in self._missing
                            if self._stop.is_set() or not self._accepts(task) or not self._is_ready(task)]
        return not self._missing

    def _accepts(self, task: Task) -> bool:
        error = _connection_error(task.address)
        if not isinstance(error, socket.gaierror):
            self._unresolved.discard(task)
        elif task not in self._unresolved:
            self._unresolved.add(task)
            # Not an error: in Kubernetes the name of a pod resolves only when the pod exists.
            _log.warning("the host name of %s does not resolve here (%s): is it spelt right? Waiting for it, at most "
                         "%g s", task, error.strerror, self._timeout_secs)
        return error is None

    def _names(self) -> str:
        return ", ".join(f"{task} (this host name does not resolve here)" if task in self._unresolved else str(task)
                         for task in self._missing)


def accepts(address: str) -> bool:
    """Returns whether a process accepts connections at host:port."""
    return _connection_error(address) is None


def any_accepts(tasks: Iterable[Task]) -> bool:
    """Returns whether any of these tasks accepts connections."""
    return any(accepts(task.address) for task in tasks)


def _connection_error(address: str) -> OSError | None:
    """Returns why a connection to host:port failed, or None if it was accepted."""
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=2):
            return None
    except OSError as error:
        return error
