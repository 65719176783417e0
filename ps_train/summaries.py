"""Summaries for TensorBoard that never end training: where the folder takes none, they are dropped with a warning."""

from __future__ import annotations

import itertools
import logging
import os
import time
from typing import Callable

import tensorflow.compat.v1 as tf

_RETRY_SECS = 60.0
_FAILURES = (OSError, RuntimeError, tf.errors.OpError)  # the second is the writer's thread (event_file_writer.py)
_file_numbers = itertools.count()
_log = logging.getLogger(__name__)


class Summaries:
    """The event files of one folder, over all sessions of a training."""

    def __init__(self, folder: str) -> None:
        """Prepares; the folder is touched when something is written."""
        self._folder = folder
        self._writer: tf.summary.FileWriter | None = None
        self._retry_secs = time.monotonic()

    def start(self, graph: tf.Graph, global_step: int) -> None:
        """Writes the graph, and that what stands at later steps already is of a training that was lost."""
        log = tf.SessionLog(status=tf.SessionLog.START)
        self._attempt(lambda writer: (writer.add_graph(graph), writer.add_session_log(log, global_step)))

    def write(self, summary: bytes | tf.Summary, global_step: int) -> None:
        """Writes a summary; after a failure it is dropped, and so is what comes in the next minute."""
        self._attempt(lambda writer: writer.add_summary(summary, global_step))

    def close(self) -> None:
        """Writes what is held back and closes the file; the next summary begins a new one."""
        if self._writer is not None:
            self._attempt(lambda writer: writer.close())
            self._writer = None

    def _attempt(self, call: Callable[[tf.summary.FileWriter], object]) -> None:
        if time.monotonic() < self._retry_secs:
            return
        try:
            if self._writer is None:
                # TensorFlow names a file by the second, and would empty one of the same second.
                suffix = f".{os.getpid()}.{next(_file_numbers)}"
                self._writer = tf.summary.FileWriter(self._folder, filename_suffix=suffix)
            call(self._writer)
        except _FAILURES as error:
            self._writer = None
            self._retry_secs = time.monotonic() + _RETRY_SECS
            _log.warning("cannot write summaries to %s: %s; training goes on, the next try is in %g s", self._folder,
                         str(error).splitlines()[0], _RETRY_SECS)
