"""What an update mode answers with, and what the user chose for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import packing, transfer
from ps_train.updates.chief import ChiefService
from ps_train.updates.local_steps.rounds import Period
from ps_train.updates.local_steps.slots import SlotTransfer


class UpdateSettings(NamedTuple):
    """What the user chose for the updates.

    Attributes:
      optimizer: a name of `groups.OPTIMIZERS`.
      replicas_to_aggregate: gradients averaged into one update, or None for async.
      num_workers: all workers, the chief among them.
      worker: the number of this worker.
      min_replicas_to_aggregate: no update averages fewer gradients, however few workers are left.
      wire: how dense variables travel.
      period: the steps between two exchanges with the ps.
      heartbeat_timeout_secs: a worker that was not heard of for this long has no part in a mean of rounds.
      sync_engine: who averages the gradients, a name of `groups.SYNC_ENGINES`.
    """

    optimizer: str
    learning_rate: float
    replicas_to_aggregate: int | None
    num_workers: int
    worker: int = 0
    min_replicas_to_aggregate: int = 1
    wire: transfer.Wire = transfer.Wire()
    period: Period = Period()
    heartbeat_timeout_secs: float = 10.0
    sync_engine: str = "ps_train"


class Update(NamedTuple):
    """What one update mode needs, with a no-op wherever it needs nothing.

    Attributes:
      train_op: one step of a worker, or one round of several.
      loss: scalar, of its last mini-batch.
      num_taken: int64 scalar, how many mini-batches it takes.
      rest: int64 scalar, the mini-batches of a round that failed in its midst; computing it sends them to the ps.
      slots: what becomes of that which a worker keeps from round to round.
      ready_for_local_init_op: string [n], the names of what must be initialised before `local_init_op` may run
        (an identity of TensorFlow's own tensor, which complains at exit if nothing was done with it).
      local_init_op: each worker runs it before its first step.
      chief_init_op: the chief runs it besides, once the parameters are ready and before any worker trains.
      chief_resume_op: a new chief runs it instead, on parameters that are in use.
      make_chief_service: makes what the chief does besides while it trains; the graph itself starts no thread.
      release_op: whoever ends training runs it, so that no worker goes on waiting for another.
      gradients_per_step: mini-batches in one global step, while all workers are there.
      packed: the variables that are in packed ones.
      pulled: what a step pulls of dense variables.
      sparse: the names of the variables whose gradients are sparse.
    """

    train_op: tf.Operation
    loss: tf.Tensor
    num_taken: tf.Tensor
    rest: tf.Tensor
    slots: SlotTransfer
    ready_for_local_init_op: tf.Tensor
    local_init_op: tf.Operation
    chief_init_op: tf.Operation
    chief_resume_op: tf.Operation
    make_chief_service: Callable[[], ChiefService]
    release_op: tf.Operation
    gradients_per_step: int
    packed: packing.Packed = packing.NOTHING
    pulled: Sequence[transfer.View] = ()
    sparse: Sequence[str] = ()
