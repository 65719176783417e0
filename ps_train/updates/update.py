"""The settings of the updates, what an update mode provides, and what the chief does during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination.blackboard import Blackboard
from ps_train.graph import transfer
from ps_train.graph.extensions import Packed
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.updates.variable_copies import SlotTransfer

CHECK_SECS = 1.0
RUN_OPTIONS = tf.RunOptions(timeout_in_ms=5000)


class Period(NamedTuple):
    """How many steps a round has.

    Attributes:
      steps: the steps of most rounds.
      warmup_steps: before this global step, a round has one step.
      train_steps: rounds are cut, so no worker plans steps beyond this global step; an async round that begins after it
        is empty. Other workers' rounds may still raise the global step above it.
    """

    steps: int = 1
    warmup_steps: int = 0
    train_steps: int | None = None

    def round_steps(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the steps of an asynchronous round that begins at this global step; both are int64 scalars."""
        steps = tf.where(begun < self.warmup_steps, tf.ones_like(begun), self.steps)
        if self.train_steps is not None:
            steps = tf.clip_by_value(self.train_steps - begun, 0, steps)
        return steps

    def sync_round_steps(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the same for a synchronous round, which has at least one step."""
        # Workers wait for the global step to rise.
        return tf.maximum(self.round_steps(begun), 1)


class ChiefContext(NamedTuple):
    """What the chief knows of the workers.

    Attributes:
      board: the blackboard.
      worker_names: number -> name and address of each worker.
      chief_number: the chief's own number.
      start_timeout_secs: how long the chief waits for workers that are missing.
      is_resumed: whether the parameters are in use already; missing workers are dead then.
    """

    board: Blackboard
    worker_names: Mapping[int, str]
    chief_number: int
    start_timeout_secs: float
    is_resumed: bool

    def names_of(self, workers: frozenset[int]) -> str:
        """Returns the workers' names and addresses, for messages."""
        return ", ".join(self.worker_names[worker] for worker in sorted(workers))


class ChiefService:
    """What the chief does during training besides its own steps. This one, for async, does nothing.

    Attributes:
      error: why the service has closed the session, or None.
    """

    error: Exception | None = None

    def start(self, session: tf.Session, context: ChiefContext) -> None:
        """Starts the service in a session whose parameters are ready."""

    def conclude(self, session: tf.Session) -> None:
        """Logs what the user should know when all steps are taken."""

    def stop(self) -> None:
        """Stops the service, before the session is closed."""

    def check_lost(self, error: tf.errors.OpError, context: ChiefContext) -> None:
        """Raises ClusterLostError if training cannot continue in a new session after this error of a lost one."""


class SyncSettings(NamedTuple):
    """How synchronous updates average gradients.

    Attributes:
      replicas_to_aggregate: gradients averaged into one update.
      num_workers: the number of workers, chief included.
      min_replicas_to_aggregate: no update averages fewer gradients, however few workers are left.
      engine: averages the gradients in place of `sync.aggregation.SyncEngine`, or None. It is called with the
        optimizer, the gradients, the global step and these settings, and returns the operations (`train_op`, `init`,
        `release_op`, `verdict`) and what creates the service of the chief.
    """

    replicas_to_aggregate: int
    num_workers: int
    min_replicas_to_aggregate: int = 1
    engine: Callable[..., Any] | None = None

    def gradients_of(self, worker: int) -> int:
        """Returns how many gradients of an update a worker computes: one, or more if there are more than workers."""
        each, more = divmod(self.replicas_to_aggregate, self.num_workers)
        return max(1, each + (worker < more))


class UpdateSettings(NamedTuple):
    """What the user chose for the updates.

    Attributes:
      plan: how the optimizer is made.
      worker: the number of this worker.
      sync: how gradients are averaged, or None for async.
      wire: how dense variables are transferred.
      period: the steps between two exchanges with the ps.
      heartbeat_timeout_secs: a worker without a heartbeat for this long does not count in a mean of rounds.
    """

    plan: OptimizerPlan
    worker: int = 0
    sync: SyncSettings | None = None
    wire: transfer.Wire = transfer.Wire()
    period: Period = Period()
    heartbeat_timeout_secs: float = 10.0


class InitOps(NamedTuple):
    """What must run before the first step of a session.

    Attributes:
      every_worker: every worker runs it, in each session.
      new_run: the chief runs it, too, when it has prepared the parameters and before any worker trains.
      live_run: a new chief runs it instead, if the parameters are in use.
    """

    every_worker: tf.Operation
    new_run: tf.Operation
    live_run: tf.Operation


class Verdict(NamedTuple):
    """What has become of a worker's gradients, after a step.

    Attributes:
      is_settled: bool scalar; False if an update with the gradient needs further ones of this worker.
      is_lost: bool scalar, whether the gradients since the last verdict may be in no update.
    """

    is_settled: tf.Tensor
    is_lost: tf.Tensor


class DenseVariables(NamedTuple):
    """How a step transfers the dense variables.

    Attributes:
      packed: the small ones, which travel together.
      pulled: the values that it pulls.
    """

    packed: Packed = Packed([], None)
    pulled: Sequence[transfer.View] = ()


class Update(NamedTuple):
    """What an update mode provides, with a no-op for what it does not need.

    Attributes:
      train_op: one step of a worker, or one round of several.
      loss: scalar loss of the last mini-batch.
      num_taken: int64 scalar, the mini-batches that `train_op` takes.
      failed_run_steps: int64 scalar, the mini-batches of a session run that failed. Fetching it pushes the change of a
        round that was cut short, and resets the count of unrolled steps.
      slots: moves optimizer slots between the worker and the ps.
      init: what runs before the first step.
      make_chief_service: creates what the chief does during training; the graph itself starts no thread.
      release_op: releases every worker that waits for another; run by the task that ends training.
      gradients_per_step: mini-batches in one global step, while all workers are there.
      dense: how the dense variables are transferred.
      notes: lines for the user about the optimizer.
      verdict: in sync, whether the gradients of a step were in an update; else None.
    """

    train_op: tf.Operation
    loss: tf.Tensor
    num_taken: tf.Tensor
    failed_run_steps: tf.Tensor
    slots: SlotTransfer
    init: InitOps
    make_chief_service: Callable[[], ChiefService]
    release_op: tf.Operation
    gradients_per_step: int
    dense: DenseVariables = DenseVariables()
    notes: Sequence[str] = ()
    verdict: Verdict | None = None
