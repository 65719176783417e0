"""The position in the data, as a checkpoint has it.

    queue on ps 0 --before each save--> variables on ps 0 --Saver--> checkpoint --restored--> variables --begin--> queue

`done` is read before the parameters are saved. So every range that is done in a checkpoint has all of its updates
there. A save takes a while, and workers train on. `in_hand` is saved after all parameters, and has every range that a
worker had in hand at any moment from the reading of `done` on: each range that is given again and of which parameters
in the checkpoint may have updates already. At the end of an epoch, a range may be done in that time and be given for
the next epoch, so `in_hand` says how often: it has `more than 0 times` of all ranges, then `more than once`, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.parts.sharding import operations
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_plan import MisfitError
from ps_train.storage.merging_saver import PartWriter
from ps_train.updates.update import Update

_DONE, _IN_HAND, _PLAN = (f"dynamic_sharding/{name}" for name in ("done", "in_hand", "plan"))


class RangeOps(NamedTuple):
    """What a training graph has for dynamic sharding.

    Attributes:
      local: the worker's end.
      start: what the queue begins with: placeholders, the generation, int64 scalar; how often each range was trained
        on, int32 [ranges]; the text of the ranges, string scalar.
      begin_op: begins the queue with that.
      before_save_op: updates `done`, and begins to note what workers have in hand.
      after_save_op: updates `in_hand`; run it when everything else is saved.
      in_hand_variable: is saved last, after `after_save_op`.
      done: int32 [ranges], how often each range was trained on, as saved.
      in_hand: bool [n * ranges], as saved, how often workers had each range in hand during the save; `times_in_hand`
        reads it.
      plan: string scalar, the text of the ranges, as saved.
    """

    local: LocalRanges
    start: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    begin_op: tf.Operation
    before_save_op: tf.Operation
    after_save_op: tf.Operation
    in_hand_variable: tf.Variable
    done: tf.Tensor
    in_hand: tf.Tensor
    plan: tf.Tensor


class InHandWriter(PartWriter):
    """Writes which ranges are in hand, after everything else of a checkpoint."""

    def __init__(self, session: tf.Session, folder: str, saver: tf.train.Saver, update_op: tf.Operation) -> None:
        """Writes nothing yet.

        Args:
          saver: saves the variable.
          update_op: updates it.
        """
        self._session, self._folder, self._saver, self._update_op = session, folder, saver, update_op

    def write(self) -> list[str]:
        """Updates the variable, then writes it."""
        self._session.run(self._update_op)
        return [self._saver.save(self._session, f"{self._folder}/last", write_meta_graph=False, write_state=False)]


def build_range_ops(local: LocalRanges, first_ps_device: str) -> RangeOps:
    """Adds the variables and what moves them to the current graph."""
    with tf.device(first_ps_device):
        done = _variable(_DONE, tf.zeros([len(local.plan)], tf.int32))
        in_hand = _variable(_IN_HAND, tf.zeros([len(local.plan)], tf.bool))
        plan = _variable(_PLAN, tf.constant(local.plan_text))
        start = (tf.placeholder(tf.int64, [], name="range_generation"), tf.placeholder(tf.int32, [None], name="done"),
                 tf.placeholder(tf.string, [], name="range_plan"))
        generation, now_done, text = start
        done_at_mark, in_hand_at_mark = operations.mark()
        return RangeOps(
            local, start,
            begin_op=tf.group(operations.begin(now_done, generation, text), plan.assign(text, read_value=False)),
            before_save_op=tf.group(done.assign(done_at_mark, read_value=False),
                                    in_hand.assign(in_hand_at_mark, read_value=False)),
            after_save_op=in_hand.assign(in_unary(operations.read_queue("given")), read_value=False),
            in_hand_variable=in_hand,
            done=done.read_value(), in_hand=in_hand.read_value(), plan=plan.read_value())


def in_unary(times: tf.Tensor) -> tf.Tensor:
    """Returns for counts int32 [ranges] bool [n * ranges]: which are above 0, which are above 1, ..., n at least 1."""
    # No int32: checkpoints of before have only the first part.
    levels = tf.range(tf.maximum(tf.reduce_max(times), 1))
    return tf.reshape(times > levels[:, tf.newaxis], [-1])


def times_in_hand(in_hand: np.ndarray, num_ranges: int) -> np.ndarray:
    """Returns how often workers had each range in hand during a save, int64 [ranges]; see `RangeOps.in_hand`."""
    return np.reshape(in_hand, [-1, num_ranges]).sum(0)


def is_position(name: str) -> bool:
    """Tells whether a variable is part of a position in the data."""
    return name in (_DONE, _IN_HAND, _PLAN)


def save_position(update: Update, ops: RangeOps) -> Update:
    """Returns the update, with the variables updated before each save and verdicts noted."""
    if update.verdict:
        update = update._replace(train_op=ops.local.judge(update.train_op, *update.verdict))
    before_save_op = tf.group(update.slots.before_save_op, ops.before_save_op)
    return update._replace(slots=update.slots._replace(before_save_op=before_save_op))


def check_plan(path: str, local: LocalRanges) -> None:
    """Checks that a checkpoint has a position in this data, to which files may have been added.

    Raises:
      ConfigError: it has none, or one in other data.
    """
    reader = tf.train.load_checkpoint(path)
    if not reader.has_tensor(_PLAN):
        raise ConfigError(f"--dynamic_sharding: checkpoint {path} was saved without this flag and has no position in "
                          "the data; give another --train_dir, or leave the flag out")
    try:
        local.extended(reader.get_tensor(_PLAN).decode())
    except MisfitError as error:
        raise ConfigError(f"--dynamic_sharding: the files are not those of checkpoint {path}: {error}; give those "
                          "files, and new ones beside them if you like, or another --train_dir") from None


def _variable(name: str, initial: tf.Tensor) -> tf.Variable:
    # Of any length: there are more ranges than in a checkpoint if files have come since.
    initial = tf.placeholder_with_default(initial, [None] * initial.shape.rank)
    return tf.get_variable(name, initializer=initial, trainable=False, use_resource=True, validate_shape=False)
