"""Sets up the output of a process: ps_train's own lines, and TensorFlow's only on request."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its start-up messages; respects a TF_CPP_MIN_LOG_LEVEL that the user has set."""
    # Level 3 and not 2: some versions report as errors that a CUDA library was registered twice (2.14 in
    # tensorflow/tensorflow#62075, 2.15 in #70947). Real failures are Python exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    warnings.filterwarnings("ignore", module="tensorflow")
    # TensorFlow 2.21 writes its first lines before it reads that level. Its output to file descriptor 2 during the
    # import is therefore captured, and shown only if the import fails.
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            import tensorflow  # noqa: F401, PLC0415 (that it is imported here is the point)
        except BaseException:
            held.seek(0)
            os.write(stderr, held.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


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
