"""Writes summaries for TensorBoard without ever delaying or ending training: if the folder fails, they are dropped.

    a step --> a queue --> a thread, which may fail or be slow --> train_dir/events.*
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from ps_train.runtime import tensorflow_errors

LOSS_TAG = "loss"  # of training and of evaluation
_RETRY_SECS = 60.0
_CLOSE_SECS = 5.0
_MAX_WAITING = 1000  # summaries in the queue; with more, the folder is too slow
_FAILURES = (OSError, RuntimeError, tf.errors.OpError)  # RuntimeError: the writer's thread (event_file_writer.py)
_file_numbers = itertools.count()
_log = logging.getLogger(__name__)

_Call = Callable[[tf.summary.FileWriter], object]


class Summaries:
    """The event files of one folder, over all sessions of a training."""

    def __init__(self, folder: str) -> None:
        """Prepares; the folder is not touched before something is written."""
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._calls: queue.Queue[Optional[_Call]] = queue.Queue()
        self._retry_secs = self._complain_secs = time.monotonic()

    def start(self, graph: tf.Graph, global_step: int) -> None:
        """Writes the graph, and tells TensorBoard to drop the summaries of later steps, from before a loss."""
        log = tf.SessionLog(status=tf.SessionLog.START)
        self._add(lambda writer: (writer.add_graph(graph), writer.add_session_log(log, global_step)))

    def write(self, summary: bytes | tf.Summary, global_step: int) -> None:
        """Queues a summary; after a failure it is dropped, as are all summaries in the next minute."""
        self._add(lambda writer: writer.add_summary(summary, global_step))

    def close(self) -> None:
        """Writes the queued summaries and closes the file, in bounded time; the next summary starts a new file."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._calls.put(None)
        thread.join(_CLOSE_SECS)
        if thread.is_alive():
            _log.warning("%s is slow: the last summaries may be missing there", self._folder)

    def _add(self, call: _Call) -> None:
        if self._thread is None:
            self._calls = queue.Queue()
            self._thread = threading.Thread(target=self._work, args=(self._calls,), daemon=True, name="summaries")
            self._thread.start()
        if self._calls.qsize() < _MAX_WAITING:
            self._calls.put(call)
        elif time.monotonic() >= self._complain_secs:
            self._complain_secs = time.monotonic() + _RETRY_SECS
            _log.warning("%s is slow: summaries are dropped; training goes on", self._folder)

    def _work(self, calls: queue.Queue[Optional[_Call]]) -> None:
        writer: tf.summary.FileWriter | None = None
        while (call := calls.get()) is not None:
            writer = self._attempt(writer, call)
        if writer is not None:
            self._attempt(writer, lambda writer: writer.close())

    def _attempt(self, writer: tf.summary.FileWriter | None, call: _Call) -> tf.summary.FileWriter | None:
        """Makes a call with the writer, or with a new one if it is None; returns it, or None after a failure."""
        if time.monotonic() < self._retry_secs:
            return None
        try:
            if writer is None:
                # TensorFlow names a file after the current second, and would truncate one of the same second.
                suffix = f".{os.getpid()}.{next(_file_numbers)}"
                writer = tf.summary.FileWriter(self._folder, filename_suffix=suffix)
            call(writer)
        except _FAILURES as error:
            self._retry_secs = time.monotonic() + _RETRY_SECS
            _log.warning("cannot write summaries to %s: %s; training goes on, the next try is in %g s", self._folder,
                         tensorflow_errors.reason(error), _RETRY_SECS)
            return None
        return writer
