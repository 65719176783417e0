"""How an update reaches the parameters: the only module that knows the update modes.

    async        pull, compute, push: nobody waits
    sync         R gradients are averaged into one update (synchronous.py)
    local steps  in either of them: what is pushed is the change that several steps made (local_steps.py)

Each mode answers with an `Update`, so that nothing after this module asks for the mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import finite, living, local_steps, packing, synchronous, transfer
from ps_train.coordinator import Coordinator, UpdateRunner
from ps_train.errors import UserCodeError
from ps_train.keeping import Keeping, nothing_kept
from ps_train.local_steps import Exchange, Period
from ps_train.members import Members

_MOMENTUM = 0.9
_OPTIMIZERS = {
    "sgd": tf.train.GradientDescentOptimizer,
    "momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, _MOMENTUM),
    "adagrad": tf.train.AdagradOptimizer,
    "adam": tf.train.AdamOptimizer,
    "rmsprop": tf.train.RMSPropOptimizer,
    "ftrl": tf.train.FtrlOptimizer,
}


class Settings(NamedTuple):
    """What the user chose for the updates.

    Attributes:
      optimizer: a name of `config.OPTIMIZERS`.
      replicas_to_aggregate: gradients averaged into one update, or None for async.
      num_workers: all workers, the chief among them.
      worker: the number of this worker.
      min_replicas_to_aggregate: no update averages fewer gradients, however few workers are left.
      wire: how dense variables travel.
      period: the steps between two exchanges with the ps.
      beat_timeout_secs: a worker that was not heard of for this long has no part in a mean of rounds.
    """

    optimizer: str
    learning_rate: float
    replicas_to_aggregate: int | None
    num_workers: int
    worker: int = 0
    min_replicas_to_aggregate: int = 1
    wire: transfer.Wire = transfer.Wire()
    period: Period = Period()
    beat_timeout_secs: float = 10.0


class Update(NamedTuple):
    """What one update mode needs, with a no-op wherever it needs nothing.

    Attributes:
      train_op: one step of a worker, or one round of several.
      loss: scalar, of its last mini-batch.
      num_taken: int64 scalar, how many mini-batches it takes.
      rest: int64 scalar, the mini-batches of a round that failed in its midst; computing it sends them to the ps.
      keeping: what becomes of that which a worker keeps from round to round.
      ready_for_local_init_op: string [n], the names of what must be initialised before `local_init_op` may run
        (an identity of TensorFlow's own tensor, which complains at exit if nothing was done with it).
      local_init_op: each worker runs it before its first step.
      chief_init_op: the chief runs it besides, once the parameters are ready and before any worker trains.
      chief_resume_op: a new chief runs it instead, on parameters that are in use.
      coordinator: what the chief does besides while it trains.
      release_op: whoever ends training runs it, so that no worker goes on waiting for another.
      gradients_per_step: mini-batches in one global step, while all workers are there.
      packed: the variables that are in packed ones.
      pulled: what a step pulls of dense variables.
    """

    train_op: tf.Operation
    loss: tf.Tensor
    num_taken: tf.Tensor
    rest: tf.Tensor
    keeping: Keeping
    ready_for_local_init_op: tf.Tensor
    local_init_op: tf.Operation
    chief_init_op: tf.Operation
    chief_resume_op: tf.Operation
    coordinator: Coordinator
    release_op: tf.Operation
    gradients_per_step: int
    packed: packing.Packed = packing.NOTHING
    pulled: Sequence[transfer.View] = ()


def make_optimizer(name: str, learning_rate: float) -> tf.train.Optimizer:
    """Returns the optimizer of that name with TensorFlow's defaults (momentum: 0.9)."""
    return _OPTIMIZERS[name](learning_rate)


def build(
    loss: tf.Tensor, global_step: tf.Variable, settings: Settings, compute_loss: Callable[[], tf.Tensor]
) -> Update:
    """Adds the gradients of the scalar `loss`, and what carries them to the parameters, to the current graph.

    Args:
      compute_loss: builds the model once more, on the next mini-batch, and returns its loss.

    Raises:
      UserCodeError: the loss depends on no trainable variable.
      ConfigError: the model cannot be trained with local steps.
    """
    optimizer = make_optimizer(settings.optimizer, settings.learning_rate)
    gradients = optimizer.compute_gradients(loss)
    if not any(gradient is not None for gradient, _ in gradients):
        raise UserCodeError("model_fn: the loss depends on no trainable variable; return the loss of a model with "
                            "variables made by tf.compat.v1.get_variable")
    if settings.period.steps > 1:
        return _in_rounds(loss, optimizer, gradients, global_step, settings, compute_loss)
    packed = packing.pack(
        loss, gradients, optimizer, lambda: make_optimizer(settings.optimizer, settings.learning_rate), settings.wire)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        checked = finite.guard(loss, packed.pairs, packed.packs)
    fused = transfer.fuse(loss, checked, settings.wire)
    if settings.replicas_to_aggregate is None:
        update = for_train_op(_applied(packed.optimizer, fused.pairs, global_step), loss)
    else:
        update = _synchronous(packed.optimizer, fused.pairs, loss, global_step, settings)
    return update._replace(
        chief_init_op=tf.group(update.chief_init_op, packed.fill_op), packed=packed, pulled=fused.pulled)


def _in_rounds(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: Settings,
    compute_loss: Callable[[], tf.Tensor],
) -> Update:
    optimizer.apply_gradients(gradients)  # never run: it makes the slots that a checkpoint has
    sharing = None
    if settings.replicas_to_aggregate is None:  # else the mean is made on the ps
        with tf.device(global_step.device):
            sharing = living.sharing(settings.worker, settings.beat_timeout_secs)
    done = local_steps.build(
        loss, gradients, compute_loss, optimizer, make_optimizer(settings.optimizer, settings.learning_rate),
        global_step, settings.period, settings.wire, sharing)
    if sharing:
        train_op, rest_op = (_applied(Exchange(lambda change=change: change.num_taken), change.pairs, global_step)
                             for change in (done.change, done.rest))
        with tf.device(global_step.device):
            update = for_train_op(tf.group(train_op, sharing.begin_op), done.loss)
        with tf.control_dependencies([rest_op]):
            num_rest = tf.identity(done.rest.num_taken)
    else:  # the chief applies it, for all who took as many steps
        exchange = Exchange(lambda: settings.period.of_update(global_step.read_value()))
        update = _synchronous(exchange, done.change.pairs, done.loss, global_step, settings)
        num_rest = tf.constant(0, tf.int64)
    return update._replace(num_taken=done.change.num_taken, rest=num_rest, keeping=done.keeping)


def _applied(optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable) -> tf.Operation:
    """Returns what applies gradients that lie on the ps; what waits for all of them is on ps 0, too.

    Else that is on the worker, and the other ps' answers go to ps 0 by way of it.
    """
    with tf.device(global_step.device):
        return optimizer.apply_gradients(gradients, global_step)


def for_train_op(train_op: tf.Operation, loss: tf.Tensor) -> Update:
    """Returns the Update of a train op that increments the global step by itself: asynchronous."""
    return Update(
        train_op=tf.group(train_op),
        loss=loss,
        num_taken=tf.constant(1, tf.int64),
        rest=tf.constant(0, tf.int64),
        keeping=nothing_kept(),
        ready_for_local_init_op=tf.identity(tf.report_uninitialized_variables(tf.global_variables())),
        local_init_op=tf.no_op(),
        chief_init_op=tf.no_op(),
        chief_resume_op=tf.no_op(),
        coordinator=Coordinator(),
        release_op=tf.no_op(),
        gradients_per_step=1,
    )


def _synchronous(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: Settings
) -> Update:
    """Returns the Update by which gradients that lie on the ps are averaged before they reach the parameters."""
    replicas = settings.replicas_to_aggregate
    operations = synchronous.Synchronous(
        optimizer, gradients, global_step, replicas, settings.num_workers, settings.worker,
        is_in_rounds=settings.period.steps > 1).operations()
    tf.summary.scalar("dropped_gradients", operations.standing.dropped)
    members = Members(replicas, settings.min_replicas_to_aggregate, settings.num_workers)
    return for_train_op(operations.train_op, loss)._replace(
        local_init_op=operations.local_init_op,
        chief_init_op=operations.begin_op,
        chief_resume_op=operations.resume_op,
        coordinator=UpdateRunner(operations, members),
        release_op=operations.release_op,
        gradients_per_step=replicas,
    )
