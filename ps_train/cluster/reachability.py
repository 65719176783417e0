"""Whether a task can be reached: by whom a connection is accepted, and which host name does not resolve."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable

from ps_train.cluster.spec import Task
from ps_train.runtime import waits

_log = logging.getLogger(__name__)


def for_tasks(tasks: Iterable[Task], timeout_secs: float, stop: threading.Event) -> None:
    """Returns when every task's port has accepted a connection.

    Raises:
      ClusterLostError: the time is over; the text names all tasks that are missing and their addresses.
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
            # No refusal: in Kubernetes the name of a pod resolves only once the pod is there.
            _log.warning("the host name of %s does not resolve here (%s): is it spelt right? Waiting for it, at most "
                         "%g s", task, error.strerror, timeout_secs)
        return error is not None

    def all_there() -> bool:
        # An unreachable host takes two seconds to be found missing: a signal must not wait for all of them.
        missing[:] = [task for task in missing if stop.is_set() or is_missing(task)]
        return not missing

    def names() -> str:
        return ", ".join(f"{task} (this host name does not resolve here)" if task in unresolved else str(task)
                         for task in missing)

    waits.until(all_there, timeout_secs, names, stop, "is it started, and reachable from this machine?")


def accepts(address: str) -> bool:
    """Tells whether somebody accepts connections at host:port."""
    return _connection_error(address) is None


def _connection_error(address: str) -> OSError | None:
    """Returns why nobody accepts connections at host:port, or None where somebody does."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return None
    except OSError as error:
        return error
