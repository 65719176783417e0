"""What a worker keeps from one round of local steps to the next: the optimizer's slots.

    ps      the slots as with single steps, under the names that a checkpoint has
             | begin: a worker that has none yet takes them        ^ before a save: the chief puts its own there
             v                                                     |
    worker  its own slots, which its steps change; they outlive a session that is lost

So a checkpoint fits with and without local steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.updates.local_steps.variable_copies import Copy, Whole


class SlotTransfer(NamedTuple):
    """What becomes of that which a worker keeps from round to round.

    Attributes:
      forget_op: makes `begin_op` take everything anew, for the first session of a process.
      begin_op: takes the optimizer's slots from the ps, unless this worker has its own; before the first round.
      before_save_op: puts this worker's slots on the ps, for a checkpoint.
    """

    forget_op: tf.Operation
    begin_op: tf.Operation
    before_save_op: tf.Operation


def no_slot_transfer() -> SlotTransfer:
    """Returns what there is to do where a worker keeps nothing."""
    return SlotTransfer(tf.no_op(), tf.no_op(), tf.no_op())


def transfer_slots(
    copies: Sequence[Copy], ps_optimizer: tf.train.Optimizer, own_optimizer: tf.train.Optimizer, mark: tf.Variable
) -> SlotTransfer:
    """Returns the operations on two optimizers of the same rule, which both have their slots.

    Args:
      copies: of the variables that have slots.
      mark: an integer variable of this worker that has a value once the worker has slots.
    """
    slots = _pairs(copies, ps_optimizer, own_optimizer)

    def take() -> tf.Operation:
        taken = [own.assign(whole.join([part.read_value() for part in whole.parts])) for whole, own in slots]
        with tf.control_dependencies(taken):
            return tf.group(mark.assign(0))

    given = [part.assign(value) for whole, own in slots
             for part, value in zip(whole.parts, whole.cut(own.read_value()))]
    return SlotTransfer(
        forget_op=tf.raw_ops.DestroyResourceOp(resource=mark.handle, ignore_lookup_error=True),
        begin_op=tf.group(tf.cond(tf.is_variable_initialized(mark), tf.no_op, take)),
        before_save_op=tf.group(*given),
    )


def _pairs(
    copies: Sequence[Copy], ps_optimizer: tf.train.Optimizer, own_optimizer: tf.train.Optimizer
) -> list[tuple[Whole, tf.Variable]]:
    """Returns (slot on the ps, own slot) of every slot, and of what else the rule keeps, as Adam's powers."""
    pairs = []
    matched = set()
    for name in own_optimizer.get_slot_names():
        for copy in copies:
            own = own_optimizer.get_slot(copy.now, name)
            if own is not None:
                parts = [ps_optimizer.get_slot(part, name) for part in copy.of.parts]
                pairs.append((Whole(own.op.name, parts), own))
                matched |= {own.ref(), *(part.ref() for part in parts)}
    others = [[variable for variable in optimizer.variables() if variable.ref() not in matched]
              for optimizer in (ps_optimizer, own_optimizer)]
    return pairs + [(Whole(own.op.name, [there]), own) for there, own in zip(*others)]
