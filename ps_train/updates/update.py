"""The settings of the updates, what an update mode provides, and what the chief does during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination.blackboard import Blackboard
from ps_train.graph import packing, transfer
from ps_train.graph.shaping import Knobs, OptimizerPlan
from ps_train.updates.local_steps.variable_copies import SlotTransfer
from ps_train.updates.sync.aggregation import Verdict

CHECK_SECS = 1.0
RUN_OPTIONS = tf.RunOptions(timeout_in_ms=5000)


class Period(NamedTuple):
    """How many steps a round has.

    Attributes:
      steps: the steps of most rounds.
      warmup_steps: before this global step, a round has one step.
      train_steps: a round that begins before this global step has no steps beyond it, and in async a round that begins
        later has none. Other workers' rounds may still raise the global step above it.
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
      is_resumed: whether the parameters are in use already, so that missing workers are dead.
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
    """What the chief does during training, beside its own steps. This one, for async, does nothing.

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


class UpdateSettings(NamedTuple):
    """What the user chose for the updates.

    Attributes:
      optimizer: a name in `groups.OPTIMIZERS`.
      replicas_to_aggregate: gradients averaged into one update, or None for async.
      num_workers: the number of workers, chief included.
      worker: the number of this worker.
      min_replicas_to_aggregate: no update averages fewer gradients, however few workers are left.
      wire: how dense variables are transferred.
      period: the steps between two exchanges with the ps.
      heartbeat_timeout_secs: a worker without a heartbeat for this long does not count in a mean of rounds.
      sync_engine: averages the gradients; a name in `groups.SYNC_ENGINES`.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update; only in sync.
      knobs: the schedule of the learning rate, clipping, weight decay, and the options of the optimizer.
      make_own: the model's own `make_optimizer`, called with the global step, or None.
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
    decays_all_rows: bool = False
    knobs: Knobs = Knobs()
    make_own: Callable[[tf.Variable], Any] | None = None

    @property
    def plan(self) -> OptimizerPlan:
        """Returns how the optimizer is made."""
        return OptimizerPlan(self.optimizer, self.learning_rate, self.decays_all_rows, self.knobs, self.make_own)


class Update(NamedTuple):
    """What an update mode provides, with a no-op for whatever it does not need.

    Attributes:
      train_op: one step of a worker, or one round of several.
      loss: scalar loss of the last mini-batch.
      num_taken: int64 scalar, the mini-batches that `train_op` takes.
      rest: int64 scalar, the mini-batches of a round that was cut short; computing it pushes their change.
      slots: moves optimizer slots between the worker and the ps.
      ready_for_local_init_op: string [n], the names of what must be initialised before `local_init_op` may run.
      local_init_op: every worker runs it before its first step.
      chief_init_op: the chief runs it, too, when the parameters are ready and before any worker trains.
      chief_resume_op: a new chief runs it instead, if the parameters are in use.
      make_chief_service: creates what the chief does during training; the graph itself starts no thread.
      release_op: releases every worker that waits for another; run by the task that ends training.
      gradients_per_step: mini-batches in one global step, while all workers are there.
      packed: the variables that are packed.
      pulled: the dense variables that a step pulls.
      sparse: the names of the variables with sparse gradients.
      own_optimizer: the classes of the model's own optimizers, "" where the optimizer is that of the settings.
      verdict: in sync, whether the gradients of a step were in an update: (is_settled, is_lost), see `Verdict`.
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
    own_optimizer: str = ""
    verdict: Verdict | None = None
