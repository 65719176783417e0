"""Waits until other tasks accept connections, and says which host names do not resolve."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from typing import Callable

from ps_train.cluster.addresses import host_of, port_of
from ps_train.cluster.spec import Task
from ps_train.errors import BlackboardError
from ps_train.runtime import waits

_UNRESOLVED = " (its host name does not resolve on this machine)"
_log = logging.getLogger(__name__)


def wait_for_tasks(
    tasks: Iterable[Task], timeout_secs: float, stop: threading.Event,
    is_ready: Callable[[Task], bool] = lambda task: True,
) -> None:
    """Returns when every task's port has accepted a connection.

    Args:
      stop: ends the wait.
      is_ready: called with a task that accepts connections, until it returns true. May raise BlackboardError: not yet.

    Raises:
      ClusterLostError: `timeout_secs` have passed; the error names the missing tasks, their addresses, and why.
      StoppedError: `stop` was set.
      Exception: from `is_ready`.
    """
    missing, reasons = list(tasks), dict[Task, str]()

    def is_there(task: Task) -> bool:
        error, last = connection_error(task.address), reasons.get(task)
        if isinstance(error, socket.gaierror):
            reasons[task] = _UNRESOLVED
            if last != _UNRESOLVED:  # no error: in Kubernetes the name of a pod resolves only when the pod exists
                _log.warning("the host name of %s does not resolve on this machine (%s); check its spelling; waiting "
                             "for it, at most %g s", task, error.strerror, timeout_secs)
        elif error or last == _UNRESOLVED:
            reasons.pop(task, None)
        try:
            return error is None and is_ready(task)
        except BlackboardError as silence:
            reasons[task] = f" ({silence})"
            return False

    def are_all_ready() -> bool:
        # Each unreachable host costs two seconds. After a signal, do not try the remaining ones.
        missing[:] = [task for task in missing if stop.is_set() or not is_there(task)]
        return not missing

    waits.until(are_all_ready, timeout_secs, lambda: ", ".join(f"{task}{reasons.get(task, '')}" for task in missing),
                stop, "is it started, and reachable from this machine?")


def accepts(address: str) -> bool:
    """Returns whether a process accepts connections at host:port."""
    return connection_error(address) is None


def connection_error(address: str) -> OSError | None:
    """Returns why a connection to host:port failed, or None if it was accepted."""
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=2):
            return None
    except OSError as error:
        return error
