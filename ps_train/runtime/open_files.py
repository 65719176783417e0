"""Writes what is left in files that nobody has closed, as Python does when it ends by itself; `os._exit` does not."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import sys

_COMPRESSED = (("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))


def write_all() -> None:
    """Writes what this process has left in files of Python and of C."""
    files = [value for value in gc.get_objects() if issubclass(type(value), io.IOBase)]
    compressed = tuple(getattr(sys.modules[module], name) for module, name in _COMPRESSED if module in sys.modules)
    # A file of text writes into one that compresses, which writes into one of bytes.
    for kinds, write in (((io.TextIOWrapper,), "flush"), (compressed, "close"),
                         ((io.BufferedWriter, io.BufferedRandom), "flush")):
        for file in files:
            if issubclass(type(file), kinds):
                with contextlib.suppress(OSError, ValueError):  # a full disk, a closed file: the exit code still counts
                    getattr(file, write)()
    ctypes.CDLL(None).fflush(None)  # those of C: events for TensorBoard, records
