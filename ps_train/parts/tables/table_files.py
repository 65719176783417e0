"""Makes, saves and restores the tables of a graph, in bounded memory.

    new training    reset: room for the rows, no values
    a save          each ps writes its rows, piece by piece, next to the dense variables --> one checkpoint
    a restore       each ps reads the pieces that have rows of it; all pieces if they were dealt otherwise
    with a delta    first the delta, then the rows of its checkpoint that are not in it, as far as there is room

Each ps writes and reads its rows itself if all of them share the folder with the chief (folder_probe.py). Otherwise
the chief writes and reads them, and each piece crosses the network.

Training goes on during a save:

    large tables     all rows, then those that were touched meanwhile, until a pass is short
    the cut          the global step and the dense variables (storage/merging_saver.py)
    a last pass      the rows that were touched since; small tables whole

So the rows are ahead of the dense variables by no more than was trained from the cut to the end of the last pass.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables import contents, hashing
from ps_train.parts.tables.contents import SavedTable
from ps_train.parts.tables.folder_probe import FolderProbe
from ps_train.parts.tables.index import COUNTS, count_of
from ps_train.parts.tables.registry import Registry
from ps_train.parts.tables.rules import MAX_ROWS_PER_PS
from ps_train.parts.tables.store_ops import Call, StoreOps
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints
from ps_train.storage.merging_saver import PartWriter

_NOTED_MOMENTS = 100  # in the time after which rows are dropped
_USUAL_TIMES = 3.0  # the usual time between updates: a longer one is a pause
_SHORT_PASS_SECS = 0.5  # leaves little to the next one: what was trained meanwhile
_log = logging.getLogger(__name__)
Counts = dict[str, list[dict[str, int]]]  # name of a table -> for each ps, the counts of `index.COUNTS` by name


class TableClock:
    """The seconds in which a table was updated, and how many updates it had had by then; for `ttl_secs`.

    A pause does not count: a training that waits or stands still loses no row. A time without updates is a pause where
    it is longer than three times what was usual, as updates may come less often than this clock is asked.
    """

    def __init__(self, ttl_secs: float, noted: Iterable[Sequence[float]] = ()) -> None:
        """Goes on from what `noted` returned."""
        self._ttl_secs = ttl_secs
        self._noted = [(float(secs), int(updates)) for secs, updates in noted]
        self._secs, self._updates = self._noted[-1] if self._noted else (0.0, 0)
        self._seen_secs: float | None = None
        self._updated_secs = 0.0  # when it last saw an update
        self._usual_secs = 0.0  # between two times at which it did

    def noted(self) -> list[tuple[float, int]]:
        """Returns pairs of seconds and updates, the last one of now."""
        return [*self._noted, (self._secs, self._updates)]

    def oldest(self, updates: int, now_secs: float) -> int:
        """Returns the update since which a row must have been touched to stay; 0 if all stay.

        Args:
          updates: how many the table has had, the least on any ps.
          now_secs: of `time.monotonic`; time counts from the first call.
        """
        if self._seen_secs is None:
            self._seen_secs = self._updated_secs = now_secs
        if updates > self._updates:
            self._count_until(now_secs)
        self._seen_secs, self._updates = now_secs, updates
        if not self._noted or self._secs - self._noted[-1][0] >= self._ttl_secs / _NOTED_MOMENTS:
            self._noted.append((self._secs, updates))
        begin_secs = self._secs - self._ttl_secs
        while len(self._noted) > 1 and self._noted[1][0] <= begin_secs:
            self._noted.pop(0)
        secs, updates_then = self._noted[0]
        return updates_then + 1 if secs <= begin_secs else 0

    def _count_until(self, now_secs: float) -> None:
        """Counts the time until an update that is seen now: at least since the last look."""
        secs = max(now_secs - self._seen_secs, min(now_secs - self._updated_secs, _USUAL_TIMES * self._usual_secs))
        self._secs += secs
        # It follows longer times at once and shorter ones slowly: a few updates may come at once.
        self._usual_secs, self._updated_secs = max(secs, self._usual_secs / 2), now_secs


class TableFiles:
    """The tables of one graph, as far as files are concerned.

    Attributes:
      specs: name -> table.
      stores: name -> the operations of its store on each ps.
      clocks: name -> the clock of a table with `ttl_secs`.
      base: the checkpoint that a delta follows: the last one that was saved, or restored; "" for none.
    """

    def __init__(self, registry: Registry, local_device: str = "") -> None:
        """Adds the operations to the current graph; none if it has no tables.

        Args:
          local_device: the CPU of this task, which saves and restores if it is the chief; "" in a graph of one process.
        """
        self.specs = dict(registry.specs)
        self.base = ""
        self.clocks = self._clocks_at({})
        self._since: dict[str, list[int]] = {}  # the updates of each store when the save of `base` began
        self.stores = {name: [StoreOps(store, local_device) for store in registry.stores(name)] for name in self.specs}
        self._probe = FolderProbe(registry.devices) if local_device and self.specs else None
        self._uses_ps_files = True
        with tf.name_scope("ps_train/table_files"):
            self._text = tf.placeholder(tf.string, [])
            self._prefix = tf.placeholder(tf.string, [])
            self._save_text_op = tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=[contents.KEY], shape_and_slices=[""], tensors=[self._text])

    def add_summaries(self) -> None:
        """Adds scalars for TensorBoard: of each table its rows, and the share of ids that updates have found."""
        for name, stores in self.stores.items():
            total = tf.add_n([store.counts for store in stores])
            used, free, hits, misses = (count_of(total, count) for count in ("used", "free", "hits", "misses"))
            tf.summary.scalar(f"tables/{name}/rows", used - free)
            tf.summary.scalar(f"tables/{name}/found", hits / tf.maximum(hits + misses, 1))
            for count in ("admitted", "evicted", "refused"):
                tf.summary.scalar(f"tables/{name}/{count}", count_of(total, count))

    def reset(self, session: tf.Session) -> None:
        """Empties all tables."""
        self.base, self.clocks = "", self._clocks_at({})
        for name, stores in self.stores.items():
            for store in stores:
                try:
                    store.reset(session)
                except tf.errors.ResourceExhaustedError as error:
                    raise CheckpointError("table_too_large", (
                        f"table {name}: ps {store.store.ps} has no room for {store.capacity} rows of "
                        f"{store.store.format.stored_bytes} bytes; {store.advice_on_room}")) from error

    def restore(self, session: tf.Session, path: str, delta: str | None = None) -> None:
        """Empties all tables, then reads their rows from a checkpoint, and from a delta to it.

        Raises:
          CheckpointError: the checkpoint cannot be read.
        """
        if self.specs:
            self._note_coming([contents.most_rows(one) for one in (path, delta) if one])
        self.reset(session)
        if not self.specs:
            return
        newest = contents.read_tables(delta or path)
        if self._probe:
            self._set_uses_ps_files(all(self._probe.can_read(session, one) for one in (path, delta) if one), path)
        self._load_rows(session, delta or path, newest)
        self._load_seen(session, delta or path, newest)
        self.warn_of_refused(session, delta or path)
        if delta:  # the checkpoint may have rows that were dropped since: they get the room that is left
            self._load_rows(session, path, contents.read_tables(path), keeps_present=True)
        self.clocks = self._clocks_at(newest)
        for name, stores in self.stores.items():
            for store in stores:
                store.set_updates(session, newest[name].updates)
        # Each ps had its own number of updates when the checkpoint was saved: the marks in the delta say more.
        since = {name: contents.least_mark(delta, newest[name]) - 1 if delta else newest[name].updates
                 for name in self.stores}
        self._note_base(path, {name: [since[name]] * len(stores) for name, stores in self.stores.items()})

    def _note_coming(self, num_rows: Sequence[Mapping[str, int]]) -> None:
        """Lets the next `reset` make room for the rows of all these files, by the name of their table."""
        for name, stores in self.stores.items():
            for store in stores:
                store.num_coming = sum(of_file[name] for of_file in num_rows)

    def make_room(self, session: tf.Session, name: str, num_rows: int) -> None:
        """Makes room for so many rows in a table, which must be empty, unless it has max_rows or a fixed number."""
        for store in self.stores[name]:
            room, store.num_coming = store.capacity, num_rows
            if store.capacity > room:
                store.reset(session)

    def _clocks_at(self, saved: Mapping[str, SavedTable]) -> dict[str, TableClock]:
        """Returns the clocks of all tables with `ttl_secs`, as they were in a checkpoint."""
        return {name: TableClock(spec.ttl_secs, saved[name].clock if name in saved else ())
                for name, spec in self.specs.items() if spec.ttl_secs}

    def _set_uses_ps_files(self, uses_ps_files: bool, path: str) -> None:
        if uses_ps_files != self._uses_ps_files:
            _log.info("the ps %s the files in %s%s", "read and write" if uses_ps_files else "cannot use",
                      os.path.dirname(path), "" if uses_ps_files else "; the rows of tables pass through this task")
        self._uses_ps_files = uses_ps_files
        for stores in self.stores.values():
            for store in stores:
                store.uses_ps_files = uses_ps_files

    def _load_rows(
        self, session: tf.Session, path: str, saved: Mapping[str, SavedTable], *, keeps_present: bool = False
    ) -> None:
        """Reads the rows in a checkpoint; with `keeps_present` only of the ids that have no row."""
        for name, stores in self.stores.items():
            calls = [_load_calls(saved[name], store, path, keeps_present=keeps_present) for store in stores]
            try:
                _run_side_by_side(session, calls)
            except tf.errors.NotFoundError as error:
                raise CheckpointError("checkpoint_unreadable", f"table {name}: checkpoint {path} cannot be read: "
                                      f"{reason(error)}; start again, which skips what cannot be read") from error

    def _load_seen(self, session: tf.Session, path: str, saved: Mapping[str, SavedTable]) -> None:
        """Reads how often ids without a row were seen.

        These are counts by hash. On another number of ps, it is not known which ids of a hash went where: the largest
        count of all ps holds, so no id counts less than it was seen.
        """
        for name, stores in self.stores.items():
            seen = contents.known_seen(path, name, saved[name]) if stores[0].counts_unseen else []
            for store in stores:
                for ps in _ps_of(saved[name], store) if seen else ():
                    store.load_seen(session, path, seen[ps])

    def warn_of_refused(self, session: tf.Session, path: str) -> None:
        """Warns of the rows of a checkpoint for which there was no room."""
        for name, counts in self.counts(session).items():
            if num_refused := sum(of_ps["refused"] for of_ps in counts):
                _log.warning("table %s: no room for %d rows of %s; give a larger max_rows or more ps", name,
                             num_refused, path)

    def counts(self, session: tf.Session) -> Counts:
        """Returns the counts of all tables."""
        counts = session.run({name: [store.counts for store in stores] for name, stores in self.stores.items()})
        return {name: [dict(zip(COUNTS, map(int, of_ps))) for of_ps in of_table] for name, of_table in counts.items()}

    def begin_save(self, session: tf.Session, folder: str, is_delta: bool) -> TableWriter:
        """Begins to write all rows, or those that have changed since `base`, which must not be "" then."""
        if self._probe:
            self._set_uses_ps_files(self._probe.can_write(session, folder), folder)
        since = self._since if is_delta else {name: [-1] * len(stores) for name, stores in self.stores.items()}
        return TableWriter(self, session, folder, since, note=None if is_delta else self._note_base)

    def _note_base(self, path: str, since: dict[str, list[int]]) -> None:
        self.base, self._since = path, since

    def delta_path_of(self) -> Callable[[int], str] | None:
        """Returns a function of the global step that names a delta; None without a checkpoint that it could follow."""
        base = self.base
        return functools.partial(contents.delta_path, base) if base and checkpoints.exists(base) else None

    def write_text(self, session: tf.Session, prefix: str, saved: Mapping[str, SavedTable]) -> None:
        """Writes the text of a checkpoint to a file."""
        session.run(self._save_text_op, {self._prefix: prefix, self._text: contents.to_text(saved)})


class ReadOnlyTables(TableFiles):
    """Tables whose rule is `Frozen`: they have room for the rows of a checkpoint, on however many ps it was trained."""

    def restore(self, session: tf.Session, path: str, delta: str | None = None) -> None:
        """Empties all tables, then reads their rows from a checkpoint; read-only tables have no delta.

        Raises:
          CheckpointError: the checkpoint cannot be read, or has more rows of a table than one process can hold.
        """
        num_rows = contents.most_rows(path) if self.specs else {}
        for name, stores in self.stores.items():
            if num_rows[name] > MAX_ROWS_PER_PS:
                raise CheckpointError("table_too_large", (
                    f"table {name}: {path} has {num_rows[name]} rows; allowed: at most {MAX_ROWS_PER_PS} in one "
                    "process; evaluate with --evaluate_with=workers, or train with a smaller max_rows"))
            for store in stores:
                store.num_saved = num_rows[name]
        super().restore(session, path, delta)


class TableWriter(PartWriter):
    """Writes the tables of one checkpoint or delta.

    Attributes:
      since: name of a table -> for each ps, the update up to which all changes of its rows are written.
    """

    def __init__(
        self, tables: TableFiles, session: tf.Session, folder: str, since: Mapping[str, list[int]],
        note: Callable[[str, dict[str, list[int]]], None] | None,
    ) -> None:
        """Writes nothing yet.

        Args:
          folder: of the files.
          since: name of a table -> for each ps, the update after which a row must have been touched to be written.
          note: called with the path of the finished checkpoint, and with `since` as it is then; or None.
        """
        self._tables, self._session, self._folder, self._note = tables, session, folder, note
        self.since = {name: list(updates) for name, updates in since.items()}
        self._prefixes: list[str] = []
        self._pieces = {name: [[] for _ in stores] for name, stores in tables.stores.items()}
        self._later = {name: [[] for _ in stores] for name, stores in tables.stores.items()}
        self._begun: set[tuple[str, int]] = set()  # the stores that an earlier pass has written

    def write_ahead(self) -> None:
        """Writes the rows of large stores, then those that were touched meanwhile, as long as these become fewer."""
        previous_secs = math.inf
        while True:
            start_secs = time.monotonic()
            self._write_rows(is_last=False)
            secs = time.monotonic() - start_secs
            if secs < _SHORT_PASS_SECS or secs > previous_secs / 2:  # rows are touched as fast as they are written
                return
            previous_secs = secs

    def write(self) -> list[str]:
        """Writes the remaining rows as they are now, and the text; returns the prefixes of all files."""
        counts = self._write_rows(is_last=True)
        saved = {name: SavedTable(
            dim=spec.dim, num_slots=spec.rule.num_slots(spec.dim), num_rows=spec.num_rows, rule=spec.rule.name,
            updates=max(of_ps["updates"] for of_ps in counts[name]), pieces=self._pieces[name],
            later=self._later[name], seen=self._write_seen(name), dealt=hashing.MIXED,
            clock=self._tables.clocks[name].noted() if name in self._tables.clocks else [])
            for name, spec in self._tables.specs.items()}
        self._tables.write_text(self._session, self._new_file("text"), saved)
        return self._prefixes

    def merged(self, path: str) -> None:
        """Makes the checkpoint the one that the next delta follows."""
        if self._note:
            self._note(path, self.since)

    def _new_file(self, name: str) -> str:
        self._prefixes.append(f"{self._folder}/{name}")
        return self._prefixes[-1]

    def _write_rows(self, *, is_last: bool) -> Counts:
        """Writes the rows that were touched since the previous pass; only of large stores unless this is the last pass.

        Returns:
          The counts before the first row was read.
        """
        counts = self._tables.counts(self._session)
        for name, stores in self._tables.stores.items():
            chosen = [ps for ps, store in enumerate(stores) if is_last or store.is_large(counts[name][ps])]
            _run_side_by_side(self._session, [self._save_calls(name, ps, counts[name][ps]) for ps in chosen])
            for ps in chosen:  # not earlier: a row that was touched since these counts may have been written too early
                self.since[name][ps] = counts[name][ps]["updates"]
                self._begun.add((name, ps))
        return counts

    def _write_seen(self, name: str) -> list[str]:
        """Writes how often ids without a row were seen; returns the names of these counts."""
        names, stores = [], self._tables.stores[name]
        for ps, store in enumerate(stores):
            if store.counts_unseen:
                names.append(f"{name}/ps_{ps}_of_{len(stores)}/{contents.SIGHTINGS}")
                store.save_seen(self._session, self._new_file(f"{self._number_of(name)}-{ps}-seen"), names[-1])
        return names

    def _number_of(self, name: str) -> int:
        return list(self._pieces).index(name)

    def _save_calls(self, name: str, ps: int, counts: Mapping[str, int]) -> list[Call]:
        """Returns the calls that write the rows of one store, each range of them to a file."""
        stores, since = self._tables.stores[name], self.since[name][ps]
        names = (self._later if (name, ps) in self._begun else self._pieces)[name][ps]
        calls = []
        for rows in stores[ps].ranges(self._session, counts, since):
            number = len(self._pieces[name][ps]) + len(self._later[name][ps])
            names.append(f"{name}/ps_{ps}_of_{len(stores)}/{number:06d}")
            prefix = self._new_file(f"{self._number_of(name)}-{ps}-{number}")
            calls.append(stores[ps].save_call(prefix, names[-1], rows, since))
        return calls


def _load_calls(saved: SavedTable, store: StoreOps, path: str, *, keeps_present: bool) -> list[Call]:
    """Returns the calls that read the rows of one ps; of an id that was saved several times, the last row counts."""
    # The newest rows come first, not last: near max_rows, a row that was dropped since must not take another's room.
    return [store.load_call(path, piece, keeps_present=keeps_present or saved.has_repeated)
            for ps in _ps_of(saved, store) for piece in saved.newest_first(ps)]


def _ps_of(saved: SavedTable, store: StoreOps) -> Sequence[int]:
    """Returns the ps that had the rows that a store needs: all if the ids were dealt otherwise."""
    is_dealt_alike = len(saved.pieces) == store.store.num_ps and saved.dealt == hashing.MIXED
    return [store.store.ps] if is_dealt_alike else range(len(saved.pieces))


def _run_side_by_side(session: tf.Session, by_ps: Iterable[list[Call]]) -> None:
    """Runs the first calls of all ps together, then the second ones, and so on."""
    for together in itertools.zip_longest(*by_ps):
        calls = [call for call in together if call is not None]
        session.run([op for op, _ in calls],
                    {placeholder: value for _, feed in calls for placeholder, value in feed.items()})
