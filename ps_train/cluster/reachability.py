"""Waits until other tasks accept connections, and says which host names do not resolve."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable

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
    missing = list(tasks)
    unresolved: set[Task] = set()

    def is_missing(task: Task) -> bool:
        error = _connection_error(task.address)
        if not isinstance(error, socket.gaierror):
            unresolved.discard(task)
        elif task not in unresolved:
            unresolved.add(task)
            # Not an error: in Kubernetes the name of a pod resolves only when the pod exists.
            _log.warning("the host name of %s does not resolve here (%s): is it spelt right? Waiting for it, at most "
                         "%g s", task, error.strerror, timeout_secs)
        return error is not None

    def all_there() -> bool:
        # Each unreachable host costs two seconds. After a signal, do not try the rest.
        missing[:] = [task for task in missing if stop.is_set() or is_missing(task)]
        return not missing

    def names() -> str:
        return ", ".join(f"{task} (this host name does not resolve here)" if task in unresolved else str(task)
                         for task in missing)

    waits.until(all_there, timeout_secs, names, stop, "is it started, and reachable from this machine?")


def accepts(address: str) -> bool:
    """Tells whether a process accepts connections at host:port."""
    return _connection_error(address) is None


def any_accepts(tasks: Iterable[Task]) -> bool:
    """Tells whether any of these tasks accepts connections."""
    return any(accepts(task.address) for task in tasks)


def _connection_error(address: str) -> OSError | None:
    """Returns why a connection to host:port failed, or None if it was accepted."""
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=2):
            return None
    except OSError as error:
        return error
