"""The workers of multi_worker_mirrored find each other before TensorFlow starts.

    a door on the own port, which TensorFlow does not have yet --> all other doors seen --> close it, start TensorFlow

TensorFlow waits for its peers without a bound, and holds Python's lock meanwhile: no thread could end that wait, and no
signal is heard. So Python waits first, and names who is missing. In the moments that are left, until TensorFlow's
servers have met, two clocks run that need no Python: one prints where the process stands, the other ends it.
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
      own: its port must be free; it is so again when this returns.

    Raises:
      ClusterLostError: the time is over; the text names who is missing.
      StoppedError: `stop` was set.
    """
    with _door(int(own.address.rpartition(":")[2])):
        reachability.for_tasks(others, timeout_secs, stop)


@contextlib.contextmanager
def _door(port: int) -> Iterator[None]:
    """Accepts connections at a port of this machine, and closes them at once."""
    dual_stack = socket.has_dualstack_ipv6()
    closed = threading.Event()
    with socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual_stack:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen()
        listener.settimeout(_ACCEPT_SECS)

        def welcome() -> None:
            while not closed.is_set():
                with contextlib.suppress(socket.timeout):
                    listener.accept()[0].close()

        porter = threading.Thread(target=welcome, daemon=True, name="door")
        porter.start()
        try:
            yield
        finally:
            closed.set()
            porter.join()


@contextlib.contextmanager
def bounded_without_python(timeout_secs: float) -> Iterator[None]:
    """Ends the process by SIGALRM (142 to a shell: may be run again) where the block takes longer than that."""
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
