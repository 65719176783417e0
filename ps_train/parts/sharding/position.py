"""The position in the data, as a checkpoint has it.

    queue on ps 0 --at the cut--> done, plan --+--after everything else--> checkpoint --begin--> queue on ps 0
                  --at the end--> in_hand -----+

`done` is read before the parameters are saved. So every range that is done in a checkpoint has all of its updates
there. A save takes a while, and workers train on. `in_hand` is read after all parameters, and has every range that a
worker held at any moment since `done` was read: each range that is assigned again and of which parameters in the
checkpoint may have updates already. At the end of an epoch, a range may be done in that time and be assigned for the
next epoch, so `in_hand` says how often: it has `more than 0 times` of all ranges, then `more than once`, and so on.
"""

from __future__ import annotations

import contextlib
import logging

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.state import new_claim
from ps_train.errors import ConfigError
from ps_train.parts.readers import files
from ps_train.parts.sharding import growth, range_plan, range_queue
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_plan import MisfitError
from ps_train.storage.merging_saver import PartWriter
from ps_train.training import opening

# In a checkpoint: int32 [ranges], how often each range was trained on; bool [n * ranges], see `times_in_hand`; string
# scalar, the ranges as text.
_DONE, _IN_HAND, _PLAN = _NAMES = tuple(f"dynamic_sharding/{name}" for name in ("done", "in_hand", "plan"))
_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker
_log = logging.getLogger(__name__)


class PositionOps:
    """The operations of a training graph on the position in the data."""

    def __init__(self, local: LocalRanges, first_ps_device: str) -> None:
        """Adds the operations to the current graph.

        Args:
          local: the worker's end of the queue.
        """
        self._local = local
        with tf.name_scope("ps_train/position"):
            self._prefix = tf.placeholder(tf.string, [])
            self._saved = [tf.placeholder(tf.int32, [None]), tf.placeholder(tf.bool, [None]),
                           tf.placeholder(tf.string, [])]
            self._save_op = tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=_NAMES, shape_and_slices=[""] * 3, tensors=self._saved)
            with tf.device(first_ps_device):
                self._start = [tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int64, []),
                               tf.placeholder(tf.string, [])]
                self._begin_op = range_queue.begin(*self._start)
                tf.add_to_collection(opening.PREPARING, self._begin_op)
                self._mark = range_queue.mark()
                self._since = range_queue.read_together("given", "plan")

    def mark(self, session: tf.Session) -> np.ndarray:
        """Begins to note the ranges that workers hold; returns how often each was trained on."""
        return session.run(self._mark)

    def since(self, session: tf.Session, done: np.ndarray) -> tuple[np.ndarray, np.ndarray, bytes]:
        """Returns a position: the result of `mark`, the ranges that workers have held since, and the plan."""
        given, plan = session.run(self._since)
        # Ranges that came in the meantime, some of which workers may have in hand.
        return np.pad(done, (0, len(given) - len(done))), in_unary(given), plan

    def write(self, session: tf.Session, prefix: str, done: np.ndarray) -> None:
        """Writes the position to a file."""
        session.run(self._save_op, {self._prefix: prefix, **dict(zip(self._saved, self.since(session, done)))})

    def begin(self, session: tf.Session, path: str) -> None:
        """Begins the queue at the position in a checkpoint, or at the start of the data if `path` is ""."""
        if self._local.growing:
            self._begin_growing(session, path)
            return
        num_ranges = len(self._local.plan)
        done, in_hand, text = _read(path) if path else (
            np.zeros(num_ranges, np.int32), np.zeros(num_ranges, bool), self._local.plan_text)
        times = times_in_hand(in_hand, len(done))
        extension = self._local.extended(text)
        # New ranges still have all of --num_epochs to go; without an end, they join the present epoch.
        has_end = self._local.settings.num_epochs is not None
        done = np.append(done, np.full(extension.num_ranges, 0 if has_end else done.min(), done.dtype))
        self._write_queue(session, done, extension.text)
        _log.info("input: %s", extension.text.partition(",")[0])
        if extension.num_files:
            _log.info("input: %d file%s new since the checkpoint: %d new range%s", extension.num_files,
                      "s are" if extension.num_files > 1 else " is", extension.num_ranges,
                      "s" * (extension.num_ranges > 1))
        if done.any() or times.any():
            _log.info("continuing in epoch %d, in which %d ranges are done; reassigning those that workers held during "
                      "the save: %s%s", done.min(), (done > done.min()).sum(),
                      self._local.describe(np.repeat(np.arange(len(times)), times).tolist()),
                      "; those that are named twice were assigned for two epochs meanwhile" if times.max() > 1 else "")

    def _begin_growing(self, session: tf.Session, path: str) -> None:
        text = ""
        if path:
            done, in_hand, text = _read(path)
            self._local.adopt(text)
            held = np.flatnonzero(times_in_hand(in_hand, len(done)))
            _log.info("continuing: %d ranges are not done; reassigning those that workers held during the save: %s",
                      (done == 0).sum(), self._local.describe(held.tolist()))
            text = self._local.growing.compacted(text, done)
        extension = self._local.extended(text)
        done = np.zeros(len(extension.plan), np.int32)
        done[0] = 1
        self._write_queue(session, done, extension.text)
        _log.info("input: %s", range_plan.summary(extension.text))

    def _write_queue(self, session: tf.Session, done: np.ndarray, text: str) -> None:
        sessions.run_bounded(session, self._begin_op, dict(zip(self._start, (done, new_claim(), text))), options=_CALL)
        self._local.adopt(text)


class PositionWriter(PartWriter):
    """Writes the position to one checkpoint."""

    def __init__(self, ops: PositionOps, session: tf.Session, folder: str) -> None:
        self._ops, self._session, self._prefix = ops, session, f"{folder}/position"

    def cut(self) -> None:
        self._done = self._ops.mark(self._session)

    def write(self) -> list[str]:
        self._ops.write(self._session, self._prefix, self._done)
        return [self._prefix]


def in_unary(times: np.ndarray) -> np.ndarray:
    """Returns for counts [ranges] bool [n * ranges]: which are above 0, which are above 1, ..., n at least 1."""
    # No int32: older checkpoints have only the first part.
    return (times > np.arange(max(times.max(initial=0), 1))[:, np.newaxis]).reshape(-1)


def times_in_hand(in_hand: np.ndarray, num_ranges: int) -> np.ndarray:
    """Returns how often workers held each range during a save, int64 [ranges]; `in_unary` wrote it."""
    return np.reshape(in_hand, [-1, num_ranges]).sum(0)


def _read(path: str) -> tuple[np.ndarray, np.ndarray, str]:
    reader = tf.train.load_checkpoint(path)
    done, in_hand, plan = (reader.get_tensor(name) for name in _NAMES)
    return done, in_hand, plan.decode()


def watermark_of(path: str) -> float | None:
    """Returns the time before which all data that was seen is trained in a checkpoint or delta (--follow).

    Args:
      path: the prefix of its files.

    Returns:
      Seconds since 1970: the least time of a piece of data that is not trained to its end, or the latest of all; None
      without data, or if it was saved without --follow.

    Raises:
      tf.errors.OpError: it cannot be read.
    """
    if not tf.train.load_checkpoint(path).has_tensor(_PLAN):
        return None
    done, _, text = _read(path)
    return growth.watermark(text, done) if range_plan.is_of_growth(text) else None


def reading_as_trained(path: str) -> contextlib.AbstractContextManager:
    """Returns a context in which files are read as by the training of a checkpoint: as growing, if it had --follow.

    Args:
      path: the prefix of its files, or "" for none.

    Raises:
      tf.errors.OpError: it cannot be read.
    """
    reader = tf.train.load_checkpoint(path) if path else None
    has_plan = reader is not None and reader.has_tensor(_PLAN)
    return files.growing() if has_plan and range_plan.is_of_growth(_read(path)[2]) else contextlib.nullcontext()


def check_position(path: str, local: LocalRanges) -> None:
    """Checks that a checkpoint has a position in this data, to which files may have been added.

    Raises:
      ConfigError: it has none, or one in other data.
    """
    if not tf.train.load_checkpoint(path).has_tensor(_PLAN):
        raise ConfigError("checkpoint_without_position", (
            f"--dynamic_sharding: checkpoint {path} was saved without this flag and has no position in the data; give "
            "another --train_dir, or leave the flag out"))
    try:
        local.check(_read(path)[2])
    except MisfitError as error:
        raise ConfigError(error.code, (
            f"--dynamic_sharding: the files are not those of checkpoint {path}: {error}; give those files and "
            "flags, and new files too if you like, or another --train_dir")) from None
