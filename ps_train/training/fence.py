"""The fence around the preparation of parameters: its writes fail on each ps that knows of a later chief.

The operations that prepare parameters write to all ps, and their values may come from the chief's own machine. A chief
that freezes in the middle of such a call still has values on their way when it wakes. So the check of a write comes
after everything that the write itself waits for:

    value arrives on the ps, control inputs are done --> is the term current? --> all writes of this ps

See coordination/terms.py.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.coordination import terms
from ps_train.graph import devices, transfer

PREPARING = "ps_train/preparing"  # the collection of what else prepares parameters, in a FencedSession
_WRITES = ("Assign", "ResourceScatter", "ResourceAccumulatorSet", "AccumulatorSet")  # how the types of writes begin


class Fence:
    """Checks the term of a chief before the writes of some operations.

    Attributes:
      term: placeholder, int64 scalar; if it is not fed, nothing is checked.
    """

    def __init__(self, operations: Sequence[tf.Operation]) -> None:
        """Adds the checks to the current graph, for all writes to a ps that the operations need."""
        self.term = tf.placeholder_with_default(tf.constant(terms.NO_TERM, tf.int64), [])
        checked: set[tf.Operation] = set()
        for operation in operations:
            # One by one: a check waits for nothing that another operation computes.
            groups = collections.defaultdict(list)
            for op in transfer.upstream([operation]):
                is_new = op not in checked and not transfer.is_enclosed(op)
                if is_new and _is_write(op) and devices.is_on_ps(op.device):
                    groups[devices.task_of(op.device), frozenset(op.control_inputs)].append(op)
            for (_, control_inputs), writes in groups.items():
                self._check_before(writes, control_inputs)
                checked.update(writes)

    def _check_before(self, writes: list[tf.Operation], control_inputs: Iterable[tf.Operation]) -> None:
        with tf.device(None), tf.device(writes[0].device):
            arrived = [_arrival(tensor, writes[0].device) for op in writes for tensor in op.inputs
                       if tensor.op.inputs and not _needs_write(tensor)]
            with tf.control_dependencies(None), tf.control_dependencies([*control_inputs, *arrived]):
                check = tf.raw_ops.Assert(
                    condition=terms.is_current(self.term), data=[tf.constant(terms.REFUSED)], summarize=1)
        for op in writes:
            transfer.add_control_input(op, check)


def _arrival(tensor: tf.Tensor, device: str) -> tf.Operation:
    """Returns an operation on a device that runs when a tensor is there."""
    return tensor.op if devices.task_of(tensor.op.device) == devices.task_of(device) else tf.identity(tensor).op


def _is_write(op: tf.Operation) -> bool:
    return op.type.startswith(_WRITES)


def _needs_write(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is computed after a write; that one is checked, too."""
    return any(map(_is_write, transfer.upstream([tensor])))


class FencedSession:
    """A session whose calls feed the term of a chief."""

    def __init__(self, session: tf.Session, feed: dict[tf.Tensor, int]) -> None:
        """Takes the session, and what feeds the term."""
        self._session, self._feed = session, feed
        self.graph = session.graph

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: tf.RunOptions | None = None
    ) -> Any:
        """See `tf.compat.v1.Session.run`."""
        return self._session.run(fetches, {**(feed_dict or {}), **self._feed}, options)


class FencedSaver:
    """A Saver that restores in a FencedSession."""

    def __init__(self, saver: tf.train.Saver, feed: dict[tf.Tensor, int]) -> None:
        """Takes the Saver, and what feeds the term."""
        self._saver, self._feed = saver, feed

    def restore(self, session: tf.Session, path: str) -> None:
        """Restores a checkpoint; see `tf.compat.v1.train.Saver.restore`."""
        self._saver.restore(FencedSession(session, self._feed), path)
