"""Operations that move optimizer slots between a worker and the parameter servers.

    ps      the slots as with single steps, under the names that a checkpoint has
             | begin: a worker without slots pulls them            ^ before a save: the chief pushes its own
             v                                                     |
    worker  its own slots, which its steps change; they outlive a lost session

A checkpoint therefore fits with and without local steps. See docs/decisions/local-steps.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import optimizers
from ps_train.updates.local_steps.variable_copies import LogicalVariable, VariableCopy


class SlotTransfer(NamedTuple):
    """Moves optimizer slots between a worker and the parameter servers.

    Attributes:
      forget_op: discards the worker's slots, so that `begin_op` pulls them again; for a process's first session.
      begin_op: pulls the slots from the ps unless the worker has slots; runs before the first round.
      before_save_op: pushes this worker's slots to the ps, for a checkpoint.
    """

    forget_op: tf.Operation
    begin_op: tf.Operation
    before_save_op: tf.Operation


def no_slot_transfer() -> SlotTransfer:
    """Returns no-ops, for a worker without slots of its own."""
    return SlotTransfer(tf.no_op(), tf.no_op(), tf.no_op())


def transfer_slots(
    copies: Sequence[VariableCopy], *, ps_optimizer: tf.train.Optimizer, worker_optimizer: tf.train.Optimizer,
    mark: tf.Variable,
) -> SlotTransfer:
    """Returns operations on the slots of two optimizers with the same rule, which both exist.

    Args:
      copies: the copies of the variables that have slots.
      mark: an integer variable on this worker, which has a value once the worker has slots.
    """
    slots = [(LogicalVariable(own.op.name, parts), own) for own, parts in optimizers.pair_slots(
        [(copy.current, copy.original.parts) for copy in copies],
        whole_optimizer=worker_optimizer, parts_optimizer=ps_optimizer)]
    slots += [(LogicalVariable(own.op.name, [on_ps]), own)
              for own, on_ps in optimizers.pair_non_slots(worker_optimizer, ps_optimizer)]

    def pull() -> tf.Operation:
        assigned = [own.assign(logical.join([part.read_value() for part in logical.parts])) for logical, own in slots]
        with tf.control_dependencies(assigned):
            return tf.group(mark.assign(0))

    pushed = [part.assign(value) for logical, own in slots
              for part, value in zip(logical.parts, logical.split(own.read_value()))]
    return SlotTransfer(
        forget_op=tf.raw_ops.DestroyResourceOp(resource=mark.handle, ignore_lookup_error=True),
        begin_op=tf.group(tf.cond(tf.is_variable_initialized(mark), tf.no_op, pull)),
        before_save_op=tf.group(*pushed),
    )
