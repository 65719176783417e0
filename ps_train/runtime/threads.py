"""A call that is repeated in the background while something else runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Callable


@contextlib.contextmanager
def repeating(call: Callable[[], None], *, period_secs: float, name: str, join_secs: float = 0.0) -> Iterator[None]:
    """Calls `call()` every `period_secs` in a daemon thread while its body runs.

    Args:
      call: must handle its own errors: one that it raises ends the thread.
      name: of the thread, for stack dumps.
      join_secs: how long the end waits for a call that is under way.
    """
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(period_secs):
            call()

    thread = threading.Thread(target=repeat, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(join_secs)
