"""Reads the rows of a table from a checkpoint, piece by piece, in any process: `ps_train.read_table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.embeddings.files import contents
from ps_train.embeddings.files.contents import SavedTable
from ps_train.errors import CheckpointError

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


def _read(path: str, saved: SavedTable, parts: Sequence[str]) -> Iterator[list[np.ndarray]]:
    pieces = [piece for of_ps in saved.pieces for piece in of_ps]
    try:
        for number, piece in enumerate(pieces):
            if number % _PIECES_PER_READER == 0:
                reader = tf.train.load_checkpoint(path)
            yield [reader.get_tensor(f"{piece}/{part}") for part in parts]
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"checkpoint {path}: cannot read its rows: {error}") from None
