"""The workers of multi_worker_mirrored find each other before TensorFlow starts.

    accept connections at the own port --> connect to all other ports --> close the own port, start TensorFlow

TensorFlow waits for its peers without a time limit, and holds Python's lock: no thread can end that wait, and no signal
is handled. So Python waits first, and names the missing workers. For the moments until TensorFlow's servers have met,
two timers run that need no Python: one prints the stack, the other ends the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task

_ACCEPT_SECS = 0.2


def meet(own: Task, others: Iterable[Task], timeout_secs: float, stop: threading.Event) -> None:
    """Returns when the port of each other task has accepted a connection at least once.

    Args:
      own: its port must be free, and is free again when this returns.

    Raises:
      ClusterLostError: the time is over; the text names the missing tasks.
      StoppedError: `stop` was set.
    """
    with _accepting(int(own.address.rpartition(":")[2])):
        reachability.wait_for_tasks(others, timeout_secs, stop)


@contextlib.contextmanager
def _accepting(port: int) -> Iterator[None]:
    """Accepts connections at a port of this machine, and closes each at once."""
    dual_stack = socket.has_dualstack_ipv6()
    closed = threading.Event()
    with socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual_stack:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen()
        listener.settimeout(_ACCEPT_SECS)

        def accept() -> None:
            while not closed.is_set():
                with contextlib.suppress(socket.timeout):
                    listener.accept()[0].close()

        thread = threading.Thread(target=accept, daemon=True, name="rendezvous")
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()


@contextlib.contextmanager
def bounded_without_python(timeout_secs: float) -> Iterator[None]:
    """Ends the process by SIGALRM (142 to a shell: may be run again) if the block takes longer than that."""
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    has_stderr = sys.stderr is not None
    if has_stderr:
        faulthandler.dump_traceback_later(timeout_secs, file=sys.stderr.fileno())
    signal.setitimer(signal.ITIMER_REAL, timeout_secs + 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if has_stderr:
            faulthandler.cancel_dump_traceback_later()
