"""How an update reaches the parameters: the only module that knows the update modes.

    async        pull, compute, push: nobody waits
    sync         R gradients are averaged into one update by `tf.compat.v1.train.SyncReplicasOptimizer`
    local steps  in either of them: what is pushed is the change that several steps made (local_steps.py)

Each mode answers with an `Update`, so that nothing after this module asks for the mode.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import finite, local_steps, transfer
from ps_train.errors import UserCodeError
from ps_train.local_steps import Exchange, Keeping, Period, nothing_kept

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
      wire: how dense variables travel.
      period: the steps between two exchanges with the ps.
    """

    optimizer: str
    learning_rate: float
    replicas_to_aggregate: int | None
    num_workers: int
    wire: transfer.Wire = transfer.Wire()
    period: Period = Period()


class Update(NamedTuple):
    """What one update mode needs, with a no-op wherever it needs nothing.

    Attributes:
      train_op: one step of a worker, or one round of several.
      loss: scalar, of its last mini-batch.
      num_taken: adds to the current graph how many mini-batches it took, an int64 scalar to be read after it.
      rest: int64 scalar, the mini-batches of a round that failed in its midst; computing it sends them to the ps.
      keeping: what becomes of that which a worker keeps from round to round.
      ready_for_local_init_op: string [n], the names of what must be initialised before `local_init_op` may run
        (an identity of TensorFlow's own tensor, which complains at exit if nothing was done with it).
      local_init_op: each worker runs it before its first step.
      chief_init_op: the chief runs it besides, once the parameters are ready and before any worker trains.
      queue_runners: what the chief runs in threads while it trains.
      release_op: whoever ends training runs it, so that no worker goes on waiting for another.
      gradients_per_step: mini-batches in one global step.
      ends_together: whether training is over for all as soon as one worker runs out of data.
    """

    train_op: tf.Operation
    loss: tf.Tensor
    num_taken: Callable[[], tf.Tensor]
    rest: tf.Tensor
    keeping: Keeping
    ready_for_local_init_op: tf.Tensor
    local_init_op: tf.Operation
    chief_init_op: tf.Operation
    queue_runners: list[Any]
    release_op: tf.Operation
    gradients_per_step: int
    ends_together: bool


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
        return _in_rounds(optimizer, gradients, global_step, settings, compute_loss)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        checked = finite.guard(loss, gradients)
    return _arriving(optimizer, transfer.fuse(loss, checked, settings.wire), loss, global_step, settings)


def _in_rounds(
    optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: Settings,
    compute_loss: Callable[[], tf.Tensor],
) -> Update:
    optimizer.apply_gradients(gradients)  # never run: it makes the slots that a checkpoint has
    is_async = settings.replicas_to_aggregate is None
    done = local_steps.build(
        gradients, compute_loss, optimizer, make_optimizer(settings.optimizer, settings.learning_rate), global_step,
        settings.period, settings.num_workers if is_async else 1, settings.wire)
    rest = tf.constant(0, tf.int64)
    if is_async:
        exchange = Exchange(done.num_taken.read_value)
        with tf.control_dependencies([exchange.apply_gradients(done.rest, global_step)]):
            rest = done.num_taken.read_value()
    else:  # the chief applies it, for all who took as many steps
        exchange = Exchange(lambda: settings.period.of_next_round(global_step))
    return _arriving(exchange, done.change, done.loss, global_step, settings)._replace(
        num_taken=done.num_taken.read_value, rest=rest, keeping=done.keeping)


def _arriving(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: Settings
) -> Update:
    """Returns the Update by which gradients that lie on the ps reach the parameters."""
    if settings.replicas_to_aggregate is None:
        return for_train_op(optimizer.apply_gradients(gradients, global_step), loss)
    return _synchronous(optimizer, gradients, loss, global_step, settings)


def for_train_op(train_op: tf.Operation, loss: tf.Tensor) -> Update:
    """Returns the Update of a train op that increments the global step by itself: asynchronous."""
    return Update(
        train_op=tf.group(train_op),
        loss=loss,
        num_taken=_one,
        rest=tf.constant(0, tf.int64),
        keeping=nothing_kept(),
        ready_for_local_init_op=tf.identity(tf.report_uninitialized_variables(tf.global_variables())),
        local_init_op=tf.no_op(),
        chief_init_op=tf.no_op(),
        queue_runners=[],
        release_op=tf.no_op(),
        gradients_per_step=1,
        ends_together=False,
    )


def _one() -> tf.Tensor:
    return tf.constant(1, tf.int64)


def _synchronous(
    inner: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: Settings
) -> Update:
    optimizer = tf.train.SyncReplicasOptimizer(
        inner, replicas_to_aggregate=settings.replicas_to_aggregate, total_num_replicas=settings.num_workers)
    token = optimizer.apply_gradients(gradients, global_step)
    tokens_for_all = max(settings.num_workers, settings.replicas_to_aggregate)
    # Only the tokens without which no update could come about. The usual `get_init_tokens_op()` puts in as many as
    # gradients are aggregated: then a worker runs ahead and an update may average two gradients of the same worker.
    tokens_at_start = max(0, settings.replicas_to_aggregate - settings.num_workers)
    with tf.control_dependencies([_drain(optimizer)]):
        drained = tf.group(optimizer.chief_init_op)
    with tf.control_dependencies([drained]):
        chief_init_op = tf.group(optimizer.get_init_tokens_op(tokens_at_start))
    return Update(
        train_op=tf.group(token),
        loss=loss,
        num_taken=_one,
        rest=tf.constant(0, tf.int64),
        keeping=nothing_kept(),
        ready_for_local_init_op=tf.identity(optimizer.ready_for_local_init_op),
        local_init_op=optimizer.local_step_init_op,
        chief_init_op=chief_init_op,
        queue_runners=[_without_closing(optimizer.get_chief_queue_runner())],
        release_op=optimizer.get_init_tokens_op(tokens_for_all),
        gradients_per_step=settings.replicas_to_aggregate,
        ends_together=True,
    )


def _without_closing(runner: tf.train.QueueRunner) -> tf.train.QueueRunner:
    """Returns the runner without its habit to close the queue when training stops.

    The token queue lives on ps 0 and outlives the chief's session: closed, it would end the other workers, a restarted
    chief, and the next run on existing servers. Closing the session frees the runner's thread as well.
    """
    return tf.train.QueueRunner(runner.queue, runner.enqueue_ops, close_op=tf.no_op(), cancel_op=tf.no_op())


def _drain(optimizer: tf.train.SyncReplicasOptimizer) -> tf.Operation:
    """Empties the token queue and the accumulators of what an earlier run on the same servers left there."""
    queue = optimizer._sync_token_queue  # noqa: SLF001 (SyncReplicasOptimizer has no public name for it)
    drained = [queue.dequeue_many(queue.size())]
    for accumulator, device in optimizer._accumulator_list:  # noqa: SLF001
        with tf.device(device):
            drained.append(_drop_gradients(accumulator))
    return tf.group(*drained)


def _drop_gradients(accumulator: Any) -> tf.Operation:
    """Takes out what gradients are in an accumulator; taking 0 of them is refused, taking from none would wait."""
    return tf.cond(accumulator.num_accumulated() > 0, lambda: tf.group(accumulator.take_grad(1)), tf.no_op)
