"""Checks the history of a training with the model tests/plugins/recorded.py: what was applied, saved and restored.

    find_violations(History, Promise) --> a line for each promise of docs/ that did not hold

    applied once     no ps applies an update twice, in the whole history
    nothing lost     a checkpoint has the updates of all session runs that had succeeded by its global step, and all of
                     the checkpoint that its training began with; in sync, dropped gradients excepted, which are counted
    rows ahead       a checkpoint has the rows of each update of which it has the dense variables
    newest           a restore takes the newest checkpoint or delta
    share            a dense variable has an update whole; in sync and with local steps, its share
    bound            no worker is further ahead of a training one than --staleness_bound

A number is that of a mini-batch. tests/history_files.py reads a history from the files of a training.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

_CLOSE = 1e-5
_ORDERED = "fixed"  # the table with a row of each number on each ps
RESTORED, SAVED, GENERATION = "restored", "saved", "generation"  # the kinds of events


class Promise(NamedTuple):
    """What the mode of a training promises.

    Attributes:
      num_workers: at most so many share an update.
      has_shares: whether dense variables get a share of an update.
      may_drop: whether a gradient of a run that succeeded may be in no update.
      has_async_rows: whether the rows have each gradient, in its own update, also one that is dropped.
      bound: --staleness_bound, or None.
      heartbeat_timeout_secs: after which a worker without a heartbeat does not count.
      is_undisturbed: whether there was no fault.
    """

    num_workers: int = 3
    has_shares: bool = False
    may_drop: bool = False
    has_async_rows: bool = False
    bound: Optional[int] = None
    heartbeat_timeout_secs: float = 4.0
    is_undisturbed: bool = False


class Board(NamedTuple):
    """What ps 0 knew when it applied an update; the sequences have an element for each worker.

    Attributes:
      step: the global step before it.
      generation: names the preparation of the parameters by the chief.
      clock, heartbeats: seconds.
      claims: the process that has the worker's number, 0 for none.
      joined: that which trains.
      finished: 1 for a worker that takes no further step.
      step_counts: what the staleness bound compares, before this update is counted.
    """

    step: int
    generation: str
    clock: float
    claims: Sequence[int]
    joined: Sequence[int]
    finished: Sequence[int]
    heartbeats: Sequence[float]
    step_counts: Sequence[int]


class Line(NamedTuple):
    """An update of a table on a ps.

    Attributes:
      table: its name.
      counts: number -> how often its rows have been updated, this update included.
      board: on ps 0; None on any other.
    """

    table: str
    counts: Mapping[int, float]
    board: Optional[Board] = None


class Taken(NamedTuple):
    """A mini-batch that a worker has begun.

    Attributes:
      worker: its number.
      session: names its session.
      step: the global step after the session run, or None if the run has not succeeded.
    """

    worker: int
    session: str
    step: Optional[int]


class Saved(NamedTuple):
    """The contents of a checkpoint, or of a delta with the checkpoint that it follows.

    Attributes:
      rows: name of a table -> id, which is twice the number or one more -> count.
      dense: for each variable, number -> count.
    """

    rows: Mapping[str, Mapping[int, float]]
    dense: Sequence[Mapping[int, float]]

    def has_all(self, number: int) -> bool:
        """Returns whether each row and variable has the update."""
        return self.has_rows(number, *self.rows) and all(number in counts for counts in self.dense)

    def has_rows(self, number: int, *tables: str) -> bool:
        """Returns whether the rows of these tables have the update."""
        return all(2 * number + place in self.rows[table] for table in tables for place in range(2))

    def missing_of(self, other: Saved) -> list[str]:
        """Returns what the other one has and this one has not, or has otherwise."""
        pairs = [*((f"row {key} of {name}", key, of_table, self.rows[name]) for name, of_table in other.rows.items()
                   for key in of_table),
                 *((f"number {key} of variable {index}", key, counts, self.dense[index])
                   for index, counts in enumerate(other.dense) for key in counts)]
        return [text for text, key, theirs, own in pairs if own.get(key) != theirs[key]]


class Event(NamedTuple):
    """Something that was seen, in this order: a restore or a save of `name`, or the first update of a generation."""

    kind: str
    name: str


class History(NamedTuple):
    """The history of a training.

    Attributes:
      taken: number -> the mini-batch.
      lines: of each ps.
      events: what happened to the parameters; a restore of "" begins with new ones.
      saved: name of each checkpoint in `events` -> its contents.
      num_dropped: gradients that the chief has counted as dropped, since the parameters were prepared last.
    """

    taken: Mapping[int, Taken]
    lines: Sequence[Sequence[Line]]
    events: Sequence[Event]
    saved: Mapping[str, Saved]
    num_dropped: int = 0

    def of_table(self, ps: int, table: str = _ORDERED) -> list[Line]:
        """Returns the updates of a table on a ps."""
        return [line for line in self.lines[ps] if line.table == table]

    def generations(self) -> dict[int, str]:
        """Returns number -> generation of the parameters that it was applied to, as far as ps 0 has applied it."""
        return {number: line.board.generation for line in self.of_table(0) for number in line.counts}

    def on_all_ps(self) -> set[int]:
        """Returns the numbers that each ps has applied; a late gradient of sync may be in time for a part only."""
        return set.intersection(*({number for line in self.of_table(ps) for number in line.counts}
                                  for ps in range(len(self.lines))))


class _Segment(NamedTuple):
    """The checkpoints that were saved between two restores.

    Attributes:
      origin: what was restored, or "".
      saved: their names.
      generations: of the parameters, usually one.
    """

    origin: str
    saved: list[str]
    generations: set[str]

    @property
    def newest(self) -> str:
        """The last one that was saved, or what was restored."""
        return self.saved[-1] if self.saved else self.origin


def find_violations(history: History, promise: Promise) -> list[str]:
    """Returns a line for each promise that did not hold."""
    segments = _segments(history)
    return [*_applied_twice(history), *_restored_older(history), *_not_applied(history, promise),
            *_lost(history, segments, promise), *_dropped(history, segments, promise), *_behind(history, promise),
            *_wrong_shares(history, promise), *_over_bound(history, promise), *_miscounted(history, promise),
            *(_unequal(history, promise) if promise.is_undisturbed else [])]


def describe(history: History, promise: Promise) -> str:
    """Returns the size of a history as text, and what was lost or left half done in it as its promises allow."""
    on_ps = [{number for line in lines for number in line.counts} for lines in history.lines]
    confirmed = {number for number, taken in history.taken.items() if taken.step is not None}
    final = history.saved[_segments(history)[-1].newest]
    texts = [f"{len(history.taken)} mini-batches begun, {len(confirmed)} of runs that succeeded",
             f"{sum(map(final.has_all, history.taken))} in the last checkpoint",
             f"{sum(event.kind == SAVED for event in history.events)} saves",
             f"{len(set(history.generations().values()))} generations",
             f"{len(set.union(*on_ps) - set.intersection(*on_ps))} applied on some ps only"]
    if promise.may_drop:
        texts.append(f"{len(confirmed - set.union(*on_ps))} of runs that succeeded dropped")
    if promise.bound is not None:
        texts.append(f"lead {max((lead for *_, lead in _leads(history, promise)), default=0)} of {promise.bound}")
    return ", ".join(texts)


def _segments(history: History) -> list[_Segment]:
    segments: list[_Segment] = []
    for event in history.events:
        if event.kind == RESTORED:
            segments.append(_Segment(event.name, [], set()))
        elif event.kind == SAVED:
            segments[-1].saved.append(event.name)
        elif not any(event.name in segment.generations for segment in segments):
            segments[-1].generations.add(event.name)
    return segments


def _applied_twice(history: History) -> Iterator[str]:
    for ps, lines in enumerate(history.lines):
        applied = collections.Counter((line.table, number) for line in lines for number in line.counts)
        yield from (f"ps {ps} has updated {table} {times} times by {number}"
                    for (table, number), times in applied.items() if times > 1)
        yield from (f"ps {ps} has {number} {count:g} times in {line.table}"
                    for line in lines for number, count in line.counts.items() if count != 1)
    applied_by = {line.table: set() for lines in history.lines for line in lines}
    for lines in history.lines:
        for line in lines:
            applied_by[line.table].update(line.counts)
    for name, saved in history.saved.items():
        for table, rows in saved.rows.items():
            yield from (f"{name} has row {key} of {table} {count:g} times" for key, count in rows.items() if count != 1)
            yield from (f"{name} has row {key} of {table}, which no ps has updated"
                        for key in rows if key // 2 not in applied_by.get(table, ()))


def _restored_older(history: History) -> Iterator[str]:
    """A chief that was killed may have saved one that its log does not have, so a newer one is right, too."""
    last = ""
    for event in history.events:
        if event.kind == RESTORED and last and event.name != last and (
                not event.name or _step_of(event.name) < _step_of(last)):
            yield f"{event.name or 'new parameters'} restored, and not {last}, which is newer"
        if event.kind == SAVED:
            last = event.name


def _not_applied(history: History, promise: Promise) -> Iterator[str]:
    for ps in range(0 if promise.may_drop and not promise.has_async_rows else len(history.lines)):
        applied = {number for line in history.of_table(ps) for number in line.counts}
        yield from (f"the run with {number} of worker {taken.worker} has succeeded, and ps {ps} has not applied it"
                    for number, taken in history.taken.items() if taken.step is not None and number not in applied)


def _lost(history: History, segments: Sequence[_Segment], promise: Promise) -> Iterator[str]:
    generations = history.generations()
    has = (lambda saved, number: saved.has_rows(number, _ORDERED)) if promise.may_drop else Saved.has_all
    on_all = history.on_all_ps()
    for segment in segments:
        due = {number: taken.step for number, taken in history.taken.items() if taken.step is not None
               and generations.get(number) in segment.generations and (number in on_all or not promise.may_drop)}
        for name in segment.saved:
            # A gradient that is dropped may reach the rows during a save of the step at which its run ends; `_behind`
            # finds one that is not dropped.
            saved, step = history.saved[name], _step_of(name) - int(promise.has_async_rows)
            yield from (f"{name} has lost {number}, whose run ended at step {due[number]}"
                        for number in due if due[number] <= step and not has(saved, number))
            if segment.origin:
                yield from (f"{name} has lost {text}, which {segment.origin} has"
                            for text in saved.missing_of(history.saved[segment.origin]))


def _dropped(history: History, segments: Sequence[_Segment], promise: Promise) -> Iterator[str]:
    """A session has one generation: that of the numbers of it that were applied."""
    if not promise.may_drop:
        return
    generations = history.generations()
    of_session = {taken.session: generations[number] for number, taken in history.taken.items()
                  if number in generations}
    missing = [number for number, taken in history.taken.items() if taken.step is not None
               and number not in generations and of_session.get(taken.session) in segments[-1].generations]
    if len(missing) > history.num_dropped:
        yield f"{len(missing)} gradients were dropped, and {history.num_dropped} are counted: {missing[:10]}"


def _behind(history: History, promise: Promise) -> Iterator[str]:
    on_all = history.on_all_ps()
    for name, saved in history.saved.items():
        # A late gradient of sync may be in time for the variables, and too late for the tables.
        numbers = set().union(*saved.dense)
        for table in [_ORDERED] if promise.may_drop and not promise.has_async_rows else saved.rows:
            yield from (f"{name} has {number} in a variable, and not in {table}"
                        for number in (numbers & on_all if promise.may_drop else numbers)
                        if not saved.has_rows(number, table))


def _wrong_shares(history: History, promise: Promise) -> Iterator[str]:
    sharers = {number: len(line.counts) for line in history.of_table(0) for number in line.counts}
    for name, saved in history.saved.items():
        for index, counts in enumerate(saved.dense):
            for number, count in counts.items():
                allowed = ([1.0] if not promise.has_shares else [1 / sharers[number]]
                           if promise.is_undisturbed and promise.may_drop and not promise.has_async_rows else
                           [1 / workers for workers in range(1, promise.num_workers + 1)])
                if all(abs(count - share) > _CLOSE for share in allowed):
                    yield f"{name} has {number} {count:g} times in variable {index}"


def _leads(history: History, promise: Promise) -> Iterator[tuple[int, int, int]]:
    """Yields (worker, other worker, lead after an update), where the other one has trained since the update before."""
    last: dict[tuple[int, int], Board] = {}
    for line in history.of_table(0):
        board = line.board
        for number in line.counts:
            worker = history.taken[number].worker
            before = last.get((worker, board.claims[worker]))
            last[worker, board.claims[worker]] = board
            if before is None or before.generation != board.generation:
                continue
            for other in range(promise.num_workers):
                if other != worker and _has_trained(other, before, board, promise.heartbeat_timeout_secs):
                    yield worker, other, board.step_counts[worker] + 1 - board.step_counts[other]


def _has_trained(worker: int, before: Board, board: Board, timeout_secs: float) -> bool:
    """Returns whether a worker has trained at each moment between two updates."""
    is_same = board.claims[worker] == before.claims[worker] == board.joined[worker] == before.joined[worker] != 0
    # In a new session of its process, it begins with the count of the slowest one.
    has_rejoined = board.step_counts[worker] < before.step_counts[worker]
    is_alive = not board.finished[worker] and board.clock - before.heartbeats[worker] < timeout_secs
    return is_same and is_alive and not has_rejoined


def _over_bound(history: History, promise: Promise) -> Iterator[str]:
    if promise.bound is not None:
        yield from (f"worker {worker} is {lead} steps ahead of worker {other}; the bound is {promise.bound}"
                    for worker, other, lead in _leads(history, promise) if lead > promise.bound)


def _miscounted(history: History, promise: Promise) -> Iterator[str]:
    """The counts that the bound compares rise by 1 with each update of a session."""
    last: dict[str, int] = {}
    for line in history.of_table(0) if promise.bound is not None else []:
        for number in line.counts:
            taken = history.taken[number]
            count = line.board.step_counts[taken.worker]
            if last.get(taken.session, count - 1) != count - 1:
                yield f"worker {taken.worker} has a count of {count} at {number}, after {last[taken.session]}"
            last[taken.session] = count


def _unequal(history: History, promise: Promise) -> Iterator[str]:
    """Without a fault, all ps apply the same numbers together; with one, a gradient may come late for some ps."""
    first = {number: frozenset(line.counts) for line in history.of_table(0) for number in line.counts}
    for ps in range(1, len(history.lines)):
        yield from (f"ps 0 and ps {ps} differ in the update with {number}" for line in history.of_table(ps)
                    for number in line.counts if first.get(number) != frozenset(line.counts))
    final = history.saved[_segments(history)[-1].newest]
    yield from (f"{number} is not in the last checkpoint" for number, taken in history.taken.items()
                if taken.step is not None and not final.has_all(number))


def _step_of(name: str) -> int:
    return int(name.rpartition("-")[2])
