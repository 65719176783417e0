"""Reads the rows of a table from a checkpoint, piece by piece, in any process: `ps_train.read_table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables.files import contents
from ps_train.parts.tables.files.contents import SavedTable

_PIECES_PER_READER = 32  # a reader keeps memory for each file that it has read from


def read_table(path: str, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Returns an iterator over the rows of a table, in pieces of some MB: (ids int64 [n], values float32 [n, dim]).

    Each id comes once, in no order. Ids that have no row have a first value, which is in no checkpoint.

    Args:
      path: path prefix of the checkpoint, such as `/jobs/7/model.ckpt-1000`.
      name: of the table.

    Raises:
      CheckpointError: the checkpoint cannot be read, or has no such table.
    """
    saved = contents.read_tables(path)
    if name not in saved:
        raise CheckpointError(f"checkpoint {path} has no table {name!r}; it has {', '.join(saved) or 'none'}")
    return ((ids, values) for ids, values in _read(path, saved[name], ["ids", "values"]))


def read_ids(path: str, saved: SavedTable) -> Iterator[np.ndarray]:
    """Returns an iterator over the ids alone, int64 [n], in the same order."""
    return (ids for ids, in _read(path, saved, ["ids"]))


def count_rows(path: str, name: str) -> int:
    """Returns how many rows a table has in a checkpoint; 0 if it has no such table.

    Raises:
      CheckpointError: the checkpoint cannot be read.
    """
    saved = contents.read_tables(path).get(name)
    if saved is None:
        return 0
    return sum(map(len, read_ids(path, saved))) if saved.has_repeated else contents.most_rows(path)[name]


def _read(path: str, saved: SavedTable, parts: Sequence[str]) -> Iterator[list[np.ndarray]]:
    """Returns an iterator over the parts of each piece, the ids first; of an id, only the row that holds."""
    later, known = {piece for of_ps in saved.later for piece in of_ps}, np.zeros([0], np.int64)
    pieces = [piece for ps in range(len(saved.pieces)) for piece in saved.newest_first(ps)]
    try:
        for number, piece in enumerate(pieces):
            if number % _PIECES_PER_READER == 0:
                reader = tf.train.load_checkpoint(path)
            read = [reader.get_tensor(f"{piece}/{part}") for part in parts]
            if saved.has_repeated:
                is_new = ~np.isin(read[0], known)
                if piece in later:  # the ids of the others come no more
                    known = np.union1d(known, read[0])
                read = [part[is_new] for part in read]
            yield read
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"checkpoint {path}: cannot read its rows: {error}") from None
