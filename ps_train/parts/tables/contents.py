"""The tables of a checkpoint, and of its deltas, as files: what they have, and how they are read without a graph.

    ps_train/tables                          a text, JSON
    items/ps_0_of_2/000012/ids               int64 [n]                    the rows of a piece
    items/ps_0_of_2/000012/marks             int32 [n]
    items/ps_0_of_2/000012/values            float32 [n, dim]
    items/ps_0_of_2/000012/slots             float32 [n, number of slots]
    items/ps_0_of_2/sightings                uint16 [2^22]                how often ids without a row came, by hash

A delta is a file next to its checkpoint:

    model.ckpt-1000.index  .data-...                the checkpoint at step 1000: all rows of the embedding tables
    model.ckpt-1000.delta-1200.index  .data-...     the variables at step 1200, and the rows changed since step 1000

Each delta has all changes since its checkpoint, so only the newest sound one is needed. Its name begins with that of
the checkpoint, so it is removed with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables import hashing, row_history
from ps_train.parts.tables.rules import FROZEN, TableSpec
from ps_train.storage import checkpoints

KEY = "ps_train/tables"
PARTS = ("ids", "marks", "values", "slots")
SIGHTINGS = "sightings"  # of ids; in earlier checkpoints "seen", which are by another hash
_DELTA = ".delta-"
_DELTA_INDEX = re.compile(rf"(.+{re.escape(_DELTA)}(\d+))\.index")
_PIECES_PER_READER = 32  # a reader keeps memory for each file that it has read from
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class SavedTable:
    """A table as it is in a checkpoint.

    Attributes:
      dim, num_slots: floats of a row.
      num_rows: of a fixed table, None for a dynamic one.
      rule: the name of its rule.
      updates: how many updates it has had.
      pieces: for each ps that it was on, the names of its pieces.
      later: likewise, the pieces of rows that were touched after they were saved first, in the order in which they were
        written; the last row of an id holds.
      seen: likewise, the name of its counts of ids without a row; none if all ids are admitted at once.
      dealt: which ps had which ids, see `hashing`; checkpoints without this note have `id % num_ps`.
      clock: (seconds of training, updates until then) at some moments and at last now, with `ttl_secs`; else none.
    """

    dim: int
    num_slots: int
    num_rows: Optional[int]
    rule: str
    updates: int
    pieces: list[list[str]]
    later: list[list[str]] = dataclasses.field(default_factory=list)
    seen: list[str] = dataclasses.field(default_factory=list)
    dealt: str = hashing.MODULO
    clock: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def newest_first(self, ps: int) -> list[str]:
        """Returns the pieces of one ps, in the order in which the first row of an id is the one that holds."""
        return [*(self.later[ps][::-1] if self.later else []), *self.pieces[ps]]

    @property
    def has_repeated(self) -> bool:
        """Whether an id may have several rows."""
        return any(self.later)

    def problem(self, spec: TableSpec) -> str | None:
        """Returns why these rows do not fit a model's table, or None."""
        rule = spec.rule.name if spec.rule.name != FROZEN else self.rule  # an evaluation needs the values only
        for argument, saved, current in (("dim", self.dim, spec.dim), ("num_rows", self.num_rows, spec.num_rows),
                                         ("optimizer", self.rule, rule)):
            if saved != current:
                return f"table {spec.name} has {argument} {saved} there, and {current} in the model"
        return None


class SavedRow(NamedTuple):
    """A row as it is in a checkpoint.

    Attributes:
      ps: the number of the ps that had it.
      mark: the number of the update of the table that last touched it.
      value: float32 [dim].
      history: (number of its first update, number of its updates) on that ps; None if the table does not keep them.
    """

    ps: int
    mark: int
    value: np.ndarray
    history: Optional[tuple[int, int]] = None


class Source(NamedTuple):
    """A state of the training that rows are read from.

    Attributes:
      path: the path prefix of a checkpoint.
      delta: that of a delta to it, whose rows are newer, or "".
    """

    path: str
    delta: str = ""

    @property
    def newest(self) -> str:
        """The path that says how far the training was."""
        return self.delta or self.path


def to_text(tables: Mapping[str, SavedTable]) -> str:
    """Returns the text of a checkpoint."""
    return json.dumps({"tables": {name: dataclasses.asdict(saved) for name, saved in tables.items()}})


@contextlib.contextmanager
def _reading(path: str, subject: str) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError, OSError) as error:  # IndexError: it has changed
        raise CheckpointError("checkpoint_unreadable", f"checkpoint {path}: cannot read {subject}: {error}") from None


def read_tables(path: str) -> dict[str, SavedTable]:
    """Returns name -> table of a checkpoint; none if it has no text about them.

    Raises:
      CheckpointError: it cannot be read.
    """
    with _reading(path, "the description of its tables"):
        reader = tf.train.load_checkpoint(path)
        text = reader.get_tensor(KEY) if reader.has_tensor(KEY) else b'{"tables": {}}'
        return {name: SavedTable(**saved) for name, saved in json.loads(text)["tables"].items()}


def most_rows(path: str) -> dict[str, int]:
    """Returns name -> the maximal number of rows of each table in a checkpoint; exact if no id is repeated.

    Raises:
      CheckpointError: it cannot be read.
    """
    tables = read_tables(path)
    with _reading(path, "the shapes of its tables"):
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    return {name: sum(shapes[f"{piece}/ids"][0] for ps in range(len(table.pieces)) for piece in table.newest_first(ps))
            for name, table in tables.items()}


def check_tables_fit(path: str, specs: Mapping[str, TableSpec]) -> None:
    """Compares the tables of a model with those in a checkpoint.

    Raises:
      CheckpointError: a table is missing there, or has another shape or rule; the error says which.
    """
    saved = read_tables(path) if specs else {}
    checked = [f"table {name} is missing" if name not in saved else saved[name].problem(spec)
               for name, spec in specs.items()]
    if problems := [problem for problem in checked if problem]:
        raise CheckpointError("checkpoint_of_another_model", (
            f"checkpoint {path} is of another model: {'; '.join(problems)}; give another --train_dir, or the --model, "
            "--params and --embedding_optimizer that it was trained with"))


def known_seen(path: str, name: str, saved: SavedTable) -> list[str]:
    """Returns `SavedTable.seen`; none, and warns, if an earlier version has counted by another hash."""
    if all(seen.endswith(f"/{SIGHTINGS}") for seen in saved.seen):
        return saved.seen
    _log.warning("table %s: checkpoint %s is of an earlier ps_train, whose counts of ids without a row cannot be used: "
                 "each of these ids counts from 0 for min_count", name, path)
    return []


def read_table(path: str, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Returns an iterator over the rows of a table, in pieces of some MB: (ids int64 [n], values float32 [n, dim]).

    Each id comes once, in no order. Ids that have no row have a first value, which is in no checkpoint.

    Args:
      path: path prefix of the checkpoint, such as `/jobs/7/model.ckpt-1000`.
      name: of the table.

    Raises:
      CheckpointError: the checkpoint cannot be read, or has no such table.
    """
    saved = read_described(path, name)
    return ((ids, values) for ids, values in _read_pieces(path, saved, ["ids", "values"]))


def newest_rows(source: Source, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Returns an iterator as `read_table` does, over the newest row of each id."""
    known = [np.zeros([0], np.int64)]
    if source.delta:
        for ids, values in read_table(source.delta, name):
            known.append(ids)
            yield ids, values
    newer = np.sort(np.concatenate(known))
    for ids, values in read_table(source.path, name):
        is_old = ~is_in(ids, newer)
        yield ids[is_old], values[is_old]


def is_in(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which ids int64 [n] are among others int64 [m], which are in ascending order; bool [n]."""
    places = np.searchsorted(others, ids)
    is_among = places < len(others)
    is_among[is_among] = others[places[is_among]] == ids[is_among]
    return is_among


def read_described(path: str, name: str) -> SavedTable:
    """Returns what a checkpoint says about a table; raises CheckpointError if it has no such table."""
    saved = read_tables(path)
    if name not in saved:
        raise CheckpointError("table_not_in_checkpoint", f"checkpoint {path} has no table {name!r}; it has "
                              f"{', '.join(saved) or 'none'}")
    return saved[name]


def find_rows(path: str, name: str, ids: Sequence[int]) -> dict[int, SavedRow]:
    """Returns id -> row of those ids that have one; holds one piece at a time.

    Raises:
      CheckpointError: the checkpoint cannot be read, or has no such table.
    """
    saved, wanted = read_described(path, name), np.unique(np.asarray(ids, np.int64))
    found: dict[int, SavedRow] = {}
    pieces = [(ps, piece) for ps in range(len(saved.pieces)) for piece in saved.newest_first(ps)]
    with _reading(path, "its rows"):
        for number, (ps, piece) in enumerate(pieces):
            if number % _PIECES_PER_READER == 0:
                reader = tf.train.load_checkpoint(path)
            of_piece = reader.get_tensor(f"{piece}/ids")
            places = np.flatnonzero(np.isin(of_piece, wanted))
            if not len(places):
                continue
            marks, values = (reader.get_tensor(f"{piece}/{part}")[places] for part in ("marks", "values"))
            histories = ([(int(first), int(count)) for first, count in row_history.read_history(
                reader.get_tensor(f"{piece}/slots")[places])] if row_history.has_history(saved.rule)
                else [None] * len(places))
            for own, mark, value, history in zip(of_piece[places], marks, values, histories):
                found.setdefault(int(own), SavedRow(ps, int(mark), value, history))  # the first one holds
    return found


def read_ids(path: str, saved: SavedTable) -> Iterator[np.ndarray]:
    """Returns an iterator over the ids alone, int64 [n], in the same order."""
    return (ids for ids, in _read_pieces(path, saved, ["ids"]))


def least_mark(path: str, saved: SavedTable) -> int:
    """Returns the number of the first update that has left a row in a checkpoint or delta; of the next one if none."""
    marks = (of_piece for (of_piece,) in _read_pieces(path, saved, ["marks"], leaves_out=False))
    return min((int(of_piece.min()) for of_piece in marks if len(of_piece)), default=saved.updates + 1)


def count_rows(path: str, name: str) -> int:
    """Returns how many rows a table has in a checkpoint; 0 if it has no such table.

    Raises:
      CheckpointError: the checkpoint cannot be read.
    """
    saved = read_tables(path).get(name)
    if saved is None:
        return 0
    return sum(map(len, read_ids(path, saved))) if saved.has_repeated else most_rows(path)[name]


def _read_pieces(
    path: str, saved: SavedTable, parts: Sequence[str], *, leaves_out: bool = True
) -> Iterator[list[np.ndarray]]:
    """Returns an iterator over the parts of each piece; `leaves_out`: of an id, all but the row that holds."""
    pieces = [piece for ps in range(len(saved.pieces)) for piece in saved.newest_first(ps)]
    with _reading(path, "its rows"):
        is_first = _first_places(path, pieces) if saved.has_repeated and leaves_out else None
        for number, piece in enumerate(pieces):
            if number % _PIECES_PER_READER == 0:
                reader = tf.train.load_checkpoint(path)
            arrays = [reader.get_tensor(f"{piece}/{part}") for part in parts]
            yield arrays if is_first is None else [array[is_first[number]] for array in arrays]


def _first_places(path: str, pieces: Sequence[str]) -> list[np.ndarray]:
    """Returns for each piece which of its ids have not come before, bool [n]."""
    ids = []
    for number, piece in enumerate(pieces):
        if number % _PIECES_PER_READER == 0:
            reader = tf.train.load_checkpoint(path)
        ids.append(reader.get_tensor(f"{piece}/ids"))
    is_first = np.zeros(sum(map(len, ids)), bool)
    is_first[np.unique(np.concatenate(ids), return_index=True)[1]] = True
    return np.split(is_first, np.cumsum([len(of_piece) for of_piece in ids])[:-1])


def delta_path(path: str, step: int) -> str:
    """Returns the path prefix of the delta to the checkpoint `path` at a global step."""
    return f"{path}{_DELTA}{step}"


def base_of(path: str) -> str:
    """Returns the path prefix of the checkpoint to which the delta with this one belongs; "" for that of no delta."""
    return path.rpartition(_DELTA)[0] if _DELTA_INDEX.fullmatch(f"{path}.index") else ""


def deltas_of(path: str) -> list[str]:
    """Returns the path prefixes of all deltas to a checkpoint, sound or not, in the order of their steps."""
    folder, basename = os.path.split(path)
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    matches = [match for match in map(_DELTA_INDEX.fullmatch, names)
               if match and match[1].startswith(basename + _DELTA)]
    return [os.path.join(folder, match[1]) for match in sorted(matches, key=lambda match: int(match[2]))]


def newest_sound_delta(path: str) -> str | None:
    """Returns the newest delta to a checkpoint that can be read, or None; warns of each one that cannot."""
    return next((delta for delta in reversed(deltas_of(path)) if checkpoints.is_sound(delta)), None)


def remove_older_deltas(newest: str, keep: int) -> None:
    """Removes the deltas to the same checkpoint up to this one, but the last `keep`.

    Those of later steps stay, and do not count: they are damaged if the training did not begin with them.
    """
    up_to_newest = [delta for delta in deltas_of(newest.rpartition(_DELTA)[0])
                    if checkpoints.step_in_name(delta) <= checkpoints.step_in_name(newest)]
    for delta in up_to_newest[:-keep]:
        checkpoints.remove(delta)
