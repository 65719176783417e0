"""Keeps a target up to date from the folder, in a thread: a target that is away delays nobody.

    a server   live_status: number 133 --> push 134, 135 of the folder: live_rows ..., live_commit
               another training, or a push that is no longer in the folder --> it needs the new version of the model
    a store    the names there --> the files that it lacks, then `CURRENT`; then the files that were removed here, go
               a name that is no publisher's, as a checkpoint --> nothing is sent or removed

A push that was sent in part is sent again from its beginning: rows are set, not added. After each error, the target is
asked again for what it has.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np

from ps_train.parts.live import pushes
from ps_train.parts.live.predict_calls import Arrays, TargetError
from ps_train.parts.live.pushes import Current
from ps_train.parts.object_store.store import ObjectStore, StoreError
from ps_train.parts.publish.freshness import ServedAges
from ps_train.parts.publish.publisher import last_path, published_files
from ps_train.runtime import threads

_ASK_SECS = 2.0  # between two questions to a target: one that was started again is at the number of its model
_log = logging.getLogger(__name__)


class Sender:
    """One target.

    Attributes:
      target: its address.
      number: of the last push that it has, None if it was never reached.
      problem: why it does not have the newest push, "" if it does.
      freshness: of what it serves.
    """

    def __init__(self, target: str, publish_dir: str) -> None:
        """Sends nothing yet."""
        self.target, self._dir = target, publish_dir
        self.number: int | None = None
        self.problem = "it was not asked yet"
        self.freshness = ServedAges()
        self._wake, self._is_closing = threading.Event(), threading.Event()
        self._thread: Any = None

    def catch_up(self) -> str:
        """Sends what the target lacks; returns why it cannot have it, "" if it has all.

        Raises:
          TargetError: the target has failed.
          PushError, OSError: the folder cannot be read.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threads.start_thread(self._work, f"target {self.target}")

    def wake(self) -> None:
        """Says that there is a new push."""
        self._wake.set()

    def end(self) -> None:
        """Says that the thread ends after the call at hand."""
        self._is_closing.set()
        self._wake.set()

    def join(self, timeout_secs: float) -> None:
        """Waits for the end of the thread, if it was started, for at most this long."""
        if self._thread is not None:
            self._thread.join(timeout_secs)

    def has(self, number: int) -> bool:
        """Returns whether the target has this push and all before."""
        return self.number is not None and self.number >= number and not self.problem

    def why_behind(self) -> str:
        """Returns `problem`, or for how long the call at hand has had no answer."""
        return self.problem

    def as_json(self) -> dict[str, Any]:
        """Returns where the target is, for publish.json."""
        return {"target": self.target, "number": self.number, "problem": self.why_behind(), **self.freshness.as_json()}

    def _work(self) -> None:
        while not self._is_closing.is_set():
            self._wake.clear()
            try:
                problem = self.catch_up()
            except (TargetError, pushes.PushError, OSError) as error:  # the last two are of the folder
                problem = str(error)
            except Exception as error:  # noqa: BLE001 (of a server of something else: the thread must not end unseen)
                problem = f"{type(error).__name__}: {error}"
            self._note(problem)
            self._wake.wait(_ASK_SECS)

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("target %s: %s", self.target, problem)
        if self.problem and not problem and self.number is not None:
            _log.info("target %s has push %d", self.target, self.number)
        self.problem = problem


def close_all(senders: Sequence[Sender], timeout_secs: float) -> None:
    """Ends the threads after the calls at hand, which are waited for, all together, for at most this long."""
    for sender in senders:
        sender.end()
    end_secs = time.monotonic() + timeout_secs
    for sender in senders:
        sender.join(max(0.0, end_secs - time.monotonic()))


class ServerSender(Sender):
    """A server of the live model."""

    def __init__(self, target: str, publish_dir: str, call: Callable[[str, Arrays], dict[str, np.ndarray]]) -> None:
        """Sends nothing yet.

        Args:
          call: from `predict_client`.
        """
        super().__init__(target, publish_dir)
        self._call = call

    def catch_up(self) -> str:
        """Sends the pushes that the server lacks, in order."""
        current = pushes.read_current(self._dir)
        if current is None:
            return ""  # there is nothing to send yet
        status = self._call("live_status", {"probe": np.int64(0)})
        self.number = int(status["number"])
        paths = [pushes.push_path(self._dir, number) for number in range(self.number + 1, current.last + 1)]
        is_other = status["training"].item().decode() != current.training
        if is_other or self.number > current.last or not all(map(os.path.exists, paths)):
            return f"it is at push {self.number} and needs the model in {os.path.join(self._dir, current.model)}"
        for path in paths:
            if self._is_closing.is_set():
                return "the publisher ends"
            self._send(path)
        return ""

    def _send(self, path: str) -> None:
        begin, records = pushes.read_push(path)
        dense = b""
        for record in records:
            if isinstance(record, bytes):
                dense = record
            else:
                self._call(f"live_rows/{record.table}", {
                    "number": np.int64(begin.number), "ids": record.ids, "rows": record.rows,
                    "dropped": record.dropped})
        self._call("live_commit", {
            "number": np.int64(begin.number), "previous": np.int64(begin.previous),
            "dense": np.frombuffer(dense, np.uint8), "step": np.int64(begin.step)})
        self.number = begin.number
        self.freshness.served(begin)


class StoreSender(Sender):
    """A folder of an object store, which has the same files."""

    def __init__(self, target: str, publish_dir: str, store: ObjectStore) -> None:
        """Sends nothing yet."""
        super().__init__(target, publish_dir)
        self._store = store
        self._sent: Current | None = None
        self._put: set[str] = set()  # by this process: a file of an earlier folder may have another content

    def why_behind(self) -> str:
        return self._store.calls.silence() or self.problem

    def _work(self) -> None:
        with self._store.calls.watched(f"target {self.target}"):
            super()._work()

    def catch_up(self) -> str:
        """Uploads the files that the store lacks; `CURRENT` after what it names; then removes old ones."""
        current = pushes.read_current(self._dir)
        if current in (None, self._sent):
            return ""  # there is nothing to send
        try:
            there = self._store.names(is_deep=True)
            for name in there:
                if name != pushes.CURRENT and pushes.number_in(name.partition("/")[0]) is None:
                    return f"it has {name}, which no publisher wrote; give a folder of a store for the pushes alone"
            self._send(current, there)
        except StoreError as error:
            raise TargetError(str(error)) from None
        return ""

    def _send(self, current: Current, there: Mapping[str, int]) -> None:
        here = published_files(self._dir, current)
        for name, size in here.items():
            if name not in self._put or there.get(name) != size:
                self._store.put(name, os.path.join(self._dir, name))
                self._put.add(name)
        self._store.write(pushes.CURRENT, pushes.current_text(current).encode())
        self._store.remove([name for name in there if name != pushes.CURRENT and name not in here])
        self._put &= here.keys()
        self._sent, self.number = current, current.last
        self.freshness.served(pushes.read_push(last_path(self._dir, current))[0])
