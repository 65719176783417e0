"""The position in the data, as a checkpoint has it.

    queue on ps 0 --before each save--> variables on ps 0 --Saver--> checkpoint --restored--> variables --begin--> queue

The variables are written before the parameters are saved. So every range that is done in a checkpoint has all of its
updates there; a range that was in hand then is given again, and parts of it are trained on twice.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination.ranges import operations
from ps_train.errors import ConfigError
from ps_train.graph.input import local_ranges
from ps_train.graph.input.local_ranges import LocalRanges
from ps_train.updates.update import Update

_DONE, _IN_HAND, _PLAN = (f"dynamic_sharding/{name}" for name in ("done", "in_hand", "plan"))


class RangeOps(NamedTuple):
    """What a training graph has for dynamic sharding.

    Attributes:
      local: the worker's end.
      generation: placeholder, int64 scalar.
      begin_op: begins the queue with what the variables say.
      before_save_op: updates the variables.
      done: int32 [ranges], how often each range was trained on, as saved.
      in_hand: bool [ranges], which ranges workers had in hand, as saved.
    """

    local: LocalRanges
    generation: tf.Tensor
    begin_op: tf.Operation
    before_save_op: tf.Operation
    done: tf.Tensor
    in_hand: tf.Tensor


def build_range_ops(first_ps_device: str) -> RangeOps | None:
    """Adds the variables and what moves them to the current graph; returns None if its input takes no such ranges."""
    local = local_ranges.of_graph()
    if local is None:
        return None
    with tf.device(first_ps_device):
        done = _variable(_DONE, tf.zeros([len(local.plan)], tf.int32))
        in_hand = _variable(_IN_HAND, tf.zeros([len(local.plan)], tf.bool))
        _variable(_PLAN, tf.constant(local.plan_text))
        generation = tf.placeholder(tf.int64, [], name="range_generation")
        now_done, owners = (tf.reshape(operations.read_queue(name), done.shape) for name in ("done", "owners"))
        return RangeOps(
            local, generation,
            begin_op=operations.begin(done.read_value(), generation, local.plan_text),
            before_save_op=tf.group(done.assign(now_done, read_value=False),
                                    in_hand.assign(owners > 0, read_value=False)),
            done=done.read_value(), in_hand=in_hand.read_value())


def is_position(name: str) -> bool:
    """Tells whether a variable is part of a position in the data."""
    return name in (_DONE, _IN_HAND, _PLAN)


def save_position(update: Update, first_ps_device: str) -> tuple[Update, RangeOps | None]:
    """Returns the update, with the variables updated before each save and verdicts noted, and `build_range_ops`."""
    ops = build_range_ops(first_ps_device)
    if ops is None:
        return update, None
    if update.verdict:
        update = update._replace(train_op=ops.local.judge(update.train_op, *update.verdict))
    before_save_op = tf.group(update.slots.before_save_op, ops.before_save_op)
    return update._replace(slots=update.slots._replace(before_save_op=before_save_op)), ops


def check_plan(path: str, plan_text: str) -> None:
    """Checks that a checkpoint has a position in this data.

    Raises:
      ConfigError: it has none, or one in other data.
    """
    reader = tf.train.load_checkpoint(path)
    if not reader.has_tensor(_PLAN):
        raise ConfigError(f"--dynamic_sharding: checkpoint {path} was saved without this flag and has no position in "
                          "the data; give another --train_dir, or leave the flag out")
    theirs = reader.get_tensor(_PLAN).decode()
    if theirs != plan_text:
        raise ConfigError(f"--dynamic_sharding: the files are not those of checkpoint {path}: it has a position in "
                          f"{theirs}; here are {plan_text}; give those files, or another --train_dir")


def _variable(name: str, initial: tf.Tensor) -> tf.Variable:
    return tf.get_variable(name, initializer=initial, trainable=False, use_resource=True)
