"""Makes, saves and restores the tables of a graph.

    new training    reset: room for the rows, no values
    a save          each ps writes its rows, piece by piece, beside the dense variables --> one checkpoint
    a restore       each ps reads the pieces that have rows of it; on another number of ps, all pieces
    with a delta    first the delta, then the rows of its checkpoint that are not in it, as far as there is room

Training goes on during a save. Each piece is as it was at one moment.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.embeddings.files import contents
from ps_train.embeddings.files.contents import SavedTable
from ps_train.embeddings.files.store_ops import StoreOps
from ps_train.embeddings.registry import Registry
from ps_train.embeddings.rows.row_ops import COUNTS, count_of
from ps_train.errors import CheckpointError

_log = logging.getLogger(__name__)
Call = tuple[Any, dict[Any, Any]]  # what to run, and its feed


class TableFiles:
    """The tables of one graph, as far as files are concerned.

    Attributes:
      specs: name -> table.
      stores: name -> the operations of its store on each ps.
      base: the checkpoint that a delta follows: the last one that was saved, or restored; "" if there is none.
    """

    def __init__(self, found: Registry) -> None:
        """Adds the operations to the current graph; none if it has no tables."""
        self.specs = dict(found.specs)
        self.base = ""
        self._since: dict[str, list[int]] = {}  # the updates of each store when the save of `base` began
        self.stores = {name: [StoreOps(store) for store in found.stores(name)] for name in self.specs}
        if self.specs:
            self._text = tf.placeholder(tf.string, [])
            self._prefix, self._prefixes = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [None])
            self._save_text_op = tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=[contents.KEY], shape_and_slices=[""], tensors=[self._text])
            self._merge_op = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._prefixes, destination_prefix=self._prefix, delete_old_dirs=True)

    def add_summaries(self) -> None:
        """Adds scalars for TensorBoard: of each table its rows, and the share of ids that updates have found."""
        for name, stores in self.stores.items():
            total = tf.add_n([store.counts for store in stores])
            used, free, hits, misses = (count_of(total, what) for what in ("used", "free", "hits", "misses"))
            tf.summary.scalar(f"tables/{name}/rows", used - free)
            tf.summary.scalar(f"tables/{name}/found", hits / tf.maximum(hits + misses, 1))
            for what in ("admitted", "evicted", "refused"):
                tf.summary.scalar(f"tables/{name}/{what}", count_of(total, what))

    def reset(self, session: tf.Session) -> None:
        """Empties all tables."""
        self.base = ""
        for name, stores in self.stores.items():
            for store in stores:
                try:
                    store.reset(session)
                except tf.errors.ResourceExhaustedError as error:
                    raise CheckpointError(
                        f"table {name}: ps {store.store.ps} has no room for {store.capacity} rows of "
                        f"{4 * store.store.width} bytes; use more ps, or a smaller num_rows or max_rows") from error

    def restore(self, session: tf.Session, path: str, delta: str | None = None) -> None:
        """Empties all tables, then reads their rows from a checkpoint, and from a delta to it.

        Raises:
          CheckpointError: a ps cannot read the checkpoint.
        """
        self.reset(session)
        if not self.specs:
            return
        newest = contents.read_tables(delta or path)
        self._add_from(session, delta or path, newest)
        self._warn_of_refused(session, delta or path)
        if delta:  # the checkpoint may have rows that were dropped since: they get the room that is left
            self._add_from(session, path, contents.read_tables(path), keeps_present=True)
        self._set_updates(session, newest)
        if not delta:  # else the next save comes at once, as there is no checkpoint of the delta's step
            self.base = path
            self._since = {name: [newest[name].updates] * len(stores) for name, stores in self.stores.items()}

    def _add_from(
        self, session: tf.Session, path: str, saved: Mapping[str, SavedTable], *, keeps_present: bool = False
    ) -> None:
        """Reads the rows in a checkpoint; with `keeps_present` only of the ids that have no row."""
        for name, stores in self.stores.items():
            calls = [_load_calls(saved[name], store, path, keeps_present=keeps_present) for store in stores]
            try:
                _run_side_by_side(session, calls)
            except tf.errors.NotFoundError as error:
                raise CheckpointError(
                    f"table {name}: a ps cannot read {path}: {error.message.splitlines()[0]}; each ps reads its own "
                    "rows, so --train_dir must be a folder that all ps share") from error

    def _set_updates(self, session: tf.Session, saved: Mapping[str, SavedTable]) -> None:
        for name, stores in self.stores.items():
            for store in stores:
                store.set_updates(session, saved[name].updates)

    def _warn_of_refused(self, session: tf.Session, path: str) -> None:
        for name, stores in self.counts(session).items():
            num_refused = sum(one["refused"] for one in stores)
            if num_refused:
                _log.warning("table %s: %d rows of %s have found no room; give a larger max_rows or more ps", name,
                             num_refused, path)

    def counts(self, session: tf.Session) -> dict[str, list[dict[str, int]]]:
        """Returns name -> for each ps, the counts of `row_ops.COUNTS` by name."""
        found = session.run({name: [store.counts for store in stores] for name, stores in self.stores.items()})
        return {name: [dict(zip(COUNTS, map(int, counts))) for counts in stores] for name, stores in found.items()}

    def save(self, session: tf.Session, path: str, dense: tf.train.Saver) -> None:
        """Writes the dense variables and the rows of all tables to one checkpoint.

        Args:
          path: of the checkpoint.
          dense: saves what is no table.
        """
        counts = self.counts(session)
        self._write(session, path, dense, counts, {})
        self._since = {name: [one["updates"] for one in stores] for name, stores in counts.items()}
        self.base = path

    def save_delta(self, session: tf.Session, path: str, dense: tf.train.Saver) -> None:
        """Writes the dense variables and the rows that have changed since `base`, which there must be; see `save`."""
        self._write(session, path, dense, self.counts(session), self._since)

    def _write(
        self, session: tf.Session, path: str, dense: tf.train.Saver, counts: Mapping[str, list[dict[str, int]]],
        since: Mapping[str, list[int]],
    ) -> None:
        """Writes a checkpoint or a delta.

        Args:
          counts: of each store, before the first row is written.
          since: name of a table -> for each ps, the update after which a row must have been touched; {} saves all.
        """
        parts = f"{path}_temp"
        os.makedirs(parts, exist_ok=True)
        prefixes = [dense.save(session, f"{parts}/dense", write_meta_graph=False, write_state=False)]
        saved = {}
        for table, (name, stores) in enumerate(self.stores.items()):
            after = since[name] if since else [-1] * len(stores)
            calls, pieces = [], []
            for store, own, update in zip(stores, counts[name], after):
                ranges = store.ranges(session, list(own.values()), update)
                names = [f"{name}/ps_{store.store.ps}_of_{len(stores)}/{number:06d}" for number in range(len(ranges))]
                files = [f"{parts}/{table}-{store.store.ps}-{number}" for number in range(len(ranges))]
                calls.append([store.save_call(*one, update) for one in zip(files, names, ranges)])
                prefixes += files
                pieces.append(names)
            _run_side_by_side(session, calls)
            saved[name] = contents.describe_table(
                self.specs[name], updates=max(one["updates"] for one in counts[name]), pieces=pieces)
        prefixes.append(f"{parts}/text")
        session.run(self._save_text_op, {self._prefix: prefixes[-1], self._text: contents.to_text(saved)})
        session.run(self._merge_op, {self._prefixes: prefixes, self._prefix: path})


def _load_calls(saved: SavedTable, store: StoreOps, path: str, *, keeps_present: bool) -> list[Call]:
    """Returns the calls that read the rows of one ps."""
    is_same_number = len(saved.pieces) == store.store.num_ps
    pieces = saved.pieces[store.store.ps] if is_same_number else itertools.chain.from_iterable(saved.pieces)
    return [store.load_call(path, name, keeps_present=keeps_present) for name in pieces]


def _run_side_by_side(session: tf.Session, by_ps: Iterable[list[Call]]) -> None:
    """Runs the first calls of all ps together, then the second ones, and so on."""
    for together in itertools.zip_longest(*by_ps):
        calls = [call for call in together if call is not None]
        feed = {placeholder: value for _, own in calls for placeholder, value in own.items()}
        session.run([op for op, _ in calls], feed)
