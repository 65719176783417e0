"""Data that grows (--follow): which pieces of files there are, as a text that only gets longer during a training.

    folders --look--> new files, and what was appended --> text --> queue on ps 0, checkpoint
                                                             |----> workers: the ranges, by number

The chief looks once a second. A piece is a new file, or what a file of lines has got since, up to its last line end;
its time is that of the file's last change when it is found, or that of the look at which the growth is seen. The text
names pieces with ranges to train on; of ranges that were done when the chief began the queue, it has only where each
file ends. A file is known by its whole path: the same name in another folder is another file. Range 0 is none, and
counts as done from the beginning: the queue is never empty.
"""

from __future__ import annotations

import collections
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import PsTrainError
from ps_train.parts.readers.file_ranges import GROWING_BYTES, FileRange
from ps_train.parts.readers.files import (
    NUM_THREADS,
    changed_secs,
    fixed_folder,
    is_stream,
    is_unfinished,
    name_behind,
    size_now,
    sizes_now,
)
from ps_train.parts.sharding.range_plan import Extension, MisfitError, is_of_growth

_LAST_RANGES = 1000  # of which `freshness` knows how long they took
_log = logging.getLogger(__name__)

# Returns the first bytes of the ranges of what a file has from a byte on, and their end; [] if it has no whole line.
Cut = Callable[[str, int, int], Sequence[int]]


class _Content(NamedTuple):
    """What a text says.

    Attributes:
      until_secs: the latest time of a piece that is done and left out.
      ends: path -> the byte up to which its pieces that are left out go.
      pieces: (path, time in seconds since 1970, the first bytes of its ranges and their end).
    """

    until_secs: float
    ends: dict[str, int]
    pieces: list[tuple[str, float, list[int]]]

    def range_secs(self) -> np.ndarray:
        """Returns the time of each range, float64 [ranges]; of range 0, that of what was left out."""
        secs = [self.until_secs]
        for _, seen_secs, cuts in self.pieces:
            secs += [seen_secs] * (len(cuts) - 1)
        return np.array(secs)

    def text(self) -> str:
        names = {*self.ends, *(name for name, _, _ in self.pieces)}
        line = f"{len(self.range_secs()) - 1} ranges to train on, of {len(names)} files that may grow"
        return f"{line}\n{json.dumps(self._asdict(), separators=(',', ':'))}"


class GrowingFiles:
    """The files that match patterns, as one worker sees them.

    Attributes:
      has_seen_all: whether the last look could list all folders.
    """

    def __init__(self, patterns: Sequence[str], cut: Cut) -> None:
        """Looks at nothing yet.

        Args:
          patterns: find the files.
          cut: cuts what is new in a file.
        """
        self.patterns, self._cut = patterns, cut
        self.has_seen_all = True
        self._away: list[str] = []  # the folders of the patterns that found nothing in the last look
        self._warned: set[str] = set()
        self._last_plan: tuple[str, list[FileRange]] | None = None
        self._lock = threading.Lock()  # a look may be under way when the chief begins the queue again

    def plan(self, text: str) -> list[FileRange]:
        """Returns the ranges of a text, by number."""
        last = self._last_plan  # a look of another thread may replace it
        if last is None or last[0] != text:
            self._last_plan = last = text, self._make_plan(_read(text))
        return last[1]

    def _make_plan(self, content: _Content) -> list[FileRange]:
        ranges = [("", 0, 0)] + [(path, start, stop) for path, _, cuts in content.pieces
                                 for start, stop in zip(cuts, cuts[1:])]
        return [FileRange(number, *fields, GROWING_BYTES) for number, fields in enumerate(ranges)]

    def extend(self, text: str) -> Extension:
        """Returns the ranges of a text, "" for none, with those of what is new since.

        Raises:
          MisfitError: the text is that of files that do not grow.
        """
        content = _read(text)
        ends = dict(content.ends)
        for name, _, cuts in content.pieces:  # one that is left out may lie behind one that is not
            ends[name] = max(ends.get(name, 0), cuts[-1])
        with self._lock:
            new = sorted(self._new_pieces(ends), key=lambda piece: piece[1])
        if text and not new:
            return Extension(self.plan(text), text, 0, 0)
        content = content._replace(pieces=[*content.pieces, *new])
        return Extension(self.plan(content.text()), content.text(), len(new), sum(len(cuts) - 1 for *_, cuts in new))

    def compacted(self, text: str, done: np.ndarray) -> str:
        """Returns a text without the ranges that are done, or whose bytes are gone: of these, it warns.

        Nor does the text have files that are gone, unless their pattern finds none at all, as while a mount is away:
        of these it has how far they were trained on, for when they are back.

        Args:
          done: int32 [ranges], how often each was trained on.
        """
        content, plan = _read(text), self.plan(text)
        ends, pieces, until_secs, number = dict(content.ends), [], content.until_secs, 0
        with self._lock:
            sizes, folders_away = self._sizes(), tuple(self._away)
        lost: dict[str, int] = {}  # file that is gone -> its first byte that was not trained on
        for name, seen_secs, cuts in content.pieces:
            ends[name] = max(ends.get(name, 0), cuts[-1])
            for start, stop in zip(cuts, cuts[1:]):
                number += 1
                if not done[number] and self._has(sizes, plan[number]):
                    pieces.append((name, seen_secs, [start, stop]))
                    continue
                until_secs = max(until_secs, seen_secs)
                if not done[number]:
                    lost.setdefault(name, start)
        waiting = {name for name, _, _ in pieces}
        gone = [name for name in ends if name not in waiting and self._size(sizes, name) is None]
        away = {name: lost.get(name, ends[name]) for name in gone if name.startswith(folders_away)}
        if away:
            _log.warning("input: %d files that were trained on are not there, nor is any other of their pattern; if "
                         "they come back, they are not trained on again", len(away))
        if len(gone) > len(away):
            _log.info("input: %d files that were trained on are gone; if they come back, they are trained on again",
                      len(gone) - len(away))
        ends = {name: end for name, end in {**ends, **away}.items() if name in away or name not in gone}
        return _Content(until_secs, ends, pieces).text()

    def _new_pieces(self, ends: dict[str, int]) -> list[tuple[str, float, list[int]]]:
        now_secs = time.time()
        changed = [(path, size) for path, size in self._sizes().items() if size != ends.get(path, 0)]

        def new_piece(file: tuple[str, int]) -> tuple[str, float, list[int]] | None:
            path, size = file
            try:
                if cuts := self._cuts(path, ends.get(path, 0), size):
                    seen_secs = now_secs if path in ends else min(now_secs, changed_secs(path))
                    return path, seen_secs, list(map(int, cuts))
            except (OSError, tf.errors.OpError, PsTrainError) as error:
                self._warn(path, f"{path} is not read: {_reason(error)}")
            return None

        with futures.ThreadPoolExecutor(NUM_THREADS) as pool:
            return [piece for piece in pool.map(new_piece, changed) if piece]

    def _sizes(self) -> dict[str, int]:
        """Returns path -> bytes of the files that match, but for those that are being written."""
        sizes: dict[str, int] = {}
        self.has_seen_all, self._away = True, []
        for pattern in self.patterns:
            found: dict[str, int] = {}
            try:
                found = sizes_now(pattern)
            except (OSError, tf.errors.OpError, PsTrainError) as error:
                self.has_seen_all = False
                self._warn(pattern, f"{pattern} cannot be looked for now: {_reason(error)}")
            if not found:
                self._away.append(fixed_folder(pattern if "://" in pattern else os.path.abspath(pattern)) + "/")
            sizes.update({path if "://" in path else os.path.abspath(path): size for path, size in found.items()
                          if not is_unfinished(name_behind(pattern, path))})
        return sizes

    def _size(self, sizes: Mapping[str, int], path: str) -> int | None:
        """Returns the bytes of a file, None if it is gone; the patterns may be others than those that found it."""
        return sizes[path] if path in sizes else size_now(path)

    def _cuts(self, path: str, start: int, size: int) -> Sequence[int]:
        if size < start and not is_stream(path):  # the text of a stream may end behind its bytes
            self._warn(path, f"{path} has {size} bytes, and had {start}: a file may only grow; it is read again when "
                       "it is longer than it was. Give new content a new name")
            return []
        cuts = self._cut(path, start, size)
        if start and cuts and cuts[0] != start:
            self._warn(path, f"{path} has no line that begins at byte {start}, up to which it was read: it was written "
                       f"anew, and is read from byte {cuts[0]} on. Give new content a new name")
        return cuts

    def _has(self, sizes: Mapping[str, int], part: FileRange) -> bool:
        size = self._size(sizes, part.file)
        if size is not None and (is_stream(part.file) or size >= part.stop):
            return True
        _log.warning("input: bytes %d to %d of %s are gone before they were trained on; going on without them",
                     part.start, part.stop, part.file)
        return False

    def _warn(self, path: str, text: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            _log.warning("input: %s", text)


class Freshness:
    """How long ranges took from their appearance to the end of training on them, as the chief sees it."""

    def __init__(self) -> None:
        """Has seen no range yet."""
        self._lag_secs: collections.deque[float] = collections.deque(maxlen=_LAST_RANGES)
        self._was_done: np.ndarray | None = None
        self.status: dict[str, Any] = {}

    def restart(self) -> None:
        """Forgets which ranges are done: those of a queue that has started again have other numbers."""
        self._was_done = None

    def note(self, text: str, done: np.ndarray) -> None:
        """Takes the ranges that are done since the last call as done now.

        Args:
          text: describes at least the ranges of `done`.
          done: int32 [ranges].
        """
        range_secs, now_secs = _read(text).range_secs()[:len(done)], time.time()
        if self._was_done is not None and len(self._was_done) <= len(done):
            was_done = np.pad(self._was_done, (0, len(done) - len(self._was_done)))
            self._lag_secs.extend((now_secs - range_secs[(done > 0) & (was_done == 0)]).tolist())
        self._was_done = done
        lag_secs = list(self._lag_secs)
        self.status = {
            "watermark": _watermark(range_secs, done), "ranges_waiting": int(np.sum(done == 0)),
            "trained_secs_p50": float(np.percentile(lag_secs, 50)) if lag_secs else None,
            "trained_secs_p99": float(np.percentile(lag_secs, 99)) if lag_secs else None}


def watermark(text: str, done: np.ndarray) -> float | None:
    """Returns the time, in seconds since 1970, before which all data that was seen is trained; None without data.

    Args:
      text: of growing files.
      done: int32 [ranges], how often each was trained on.
    """
    return _watermark(_read(text).range_secs()[:len(done)], done)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _watermark(range_secs: np.ndarray, done: np.ndarray) -> float | None:
    waiting = range_secs[done == 0]
    secs = float(waiting.min() if waiting.size else range_secs.max())
    return secs or None


@functools.lru_cache(maxsize=2)  # that of now is read each second
def _read(text: str) -> _Content:
    if not text:
        return _Content(0.0, {}, [])
    if not is_of_growth(text):
        raise MisfitError("input_files_differ", "its position is one of a training without --follow")
    return _Content(**json.loads(text.partition("\n")[2]))
