"""The part of embedding tables in a worker: how they are trained, what drops old rows, and how they are used.

    ttl_steps   rows that this many updates of the table did not touch
    max_rows    of a table that is nearly full, the least recently updated rows
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ClusterLostError
from ps_train.graph import placement
from ps_train.part import Part
from ps_train.parts.tables import parameters
from ps_train.parts.tables.parameters import TableParameters, TableSettings
from ps_train.parts.tables.rules import RULES, RowRule
from ps_train.parts.tables.store_ops import StoreOps
from ps_train.parts.tables.table_files import Counts, TableFiles
from ps_train.runtime import waits
from ps_train.storage.merging_saver import SavedPart

UPKEEP_SECS = 5.0  # between two checks of the tables
_FULL, _DROPPED = 0.95, 0.1  # of the capacity: when rows are dropped, and how many
_SAMPLED = 100_000
_log = logging.getLogger(__name__)


class TablesPart(Part):
    """The tables of the training graph of one worker."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the rule and the other settings from the flags."""
        self._cluster, self._save_timeout_secs = cluster, config.save_timeout_secs
        self._settings = TableSettings(
            rule=table_rule(config), is_exact=config.exact_embedding_updates,
            sums_gradients=config.sum_embedding_gradients, delta_secs=config.save_delta_secs,
            local_device=f"{cluster.task.device}/cpu:0" if cluster.is_chief else "")
        self._tables: TableParameters | None = None
        self._shares: list[dict[str, Any]] = []  # of the latest check

    def begin_graph(self) -> None:
        """Gives the graph a registry of tables."""
        self._tables = parameters.install_tables([ps.device + "/cpu:0" for ps in self._cluster.ps], self._settings)

    def saved_part(self) -> SavedPart | None:
        """Returns what writes the rows; None if the model has no tables."""
        self._tables.add_saving()
        return self._tables.files.begin_save if self._tables.specs else None

    @contextlib.contextmanager
    def running(self, session: Any, is_live: bool) -> Iterator[None]:
        """Returns a context in which the chief drops old rows; after the last save, it logs how each table was used."""
        if not (self._cluster.is_chief and self._tables and self._tables.specs):
            yield
            return
        stop = threading.Event()
        # Nothing waits for its last call to a ps, which may hang.
        threading.Thread(target=self._drop_regularly, args=(session, self._tables.files, stop), daemon=True,
                         name="table upkeep").start()
        try:
            yield
        finally:
            stop.set()
        try:
            waits.bounded(lambda: log_use(session, self._tables.files), self._save_timeout_secs,
                          "the counts of the tables")
        except (tf.errors.OpError, RuntimeError, ClusterLostError) as error:  # everything important is saved
            _log.warning("cannot log how the tables were used: %s", error)

    def _drop_regularly(self, session: tf.Session, files: TableFiles, stop: threading.Event) -> None:
        try:
            self._shares = shares_of(files, files.counts(session))
            while not stop.wait(UPKEEP_SECS):
                self._shares = shares_of(files, drop_old_rows(session, files))
        except (tf.errors.OpError, RuntimeError) as error:  # the session is closed or lost; the next one has a thread
            _log.debug("no more upkeep of tables in this session: %s", error)

    def status(self) -> Mapping[str, Any]:
        """Returns the rows of each table on each ps; see `shares_of`."""
        return {"tables": self._shares}


def table_rule(config: Any) -> RowRule:
    """Returns the rule of embedding tables for which the model gives none; it has the constants of --optimizer."""
    name = config.embedding_optimizer or ("adagrad" if config.optimizer == "rmsprop" else config.optimizer)
    rule = RULES[name]()
    if name == config.optimizer:
        known = {field.name for field in dataclasses.fields(rule)}
        rule = dataclasses.replace(
            rule, **{option: value for option, value in config.optimizer_options.items() if option in known})
    return rule.with_defaults(config.embedding_learning_rate or config.learning_rate)


def drop_old_rows(session: tf.Session, files: TableFiles) -> Counts:
    """Drops the rows of dynamic tables that are too old, or the oldest ones of a table that is nearly full.

    Returns:
      The counts of all tables after that.
    """
    counts = files.counts(session)
    for name, stores in files.stores.items():
        for store, of_store in zip(stores, counts[name]):
            oldest = _oldest(session, store, of_store) if store.store.spec.is_dynamic else 0
            if oldest > 0:
                store.drop(session, oldest, of_store["used"])
    counts_after = files.counts(session)
    for name, of_table in counts_after.items():
        num_dropped = sum(of_store["evicted"] for of_store in of_table) - sum(
            of_store["evicted"] for of_store in counts[name])
        if num_dropped:
            _log.info("table %s: dropped %d rows that had not been used for a long time; %s", name, num_dropped,
                      _describe_use(files.stores[name], of_table))
    return counts_after


def _oldest(session: tf.Session, store: StoreOps, counts: Mapping[str, int]) -> int:
    """Returns the update since which a row must have been touched to stay; 0 if all stay."""
    ttl_steps = store.store.spec.ttl_steps
    oldest = counts["updates"] - ttl_steps if ttl_steps else 0
    if counts["used"] - counts["free"] < _FULL * counts["capacity"]:
        return oldest
    marks = store.sample_marks(session, _SAMPLED)
    if not len(marks):
        return oldest
    # Never the rows of the last update, which may be most of the table.
    return max(oldest, min(int(np.quantile(marks, _DROPPED)) + 1, counts["updates"]))


def log_use(session: tf.Session, files: TableFiles) -> None:
    """Logs a line about each table."""
    for name, counts in files.counts(session).items():
        _log.info("table %s: %s", name, _describe_use(files.stores[name], counts))


def _describe_use(stores: Sequence[StoreOps], counts: Sequence[Mapping[str, int]]) -> str:
    """Returns how a table is used, such as `40 rows: 40 on ps:0 (5.6 kB); 98.1% of ids found; 42 rows made, ...`."""
    total = {name: sum(of_store[name] for of_store in counts) for name in counts[0]}
    num_lookups = total["hits"] + total["misses"]
    hit_rate = f"{total['hits'] / num_lookups:.1%} of ids found" if num_lookups else "no ids yet"
    return (f"{describe_share(_share(stores, counts))}; {hit_rate}; {total['admitted']:,} rows made, "
            f"{total['evicted']:,} dropped, {total['refused']:,} refused: no room")


def shares_of(files: TableFiles, counts: Counts) -> list[dict[str, Any]]:
    """Returns the rows of each table on each ps, for JSON: {"name", "rows", "ps": [{"name", "rows", "bytes"}]}.

    The bytes are those of the rows with slots, id and mark, without the index by which a dynamic table finds them.
    """
    return [{"name": name, **_share(stores, counts[name])} for name, stores in files.stores.items()]


def _share(stores: Sequence[StoreOps], counts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    rows = [of_store["used"] - of_store["free"] for of_store in counts]
    return {"rows": sum(rows), "ps": [{"name": f"ps:{store.store.ps}", "rows": count, "bytes": count * store.row_bytes}
                                      for store, count in zip(stores, rows)]}


def describe_share(share: Mapping[str, Any]) -> str:
    """Returns an element of `shares_of` as text, such as `40 rows: 19 on ps:0 (2.66 kB), 21 on ps:1 (2.94 kB)`."""
    by_ps = ", ".join(f"{of_ps['rows']:,} on {of_ps['name']} ({placement.readable_bytes(of_ps['bytes'])})"
                      for of_ps in share["ps"])
    return f"{share['rows']:,} rows: {by_ps}"
