"""The chief's part of a profile: it collects what the workers have recorded, and writes it as one Chrome trace.

    its own part, and one from each other worker (profile_board.py) --> train_dir/profile/steps-A-B.json

It does so in a thread, beside the training, which may go on for days; the end of training ends the wait.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading

from ps_train import timeline
from ps_train.blackboard import BlackboardError
from ps_train.cluster import Cluster
from ps_train.profile_board import ProfileBoard
from ps_train.timeline import Part

_PERIOD_SECS = 1.0
_CLOSE_SECS = 15.0  # as long as the two calls of the last round may take, and some time to write
_log = logging.getLogger(__name__)


class Collector:
    """Collects the parts of all workers, and writes the trace."""

    def __init__(self, cluster: Cluster, board: ProfileBoard, path: str) -> None:
        """Prepares; nothing is asked yet."""
        self._cluster = cluster
        self._board = board
        self._path = path
        self._parts: dict[int, Part] = {}
        self._missing = {cluster.number_of(task) for task in cluster.workers}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="collector")

    def start(self, own: Part) -> None:
        """Begins to collect, with the chief's own part."""
        self._parts[self._cluster.worker_number] = own
        self._thread.start()

    def close(self) -> None:
        """Ends the wait for the others: what is there now is written."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECS)

    def _run(self) -> None:
        self._ask()
        while self._missing:
            is_last = self._closing.wait(_PERIOD_SECS)
            self._ask()
            if is_last:
                break
        if self._missing:
            _log.warning("profile: nothing came from %s; was it started with --profile_steps?",
                         ", ".join(map(self._cluster.worker_name, sorted(self._missing))))
        if any(part.runs for part in self._parts.values()):
            self._write()

    def _ask(self) -> None:
        """Takes what has come; the workers that the cluster names are missing until then, and who else is there."""
        named = {self._cluster.number_of(task) for task in self._cluster.workers}
        with contextlib.suppress(BlackboardError):  # the next time it may answer
            self._parts.update({number: timeline.unpack(packed) for number, packed in self._board.collect().items()})
            self._missing = {*named, *self._board.present()} - set(self._parts)

    def _write(self) -> None:
        unfinished = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(unfinished, "w", encoding="utf-8") as file:
                json.dump(timeline.trace(list(self._parts.values())), file)
            os.replace(unfinished, self._path)
        except OSError as error:
            _log.warning("profile: cannot write %s: %s", self._path, error.strerror)
            with contextlib.suppress(OSError):
                os.remove(unfinished)
        else:
            names = [part.worker for _, part in sorted(self._parts.items()) if part.runs]
            _log.info("profile: %s shows %s and the ps on one time line; open it in https://ui.perfetto.dev or "
                      "chrome://tracing", self._path, ", ".join(names))
