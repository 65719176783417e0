"""What the chief does for tables while they are trained: drops old rows, and says how each table is used.

Rows are dropped by

    ttl_steps   rows that this many updates of the table did not touch
    ttl_secs    rows that no update touched in this many seconds of training
    max_rows    of a table that is nearly full, the least recently updated rows
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rules import LAST_MARK
from ps_train.parts.tables.store_ops import StoreOps
from ps_train.parts.tables.table_files import Counts, TableFiles
from ps_train.runtime import logs

_FULL, _DROPPED = 0.95, 0.1  # of the capacity: when rows are dropped, and how many
_SAMPLED = 100_000
_log = logging.getLogger(__name__)


def drop_old_rows(session: tf.Session, files: TableFiles) -> Counts:
    """Drops the rows of dynamic tables that are too old, or the oldest ones of a table that is nearly full.

    Returns:
      The counts of all tables after that.
    """
    counts = files.counts(session)
    now_secs = time.monotonic()
    for name, stores in files.stores.items():
        clock, updates = files.clocks.get(name), min(of_store["updates"] for of_store in counts[name])
        expired = clock.oldest(updates, now_secs) if clock else 0
        for store, of_store in zip(stores, counts[name]):
            oldest, part = max((expired, 0.0), _oldest(session, store, of_store))
            if oldest > 0:
                store.drop(session, oldest, of_store["used"], part=part)
    counts_after = files.counts(session)
    for name, of_table in counts_after.items():
        num_dropped = sum(of_store["evicted"] for of_store in of_table) - sum(
            of_store["evicted"] for of_store in counts[name])
        if num_dropped:
            _log.info("table %s: dropped %d rows that had not been used for a long time; %s", name, num_dropped,
                      _describe_use(files.stores[name], of_table))
    return counts_after


def warn_of_age(counts: Counts) -> None:
    """Warns, once in this process, of each table with more updates than a row can note."""
    for name, of_table in counts.items():
        if max(of_store["updates"] for of_store in of_table) > LAST_MARK:
            _warn_once(f"table {name} has had more than {LAST_MARK:,} updates: rows that were touched since then count "
                       "as just used, and neither ttl_steps, ttl_secs nor max_rows drops one; a new training that "
                       "begins with --init_checkpoint counts from 0 again")


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def _oldest(session: tf.Session, store: StoreOps, counts: Mapping[str, int]) -> tuple[int, float]:
    """Returns the update since which a row must have been touched to stay, and the part of its rows that go as well.

    The update is 0 if all rows stay.
    """
    ttl_steps = store.store.spec.ttl_steps
    expired = counts["updates"] - ttl_steps if ttl_steps else 0
    if not store.store.spec.is_dynamic or counts["used"] - counts["free"] < _FULL * counts["capacity"]:
        return expired, 0.0
    if store.store.spec.max_rows is None:
        _warn_once(f"table {store.store.spec.name}: ps:{store.store.ps} has nearly as many rows as a table without "
                   f"max_rows has room for, {counts['capacity']:,}; it drops those that were not updated for the "
                   "longest time: give the table max_rows, or use more ps")
    marks = store.sample_marks(session, _SAMPLED)
    return max((expired, 0.0), _least_recent(marks, counts["updates"])) if len(marks) else (expired, 0.0)


def _least_recent(marks: np.ndarray, updates: int) -> tuple[int, float]:
    """Returns what `_oldest` does, for a tenth of the rows by a sample of their marks, int32 [n]."""
    last = int(np.quantile(marks, _DROPPED, method="lower"))
    if last >= min(updates, LAST_MARK):  # never the rows of the last update, which may be most of the table
        return updates, 0.0
    # All rows of an update together may be most of the table, too: those of --init_checkpoint have the same mark.
    num_dropped = max(_DROPPED * len(marks), 1)
    return last, float((num_dropped - np.sum(marks < last)) / np.sum(marks == last))


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
    by_ps = ", ".join(f"{of_ps['rows']:,} on {of_ps['name']} ({logs.readable_bytes(of_ps['bytes'])})"
                      for of_ps in share["ps"])
    return f"{share['rows']:,} rows: {by_ps}"
