"""Looks at rows of a checkpoint: what they are, and which of them moved most since an earlier checkpoint.

    path, delta --> find    ids of the user --> rows: value, norm, ps, last update
    before      --> compare rows of both, id by id --> distances, the largest ones; new and dropped ids, counted

A comparison holds the rows of a group of ids of the earlier checkpoint, and a piece of the later one. Where the table
is larger than that, it reads the later one once for each group.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.parts.inference.on_checkpoint import find_checkpoint
from ps_train.parts.rows.flags import RowsConfig
from ps_train.parts.tables import contents, tables
from ps_train.parts.tables.contents import Source
from ps_train.runtime import logs
from ps_train.storage import checkpoints
from ps_train.verbs.verb import json_answer

_GROUP_BYTES = 256_000_000  # of the rows of an earlier checkpoint that are held at once
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # golden ratio: ids with a pattern are spread over the groups, too
_IDS = np.iinfo(np.int64)


class Moved(NamedTuple):
    """How a table has changed between two checkpoints.

    Attributes:
      num_before, num_now: rows.
      num_new, num_dropped: ids that have a row only later, or only earlier.
      rows: (id, distance of the two values, norm before, norm now) of those that moved most, the farthest first, and
        before them those with NaN.
    """

    num_before: int
    num_now: int
    num_new: int
    num_dropped: int
    rows: list[tuple[int, float, float, float]]


def print_rows(config: RowsConfig, table: str, ids: Sequence[str]) -> None:
    """Prints rows by id, and with --since those that moved most.

    Raises:
      PsTrainError: a checkpoint does not exist or cannot be read, or has no such table or ids.
    """
    path = find_checkpoint(config.train_dir, config.checkpoint)
    source = Source(path, "" if config.checkpoint else contents.newest_sound_delta(path) or "")
    saved = contents.read_described(source.newest, table)
    answer = {
        "table": table, "checkpoint": source.path, "delta": source.delta or None,
        "global_step": checkpoints.step_of(source.newest), "saved_at": _saved_at(source.newest),
        "updates": saved.updates, "num_ps": len(saved.pieces),
        "rows": found_rows(source, table, ids, row_ids(table, saved, ids, strings=config.strings))}
    if config.since:
        before = find_checkpoint(config.train_dir, config.since, "--since")
        moved = compare(before, source, table, config.top)
        names = ("id", "distance", "norm_before", "norm_now")
        answer["since"] = {"checkpoint": before, "global_step": checkpoints.step_of(before), **moved._asdict(),
                           "rows": [dict(zip(names, row)) for row in moved.rows]}
    logs.show(json_answer(answer) if config.json else "\n".join(_lines(answer)))


def _saved_at(path: str) -> str:
    """Returns when a checkpoint was written, in the time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(os.path.getmtime(f"{path}.index")))


def row_ids(table: str, saved: contents.SavedTable, ids: Sequence[str], *, strings: bool = False) -> list[int]:
    """Returns the ids of rows: whole numbers as they are, all else as the hash of a string that a model looks up.

    Raises:
      ConfigError: a table cannot have such an id.
    """
    is_number = [not strings and word.lstrip("-").isdecimal() for word in ids]
    for word, is_whole in zip(ids, is_number):
        if saved.num_rows is not None and not (is_whole and 0 <= int(word) < saved.num_rows):
            raise ConfigError("bad_id_word", f"table {table}: got the id {word!r}; allowed: 0 to {saved.num_rows - 1}, "
                              "as it has a fixed number of rows; with num_hashes, an id is the sum of several of them")
        if is_whole and not _IDS.min <= int(word) <= _IDS.max:
            raise ConfigError("bad_id_word", f"table {table}: got the id {word!r}; allowed: whole numbers of 64 bits, "
                              "and strings; give --strings if ids of digits are strings")
    given = [word.encode("utf-8", "surrogateescape") for word in ids]  # the bytes, which need not be text
    with tf.Graph().as_default(), tf.Session() as session:
        hashes = session.run(tables.hash_of_strings(tf.constant(given, tf.string)))
    return [int(word) if is_whole else int(own) for word, is_whole, own in zip(ids, is_number, hashes)]


def found_rows(source: Source, table: str, words: Sequence[str], ids: Sequence[int]) -> list[dict[str, Any]]:
    """Returns for each id what its row is, for JSON; `ps` and what follows are None without a row."""
    # The delta first: the training soon removes it, and keeps the checkpoint for longer.
    found = contents.find_rows(source.delta, table, ids) if source.delta and ids else {}
    if others := [own for own in ids if own not in found]:
        found.update(contents.find_rows(source.path, table, others))
    answers = []
    for word, own in zip(words, ids):
        row = found.get(own)
        answers.append({
            "id": word, "row_id": own, "ps": row and row.ps, "last_update": row and row.mark,
            **_history_of(row),
            "norm": row and float(np.linalg.norm(row.value)), "values": row and [float(x) for x in row.value]})
    return answers


def _history_of(row: contents.SavedRow | None) -> dict[str, int | None]:
    """Returns the history of a row, for JSON; a row that was given a value, and not updated since, has no first one."""
    first, count = (row and row.history) or (None, None)
    return {"first_update": first if count else None, "num_updates": count}


def _history_text(row: dict[str, Any]) -> str:
    if row["num_updates"] is None:
        return ""
    first = f", first in {row['first_update']:,}" if row["num_updates"] else ""
    return f"{first}, {row['num_updates']:,} times in all"


def compare(before: str, source: Source, table: str, top: int, group_bytes: int = _GROUP_BYTES) -> Moved:
    """Returns how a table has changed since the checkpoint `before`.

    Raises:
      PsTrainError: a checkpoint cannot be read, or its table has rows of another width.
    """
    dims = [contents.read_described(path, table).dim for path in (before, source.newest)]
    if dims[0] != dims[1]:
        raise ConfigError("checkpoint_of_another_model", f"--since: table {table} has {dims[0]} floats in a row of "
                          f"{before}, and {dims[1]} in {source.newest}; give a checkpoint of the same model")
    num_groups = 1 + contents.most_rows(before)[table] * 4 * (dims[0] + 2) // group_bytes
    of_groups = [_compare_group(before, source, table, top, (group, num_groups)) for group in range(num_groups)]
    rows = sorted((row for moved in of_groups for row in moved.rows), key=_farthest_first)[:top]
    return Moved(*(sum(counts) for counts in list(zip(*of_groups))[:4]), rows)


def _compare_group(before: str, source: Source, table: str, top: int, group: tuple[int, int]) -> Moved:
    """Compares the ids of one group: (number, count)."""
    pieces = list(_of_group(contents.read_table(before, table), group))
    old_ids = np.concatenate([np.zeros([0], np.int64), *(ids for ids, _ in pieces)])
    old = np.concatenate([values for _, values in pieces]) if pieces else np.zeros([0, 1], np.float32)
    del pieces
    order = np.argsort(old_ids)
    old_ids, num_now, num_known, rows = old_ids[order], 0, 0, []
    for ids, values in _of_group(contents.newest_rows(source, table), group):
        num_now += len(ids)
        places = np.minimum(np.searchsorted(old_ids, ids), max(len(old_ids) - 1, 0))
        is_known = old_ids[places] == ids if len(old_ids) else np.zeros(len(ids), bool)
        num_known += int(is_known.sum())
        ids, values, earlier = ids[is_known], values[is_known], old[order[places[is_known]]]
        distances = np.linalg.norm(values - earlier, axis=1)
        farthest = np.lexsort((-distances, ~np.isnan(distances)))[:top]  # as _farthest_first
        norms = (np.linalg.norm(own[farthest], axis=1) for own in (earlier, values))
        rows += zip(ids[farthest].tolist(), distances[farthest].tolist(), *(norm.tolist() for norm in norms))
        rows = sorted(rows, key=_farthest_first)[:top]
    return Moved(len(old_ids), num_now, num_now - num_known, len(old_ids) - num_known, rows)


def _farthest_first(row: tuple[int, float, float, float]) -> tuple[bool, float]:
    """Orders rows of `Moved`: first those with NaN, which is neither less nor more than any distance."""
    return not math.isnan(row[1]), -row[1]


def _of_group(
    pieces: Iterator[tuple[np.ndarray, np.ndarray]], group: tuple[int, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    number, count = group
    for ids, values in pieces:
        spread = (ids.astype(np.uint64) * _FACTOR) >> np.uint64(33)
        is_own = spread % np.uint64(count) == number
        yield ids[is_own], values[is_own]


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    delta = f" and {os.path.basename(answer['delta'])}" if answer["delta"] else ""
    yield (f"table {answer['table']} at step {answer['global_step']}, after {answer['updates']:,} updates "
           f"({answer['checkpoint']}{delta}, saved {answer['saved_at']})")
    for row in answer["rows"]:
        name = row["id"] if row["id"] == str(row["row_id"]) else f"{row['id']} (hash {row['row_id']})"
        if row["ps"] is None:
            yield f"{name}: no row; its first value is served"
        else:
            yield (f"{name}: on ps:{row['ps']} of {answer['num_ps']}, last touched in update {row['last_update']:,}"
                   f"{_history_text(row)}; norm {row['norm']:.4g}; values "
                   f"{' '.join(f'{value:.4g}' for value in row['values'])}")
    if since := answer.get("since"):
        yield (f"since step {since['global_step']}: {since['num_before']:,} rows then, {since['num_now']:,} now; "
               f"{since['num_new']:,} new, {since['num_dropped']:,} dropped")
        yield f"{'id':>20} {'distance':>10} {'norm then':>10} {'norm now':>10}"
        for row in since["rows"]:
            yield (f"{row['id']:>20} {row['distance']:>10.4g} {row['norm_before']:>10.4g} "
                   f"{row['norm_now']:>10.4g}")
