"""What a training has written last: its newest checkpoint, the newest delta to that, and how it ended.

    train_dir/model.ckpt-1000                 all rows
              model.ckpt-1000.delta-1200      the variables at step 1200, and the rows changed since step 1000

A process that reads only these files delays no training, on however many ps its rows are. What it reads is never
undone: a training that has lost a ps goes on from the newest of them. The training removes them when there are newer
ones, so while they are read, hard links keep them:

    train_dir/publish-HASH-.../model.ckpt-1000...
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.control.history import FAILED, FINISHED, STOPPED_EARLY, read_ending
from ps_train.parts.live.dense import check_saved
from ps_train.parts.tables import contents
from ps_train.parts.tables.contents import Source
from ps_train.storage import checkpoints, journal

_READ = re.compile(r"\.(index|data-\d{5}-of-\d{5})")  # the files of a checkpoint, or of a delta
_log = logging.getLogger(__name__)


class HeldStates:
    """Keeps states of a training readable while newer ones replace them, by hard links."""

    def __init__(self, train_dir: str, publish_dir: str) -> None:
        """Removes what a publisher of this folder that was killed has left."""
        self._train_dir = train_dir
        self._prefix = f"publish-{folder_hash(publish_dir)}-"
        self._is_warned = False
        for folder in glob.glob(os.path.join(glob.escape(train_dir), f"{self._prefix}*")):
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def holding(self, state: Source) -> Iterator[Source]:
        """Yields a state whose files stay until the end of the body; the state itself if there can be no links.

        Raises:
          CheckpointError: it was removed.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = tempfile.mkdtemp(prefix=self._prefix, dir=self._train_dir)
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                held = Source(*(_link(path, folder) if path else "" for path in state))
            except FileNotFoundError:
                raise CheckpointError("checkpoint_unreadable", f"checkpoint {state.newest} cannot be read: it was "
                                      "removed") from None
            except OSError as error:  # as in a folder that this user may not write to
                if not self._is_warned:
                    _log.warning("cannot make hard links in %s: %s; a state that is removed while it is read is not "
                                 "published", self._train_dir, error.strerror)
                self._is_warned, held = True, state
            yield held


def folder_hash(publish_dir: str) -> str:
    """Returns what tells the files of a publisher in a train_dir from those of one that has another folder."""
    return hashlib.sha256(os.path.abspath(publish_dir).encode()).hexdigest()[:8]


def _link(path: str, folder: str) -> str:
    """Returns the path of hard links to the files of a checkpoint or delta."""
    held = os.path.join(folder, os.path.basename(path))
    for file in glob.glob(f"{glob.escape(path)}.*"):
        if _READ.fullmatch(ending := file[len(path):]):
            os.link(file, held + ending)
    if not checkpoints.exists(held):
        raise FileNotFoundError(path)
    return held


def newest_state(train_dir: str) -> Source | None:
    """Returns the newest state that can be read, or None."""
    path = checkpoints.newest_sound(train_dir)
    return None if path is None else Source(path, contents.newest_sound_delta(path) or "")


def num_rows(state: Source) -> dict[str, int]:
    """Returns name -> number of rows of each table.

    Raises:
      CheckpointError: a file of the state cannot be read.
    """
    numbers = {}
    for name in contents.read_tables(state.newest):
        ids = np.sort(np.concatenate([np.zeros([0], np.int64), *(
            ids for path in {state.path, state.newest}
            for ids in contents.read_ids(path, contents.read_described(path, name)))]))
        numbers[name] = len(ids) - int(np.sum(ids[1:] == ids[:-1]))
    return numbers


def dense_bytes(path: str, layout: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns the bytes of the dense variables in a checkpoint or delta.

    Args:
      layout: of each variable the place of its bytes, and where a checkpoint has them: `LiveLayout.dense`.

    Raises:
      CheckpointError: a variable is missing or has another shape or type, or the file cannot be read.
    """
    check_saved(path, layout)
    with checkpoints.reading(path):
        reader = tf.train.load_checkpoint(path)
        values = {name: np.asarray(reader.get_tensor(name)) for name in {entry["saved"] for entry in layout}}
    arrays = [_array_of(entry, values[entry["saved"]], path) for entry in layout]
    value = bytearray(max([0, *(entry["offset"] + array.nbytes for entry, array in zip(layout, arrays))]))
    for entry, array in zip(layout, arrays):
        value[entry["offset"]:entry["offset"] + array.nbytes] = array.tobytes()
    return bytes(value)


def _array_of(entry: Mapping[str, Any], saved: np.ndarray, path: str) -> np.ndarray:
    """Returns the value of a variable, of what the checkpoint has; raises CheckpointError if it does not fit."""
    *_, ranges = entry["part"].split(" ")  # as in "4 3 0,2:0,3", or "" for the whole
    bounds = [tuple(map(int, text.split(","))) for text in ranges.split(":") if text]
    array = saved[tuple(slice(begin, begin + size) for begin, size in bounds)]
    if (array.size, array.dtype) != (math.prod(entry["shape"]), tf.as_dtype(entry["dtype"]).as_numpy_dtype):
        raise CheckpointError("checkpoint_of_another_model", f"checkpoint {path} has {entry['saved']} {array.dtype} "
                              f"{list(array.shape)}, and the published model {entry['name']} {entry['dtype']} "
                              f"{entry['shape']}; give the --publish_dir of this training, or an empty one")
    return array


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
