"""What a task prints: its own lines, and TensorFlow's only when asked for."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its start-up lines.

    A TF_CPP_MIN_LOG_LEVEL that the user set is left as it is. Level 3 and not 2, because some versions report at level
    "error" that a CUDA library was registered twice (2.14 in tensorflow/tensorflow#62075, 2.15 in #70947); what really
    fails reaches us as a Python exception. TensorFlow 2.21 writes its first lines before it reads that level, so what
    is written to file descriptor 2 meanwhile is held back, and shown only if the import fails.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    warnings.filterwarnings("ignore", module="tensorflow")
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
    """Gives a daemon's process, which may have neither stdin, stdout nor stderr, empty ones.

    What is opened later, a server's socket for one, would otherwise take their numbers and what is printed to them.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it lasts as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def show(text: str) -> None:
    """Prints a result; a full disk, or a reader that is gone, costs the text and nothing else."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def complain(text: str) -> None:
    """Writes lines to stderr; where a full disk takes none, the exit code still tells."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def setup() -> None:
    """Sends ps_train's lines to stderr, each with the time of day."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("ps_train")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
