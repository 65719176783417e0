"""The terms of chiefs: what a chief writes is refused where a later chief has begun its term.

A chief can freeze between any two of its calls, and while a call is on its way. When it wakes, another process may have
its number, may have prepared the parameters, and workers may train on them. So each ps has the number of the latest
term. It only rises.

    begin    on all ps: the highest term of any ps, plus 1; then on ps 0, if the process still holds the chief's number
    write    on each ps, in the graph call of the write itself: only if that ps knows of no later term

A chief reads the terms after its claim, and the one before it had passed ps 0 before that claim. So the term of the
later chief is higher on each ps that has not restarted. On one that has, the sessions of the earlier chief have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task
from ps_train.coordination import variables

NO_TERM = 2**63 - 1  # of a task that is no chief: nothing that it writes is refused
REFUSED = "another process has begun a later term as chief"


class Beginning(NamedTuple):
    """Operations that begin a term.

    Attributes:
      term: int64 scalar, its number.
      is_accepted: bool scalar, whether the claim holds the chief's number.
    """

    term: tf.Tensor
    is_accepted: tf.Tensor


def begin_term_on(all_ps: Sequence[Task], worker: tf.Tensor, claim: tf.Tensor) -> Beginning:
    """Begins a term on all ps for the chief with this worker number and claim; both are int64 scalars."""
    first, *others = [task.device for task in all_ps]
    latest = []
    for task in all_ps:
        with tf.device(task.device):
            latest.append(variables.read_element("term", 0))
    # Only in this order does a process that is replaced in the middle raise no term above that of its successor, which
    # reads the terms after its own claim.
    with tf.device(first), tf.control_dependencies(latest):
        holds_number = tf.equal(variables.read("claims")[worker], claim)
        term = tf.where(holds_number, tf.reduce_max(tf.stack(latest)) + 1, tf.constant(0, tf.int64))
    raised = []
    for device in others:
        with tf.device(device):
            raised.append(variables.raise_element("term", 0, term))
    with tf.device(first):
        with tf.control_dependencies(raised):
            raised_first = variables.raise_element("term", 0, term)
        with tf.control_dependencies([raised_first]):
            is_accepted = holds_number & tf.equal(variables.read("claims")[worker], claim)
    return Beginning(term, is_accepted)


def is_current(term: tf.Tensor) -> tf.Tensor:
    """Returns whether the ps of the current device knows of no later term, bool scalar."""
    with tf.control_dependencies([tf.identity(term)]):  # it may be on its way while the chief is frozen
        return tf.less_equal(variables.read_element("term", 0), term)


def write_in(
    term: tf.Tensor, write: Callable[[], tf.Operation | Sequence[tf.Operation]], *, values: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    """Adds the operations of `write()` to the current device; they run unless it knows of a later term.

    Args:
      values: what is written, as far as it is fed: the term is checked when it is there.

    Returns:
      bool scalar, whether they have run.
    """
    with tf.control_dependencies([tf.identity(value) for value in values]):
        condition = is_current(term)
    return tf.cond(condition, lambda: _after(write()), lambda: tf.constant(False))


def _after(operations: tf.Operation | Sequence[tf.Operation]) -> tf.Tensor:
    with tf.control_dependencies([operations] if isinstance(operations, tf.Operation) else operations):
        return tf.constant(True)
