"""How an update reaches the parameters: the only module that knows the update modes.

    async        pull, compute, push: nobody waits
    sync         R gradients are averaged into one update (sync/sync_replicas.py, or sync/tensorflow_engine.py)
    local steps  in either of them: what is pushed is the change that several steps made (updates/local_steps/rounds.py)

Each mode answers with an `Update`, so that nothing after this module asks for the mode.
"""

from __future__ import annotations

from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import nan_guard, optimizers, packing, transfer
from ps_train.updates.chief import ChiefService
from ps_train.updates.local_steps import rounds
from ps_train.updates.local_steps.rounds import Exchange
from ps_train.updates.local_steps.slots import no_slot_transfer
from ps_train.updates.sync import tensorflow_engine
from ps_train.updates.sync.quorum import Quorum
from ps_train.updates.sync.runner import UpdateRunner
from ps_train.updates.sync.sync_replicas import SyncReplicasOptimizer
from ps_train.updates.update import Update, UpdateSettings


def build_update(
    loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings, compute_loss: Callable[[], tf.Tensor]
) -> Update:
    """Adds the gradients of the scalar `loss`, and what carries them to the parameters, to the current graph.

    Args:
      compute_loss: builds the model once more, on the next mini-batch, and returns its loss.

    Raises:
      UserCodeError: the loss depends on no trainable variable.
      ConfigError: the model cannot be trained with local steps.
    """
    optimizer = optimizers.make_optimizer(settings.optimizer, settings.learning_rate)
    gradients = optimizer.compute_gradients(loss)
    if not any(gradient is not None for gradient, _ in gradients):
        raise UserCodeError("model_fn: the loss depends on no trainable variable; return the loss of a model with "
                            "variables made by tf.compat.v1.get_variable")
    if settings.period.steps > 1:
        return _in_rounds(loss, optimizer, gradients, global_step, settings, compute_loss)
    packed = packing.pack(
        loss, gradients, optimizer,
        lambda: optimizers.make_optimizer(settings.optimizer, settings.learning_rate), settings.wire)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        checked = nan_guard.guard(loss, packed.pairs, packed.packs)
    fused = transfer.fuse(loss, checked, settings.wire)
    if settings.replicas_to_aggregate is None:
        update = for_train_op(_applied(packed.optimizer, fused.pairs, global_step), loss)
    else:
        update = _synchronous(packed.optimizer, fused.pairs, loss, global_step, settings)
    return update._replace(
        chief_init_op=tf.group(update.chief_init_op, packed.fill_op), packed=packed, pulled=fused.pulled,
        sparse=[variable.op.name for gradient, variable in gradients if isinstance(gradient, tf.IndexedSlices)])


def _in_rounds(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: UpdateSettings,
    compute_loss: Callable[[], tf.Tensor],
) -> Update:
    optimizer.apply_gradients(gradients)  # never run: it makes the slots that a checkpoint has
    sharing = None
    if settings.replicas_to_aggregate is None:  # else the mean is made on the ps
        with tf.device(global_step.device):
            sharing = sharing.sharing(settings.worker, settings.heartbeat_timeout_secs)
    done = rounds.build(
        loss, gradients, compute_loss, optimizer, optimizers.make_optimizer(settings.optimizer, settings.learning_rate),
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
    return update._replace(num_taken=done.change.num_taken, rest=num_rest, slots=done.slots)


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
        slots=no_slot_transfer(),
        ready_for_local_init_op=tf.identity(tf.report_uninitialized_variables(tf.global_variables())),
        local_init_op=tf.no_op(),
        chief_init_op=tf.no_op(),
        chief_resume_op=tf.no_op(),
        make_chief_service=ChiefService,
        release_op=tf.no_op(),
        gradients_per_step=1,
    )


def _synchronous(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings
) -> Update:
    """Returns the Update by which gradients that lie on the ps are averaged before they reach the parameters."""
    if settings.sync_engine == "tensorflow":
        return _classic(optimizer, gradients, loss, global_step, settings)
    replicas = settings.replicas_to_aggregate
    synchronous = SyncReplicasOptimizer(
        optimizer, replicas, settings.num_workers, worker=settings.worker, is_in_rounds=settings.period.steps > 1,
        has_blackboard=True)
    train_op = synchronous.apply_gradients(gradients, global_step)
    operations = synchronous.operations
    tf.summary.scalar("dropped_gradients", operations.status.dropped)
    quorum = Quorum(
        replicas_to_aggregate=replicas, floor=settings.min_replicas_to_aggregate, num_workers=settings.num_workers)
    return for_train_op(train_op, loss)._replace(
        local_init_op=operations.local_init_op,
        chief_init_op=operations.begin_op,
        chief_resume_op=operations.resume_op,
        make_chief_service=lambda: UpdateRunner(operations, quorum),
        release_op=operations.release_op,
        gradients_per_step=replicas,
    )


def _classic(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings
) -> Update:
    """Returns the Update of TensorFlow's own SyncReplicasOptimizer."""
    replicas = settings.replicas_to_aggregate
    operations = tensorflow_engine.build(optimizer, gradients, global_step, replicas, settings.num_workers)
    return for_train_op(operations.train_op, loss)._replace(
        local_init_op=operations.local_init_op,
        chief_init_op=operations.begin_op,
        chief_resume_op=operations.resume_op,
        make_chief_service=lambda: tensorflow_engine.QueueService(
            operations, replicas_to_aggregate=replicas, num_workers=settings.num_workers),
        release_op=operations.release_op,
        gradients_per_step=replicas,
    )
