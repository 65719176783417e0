"""Reads the history of a training from the files that tests/plugins/recorded.py and the chief write.

    while it trains    Observer.look: what the chief restores and saves, and when ps 0 has new parameters; it keeps each
                       checkpoint and delta in a folder, as the chief removes old ones
    at the end         Observer.read --> History, for tests/history.py
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator

from tests.history import GENERATION, RESTORED, SAVED, Board, Event, History, Line, Saved, Taken

_PATH = r"(\S*model\.ckpt-\d+(?:\.delta-\d+)?)"
_CHIEF_LINE = re.compile(
    rf"(?P<restored>continuing from|restoring all ps from|starting from new parameters|STARTING AGAIN)(?: {_PATH}$)?|"
    rf"saved {_PATH}$", re.MULTILINE)
_DROPPED = re.compile(r"(\d+) gradients came too late")
_TABLES = ("fixed", "dynamic")


class Observer:
    """Watches one training.

    Attributes:
      folder: of the files of the model, its parameter `history`.
    """

    def __init__(self, folder: pathlib.Path, num_ps: int) -> None:
        """Makes the folder; call it before a task starts."""
        self.folder, self._num_ps = folder, num_ps
        self._kept = folder / "checkpoints"
        self._kept.mkdir(parents=True)
        self._events: list[Event] = []
        self._generations: set[str] = set()
        self._read_bytes = 0
        self._num_dropped = 0

    def look(self, chief_lines: str) -> None:
        """Notes what has happened since the last call.

        Args:
          chief_lines: the whole lines that the chief has printed since then.
        """
        for match in _CHIEF_LINE.finditer(chief_lines):
            path = match[2] or match[3] or ""
            if path:
                self._keep(path)
            self._events.append(Event(RESTORED if match["restored"] else SAVED, os.path.basename(path)))
        self._num_dropped = int(next(iter(_DROPPED.findall(chief_lines)), self._num_dropped))
        for line in self._new_lines_of_first_ps():
            generation = line.board.generation
            if generation not in self._generations:  # after what the chief has printed: it comes first
                self._generations.add(generation)
                self._events.append(Event(GENERATION, generation))

    def _keep(self, path: str) -> None:
        base = path.partition(".delta-")[0]
        for prefix in {path, base}:
            for file in pathlib.Path(prefix).parent.glob(f"{os.path.basename(prefix)}.*"):
                kept = self._kept / file.name
                if re.search(r"\.(index|data-\S+)$", file.name) and not kept.exists():
                    os.link(file, kept)

    def _new_lines_of_first_ps(self) -> Iterator[Line]:
        path = self.folder / "ps-0"
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self._read_bytes)
            lines, line_break, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(lines) + len(line_break)
        yield from map(parse_line, lines.decode().splitlines())

    def read(self) -> History:
        """Returns the whole history, after the end of all tasks."""
        return History(
            taken=_read_taken(self.folder),
            lines=[_read_lines(self.folder / f"ps-{index}") for index in range(self._num_ps)],
            events=self._events,
            saved={event.name: read_saved(str(self._kept / event.name)) for event in self._events
                   if event.name and event.kind != GENERATION},
            num_dropped=self._num_dropped)


def parse_line(text: str) -> Line:
    """Returns an update from its line in the file of a ps; see `RecordedSgd`."""
    table, rows, *of_board = text.split("|")
    counts: dict[int, float] = {}
    values = list(map(int, rows.split()))
    for count, weighted in zip(values[::2], values[1::2]):
        number = weighted // count
        counts[number] = max(count, counts.get(number, 0))
    if not of_board:
        return Line(table, counts)
    step, generation, clock, claims, joined, finished, heartbeats, step_counts = of_board
    ints, floats = ([list(map(kind, field.split())) for field in fields] for kind, fields in (
        (int, (claims, joined, finished, step_counts)), (float, (clock, heartbeats))))
    return Line(table, counts, Board(
        step=int(step), generation=generation, clock=floats[0][0], claims=ints[0], joined=ints[1], finished=ints[2],
        heartbeats=floats[1], step_counts=ints[3]))


def _read_lines(path: pathlib.Path) -> list[Line]:
    return [parse_line(line) for line in path.read_text().splitlines()] if path.exists() else []


def _read_taken(folder: pathlib.Path) -> dict[int, Taken]:
    """Returns all numbers that were drawn."""
    workers = [int(text) for text in (folder / "drawn").read_text().split()]
    taken = {number: Taken(worker, f"none of {number}", None) for number, worker in enumerate(workers)}
    for path in sorted(folder.glob("worker-*")):
        for number, session, step in parse_worker(path.name, path.read_text().splitlines()):
            taken[number] = Taken(workers[number], session, step)
    return taken


def parse_worker(name: str, lines: list[str]) -> Iterator[tuple[int, str, int | None]]:
    """Yields (number, its session, global step after its run or None) of the file of a process."""
    num_sessions, begun = 0, []
    for line in [*lines, "session"]:
        kind, _, value = line.partition(" ")
        if kind == "begin":
            begun.append(int(value))
            continue
        step = int(value) if kind == "done" else None
        yield from ((number, f"{name} {num_sessions}", step) for number in begun)
        begun = []
        num_sessions += kind == "session"


def read_saved(path: str) -> Saved:
    """Returns the contents of a checkpoint, or those of a delta and of the checkpoint that it follows."""
    # They import TensorFlow, which takes seconds.
    import tensorflow.compat.v1 as tf  # noqa: PLC0415

    import ps_train  # noqa: PLC0415

    base = path.partition(".delta-")[0]
    rows = {name: {int(key): float(value[0]) for part in dict.fromkeys((base, path))
                   for ids, values in ps_train.read_table(part, name) for key, value in zip(ids, values)}
            for name in _TABLES}
    reader = tf.train.load_checkpoint(path)
    counts = [reader.get_tensor(f"counts_{index}") for index in range(2)]
    return Saved(rows, [{int(number): float(of_variable[number]) for number in of_variable.nonzero()[0]}
                        for of_variable in counts])
