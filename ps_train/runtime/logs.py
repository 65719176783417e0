"""Sets up the log of a process, and its standard streams."""

from __future__ import annotations

import contextlib
import logging
import os
import sys


def open_closed_streams() -> None:
    """Opens /dev/null for those of stdin, stdout and stderr that are closed, as they may be in a daemon."""
    # Otherwise a file that is opened later, such as a server's socket, would get such a number and receive the prints.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it lasts as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def show(text: str) -> None:
    """Prints a result; ignores a full disk or a closed pipe, which lose only the text."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def complain(text: str) -> None:
    """Writes lines to stderr; ignores a full disk, as the exit code still reports the error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def setup() -> None:
    """Sends ps_train's log to stderr, each line with the time of day."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("ps_train")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
