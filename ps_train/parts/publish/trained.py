"""What a training has written last: its newest checkpoint, the newest delta to that, and how it ended.

    train_dir/model.ckpt-1000                 all rows
              model.ckpt-1000.delta-1200      the variables at step 1200, and the rows changed since step 1000

A process that reads only these files delays no training, on however many ps its rows are. What it reads is never
undone: a training that has lost a ps goes on from the newest of them.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.control.history import FAILED, FINISHED, STOPPED_EARLY, read_ending
from ps_train.parts.tables import contents
from ps_train.parts.tables.contents import Source
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints, journal


def newest_state(train_dir: str) -> Source | None:
    """Returns the newest state that can be read, or None."""
    path = checkpoints.newest_sound(train_dir)
    return None if path is None else Source(path, contents.newest_sound_delta(path) or "")


def num_rows(state: Source) -> dict[str, int]:
    """Returns name -> number of rows of each table.

    Raises:
      CheckpointError: a file of the state cannot be read.
    """
    return {name: len(np.unique(np.concatenate([np.zeros([0], np.int64), *(
        ids for path in {state.path, state.newest}
        for ids in contents.read_ids(path, contents.read_described(path, name)))])))
        for name in contents.read_tables(state.newest)}


def dense_bytes(path: str, layout: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns the bytes of the dense variables in a checkpoint or delta.

    Args:
      layout: of each variable its name and the place of its bytes: {"name", "dtype", "shape", "offset"}.

    Raises:
      CheckpointError: a variable is missing, or the file cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        arrays = [reader.get_tensor(entry["name"]) for entry in layout]
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError("checkpoint_unreadable", f"checkpoint {path} cannot be read: {reason(error)}") from None
    value = bytearray(max([0, *(entry["offset"] + array.nbytes for entry, array in zip(layout, arrays))]))
    for entry, array in zip(layout, arrays):
        value[entry["offset"]:entry["offset"] + array.nbytes] = array.tobytes()
    return bytes(value)


def trained_secs(path: str) -> float:
    """Returns when the dense variables of a checkpoint or delta were written, in seconds since 1970.

    Raises:
      CheckpointError: it was removed.
    """
    # The first of its files has them. It was renamed since, together with those of the tables, not written again.
    files = glob.glob(f"{glob.escape(path)}.data-00000-of-*")
    if not files:
        raise CheckpointError("checkpoint_unreadable", f"checkpoint {path} cannot be read: it was removed")
    return min(map(os.path.getmtime, files))


def training_id(train_dir: str) -> str:
    """Returns an ID of the training in a folder: another one if the folder was emptied since, by its journal."""
    try:
        with open(os.path.join(train_dir, journal.JOURNAL_NAME), "rb") as file:
            first = file.readline()
    except FileNotFoundError:
        first = b""
    return hashlib.sha256(first).hexdigest()[:16]


def final_ending(train_dir: str) -> str:
    """Returns how the training ended, in a line; "" while it runs, and if it was stopped or lost and may go on."""
    ending = read_ending(train_dir)
    return str(ending) if ending and ending.state in (FINISHED, STOPPED_EARLY, FAILED) else ""
