"""The journal of a train_dir, `journal.jsonl`: the events of the training, a line of JSON for each.

    {"time": 1790000000.5, "event": "worker", "name": "worker:1", "what": "silent", "step": 1200}

The chief writes it in a thread: a bad or slow folder holds up nothing. `ps_train report` reads it (docs/report.md).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

JOURNAL_NAME = "journal.jsonl"
_CLOSE_SECS = 5.0
_MOST_WAITING = 1000  # lines in the queue; with more, the folder is too slow
_log = logging.getLogger(__name__)


class Journal:
    """The journal of one training, as its chief writes it."""

    def __init__(self, train_dir: str) -> None:
        """Prepares it; nothing is written yet. With the folder "", nothing is written at all."""
        self._train_dir = train_dir
        self._lines: queue.Queue[Optional[str]] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._has_failed = False
        self._listeners: list[Callable[[str, Mapping[str, Any]], None]] = []

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Calls `listener(event, values)` with each later event, in the thread that notes it."""
        self._listeners.append(listener)

    def note(self, event: str, **values: Any) -> None:
        """Queues an event of this kind; the values, such as the global step, must fit into JSON."""
        for listener in self._listeners:
            listener(event, values)
        if not self._train_dir or self._lines.qsize() >= _MOST_WAITING:
            return
        # The time of day, as a reader compares it with logs; no wait depends on it.
        self._lines.put(json.dumps({"time": round(time.time(), 3), "event": event, **values}))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="journal")
            self._thread.start()

    def close(self) -> None:
        """Writes the queued events, in bounded time."""
        if self._thread is None:
            return
        self._lines.put(None)
        self._thread.join(_CLOSE_SECS)
        if self._thread.is_alive():
            _log.warning("%s is slow: the last events may be missing in %s", self._train_dir, JOURNAL_NAME)
        self._thread = None

    @contextlib.contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Notes an exception that ends its body, and closes the journal."""
        try:
            yield
        except BaseException as error:
            self.note("end", why=f"{type(error).__name__}: {error}".partition("\n")[0])
            raise
        finally:
            self.close()

    def _work(self) -> None:
        path = os.path.join(self._train_dir, JOURNAL_NAME)
        # A process that was killed, or a full disk, may have left a part of a line.
        break_before = "\n" if _has_open_line(path) else ""
        while (line := self._lines.get()) is not None:
            try:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(f"{break_before}{line}\n")
                break_before = ""
            except OSError as error:
                break_before = "\n"
                if not self._has_failed:
                    _log.warning("cannot write %s: %s; training goes on, and `ps_train report` will miss something",
                                 path, error.strerror)
                self._has_failed = True


def _has_open_line(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:  # it does not exist, is empty, or cannot be read: writing will fail and warn
        return False


def read_journal(train_dir: str) -> list[dict[str, Any]]:
    """Returns the events of a train_dir in the order of their lines; [] if it has no journal.

    Leaves out a line that is no event, such as one that a killed process wrote only in part.

    Raises:
      OSError: the journal cannot be read.
    """
    try:
        with open(os.path.join(train_dir, JOURNAL_NAME), encoding="utf-8", errors="replace") as file:
            events = [_event(line) for line in file]
    except FileNotFoundError:
        return []
    return [event for event in events if event is not None]


def noted_end(train_dir: str) -> dict[str, Any] | None:
    """Returns the last event of the journal if it is the end of a training, and not a failure; else None."""
    with contextlib.suppress(OSError):
        if (events := read_journal(train_dir)) and events[-1]["event"] == "end" and "step" in events[-1]:
            return events[-1]
    return None


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"time", "event"} <= event.keys() else None
