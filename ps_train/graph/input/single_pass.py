"""Lets the input of "train" end after one pass, in order: for an evaluation on the training examples.

`from_arrays` and `file_ranges`, which otherwise repeat, ask `is_single_pass`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()  # a chief may evaluate in another thread than that which builds its training graph


@contextlib.contextmanager
def requested() -> Iterator[None]:
    """Lets the datasets that are made in its body, in this thread, give each example once and in order."""
    before = is_single_pass()
    _thread.is_requested = True
    try:
        yield
    finally:
        _thread.is_requested = before


def is_single_pass() -> bool:
    """Tells whether datasets end after one pass."""
    return getattr(_thread, "is_requested", False)
