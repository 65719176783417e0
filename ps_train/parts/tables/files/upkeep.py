"""Drops rows of dynamic tables while the chief trains, and tells how the tables are used.

    ttl_steps   rows that this many updates of the table did not touch
    max_rows    of a table that is nearly full, the least recently updated rows
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.graph import placement
from ps_train.parts.tables.files.store_ops import StoreOps
from ps_train.parts.tables.files.table_files import TableFiles

UPKEEP_SECS = 5.0  # between two looks at the tables
_FULL, _MADE_FREE = 0.95, 0.1  # of the capacity: when rows are dropped, and how many
_SAMPLED = 100_000
_log = logging.getLogger(__name__)


class TableUpkeep:
    """Drops old rows in a thread, for as long as a session lasts.

    Attributes:
      shares: `shares_of` all tables, as they were at the last look; [] before the first.
    """

    def __init__(self) -> None:
        self.shares: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def running(self, session: tf.Session, tables: TableFiles) -> Iterator[None]:
        """Looks at the tables now and then while its body runs; does not wait for the last look, which may hang."""
        stop = threading.Event()
        threading.Thread(target=self._keep_up, args=(session, tables, stop), daemon=True, name="table upkeep").start()
        try:
            yield
        finally:
            stop.set()

    def _keep_up(self, session: tf.Session, tables: TableFiles, stop: threading.Event) -> None:
        try:
            self.shares = shares_of(tables, tables.counts(session))
            while not stop.wait(UPKEEP_SECS):
                self.shares = shares_of(tables, drop_old_rows(session, tables))
        except (tf.errors.OpError, RuntimeError) as error:
            # The session is closed or lost. The next one has its own upkeep.
            _log.debug("no more upkeep of tables in this session: %s", error)


def drop_old_rows(session: tf.Session, tables: TableFiles) -> dict[str, list[dict[str, int]]]:
    """Drops the rows of dynamic tables that are too old, or the oldest ones of a table that is nearly full.

    Returns:
      The counts of all tables after that; see `TableFiles.counts`.
    """
    counts = tables.counts(session)
    for name, stores in tables.stores.items():
        for store, own in zip(stores, counts[name]):
            oldest = _oldest(session, store, own) if store.store.spec.is_dynamic else 0
            if oldest > 0:
                store.drop(session, oldest, own["used"])
    after = tables.counts(session)
    for name, stores in after.items():
        dropped = sum(one["evicted"] for one in stores) - sum(one["evicted"] for one in counts[name])
        if dropped:
            _log.info("table %s: dropped %d rows that had not been used for a long time; %s", name, dropped,
                      describe_use(tables.stores[name], stores))
    return after


def _oldest(session: tf.Session, store: StoreOps, counts: Mapping[str, int]) -> int:
    """Returns the update before which a row must have been touched last to be dropped; 0 to drop none."""
    ttl_steps = store.store.spec.ttl_steps
    oldest = counts["updates"] - ttl_steps if ttl_steps else 0
    num_rows = counts["used"] - counts["free"]
    if num_rows < _FULL * counts["capacity"]:
        return oldest
    marks = store.sample_marks(session, _SAMPLED)
    if not len(marks):
        return oldest
    # Never what the last update has touched, which may be most of the table.
    return max(oldest, min(int(np.quantile(marks, _MADE_FREE)) + 1, counts["updates"]))


def describe_use(stores: Sequence[StoreOps], counts: Sequence[Mapping[str, int]]) -> str:
    """Returns how a table is used, such as `40 rows: 40 on ps:0 (5.6 kB); 98.1% of ids found; 42 rows made, ...`."""
    total = {what: sum(one[what] for one in counts) for what in counts[0]}
    asked = total["hits"] + total["misses"]
    found = f"{total['hits'] / asked:.1%} of ids found" if asked else "no ids yet"
    return (f"{describe_share(_share(stores, counts))}; {found}; {total['admitted']:,} rows made, "
            f"{total['evicted']:,} dropped, {total['refused']:,} refused: no room")


def shares_of(tables: TableFiles, counts: Mapping[str, list[dict[str, int]]]) -> list[dict[str, Any]]:
    """Returns the rows of each table on each ps, for JSON: {"name", "rows", "ps": [{"name", "rows", "bytes"}]}.

    The bytes are those of the rows with slots, id and mark, without the index by which a dynamic table finds them.

    Args:
      counts: see `TableFiles.counts`.
    """
    return [{"name": name, **_share(stores, counts[name])} for name, stores in tables.stores.items()]


def _share(stores: Sequence[StoreOps], counts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    rows = [one["used"] - one["free"] for one in counts]
    return {"rows": sum(rows), "ps": [{"name": f"ps:{store.store.ps}", "rows": own, "bytes": own * store.row_bytes}
                                      for store, own in zip(stores, rows)]}


def describe_share(share: Mapping[str, Any]) -> str:
    """Returns an element of `shares_of` as text, such as `40 rows: 19 on ps:0 (2.66 kB), 21 on ps:1 (2.94 kB)`."""
    by_ps = ", ".join(f"{own['rows']:,} on {own['name']} ({placement.readable_bytes(own['bytes'])})"
                      for own in share["ps"])
    return f"{share['rows']:,} rows: {by_ps}"


def log_use(session: tf.Session, tables: TableFiles) -> None:
    """Logs a line about each table."""
    for name, counts in tables.counts(session).items():
        _log.info("table %s: %s", name, describe_use(tables.stores[name], counts))
