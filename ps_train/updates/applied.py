"""Wraps what applies gradients into an `Update`: at once, or after averaging those of several workers."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.embeddings import connection, registry
from ps_train.updates.chief import ChiefService
from ps_train.updates.local_steps.slots import no_slot_transfer
from ps_train.updates.sync import tensorflow_engine
from ps_train.updates.sync.quorum import Quorum
from ps_train.updates.sync.runner import UpdateRunner
from ps_train.updates.sync.sync_replicas import SyncReplicasOptimizer
from ps_train.updates.update import Update, UpdateSettings


def apply_on_ps(optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable) -> tf.Operation:
    """Returns the operation that applies gradients which are on the ps."""
    # The operation that waits for all of them is on ps 0, too. If it were on the worker, the answers of the other ps
    # would reach ps 0 through the worker.
    with tf.device(global_step.device):
        return optimizer.apply_gradients(gradients, global_step)


def update_from_train_op(train_op: tf.Operation, loss: tf.Tensor) -> Update:
    """Returns the Update of a train op that increments the global step by itself: asynchronous."""
    return Update(
        train_op=tf.group(train_op),
        loss=loss,
        num_taken=tf.constant(1, tf.int64),
        rest=tf.constant(0, tf.int64),
        slots=no_slot_transfer(),
        # The identity counts as a use of TensorFlow's tensor, which warns at exit if nothing has used it.
        ready_for_local_init_op=tf.identity(tf.report_uninitialized_variables(tf.global_variables())),
        local_init_op=tf.no_op(),
        chief_init_op=tf.no_op(),
        chief_resume_op=tf.no_op(),
        make_chief_service=ChiefService,
        release_op=tf.no_op(),
        gradients_per_step=1,
    )


def sync_update(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings
) -> Update:
    """Returns the Update that averages gradients, which are on the ps, before `optimizer` applies them."""
    replicas, num_workers = settings.replicas_to_aggregate, settings.num_workers
    if settings.sync_engine == "tensorflow":
        operations = tensorflow_engine.build_engine(
            optimizer, gradients, global_step, replicas_to_aggregate=replicas, num_workers=num_workers)

        def make_chief_service() -> ChiefService:
            return tensorflow_engine.QueueService(operations, replicas_to_aggregate=replicas, num_workers=num_workers)
    else:
        sync_optimizer = SyncReplicasOptimizer(
            optimizer, replicas, num_workers, worker=settings.worker, is_in_rounds=settings.period.steps > 1,
            has_blackboard=True, summed=_summed(settings))
        sync_optimizer.apply_gradients(gradients, global_step)
        operations = sync_optimizer.operations
        tf.summary.scalar("dropped_gradients", operations.status.dropped)

        def make_chief_service() -> ChiefService:
            return UpdateRunner(operations, Quorum(replicas_to_aggregate=replicas, num_workers=num_workers,
                                                   floor=settings.min_replicas_to_aggregate))
    return update_from_train_op(operations.train_op, loss)._replace(
        local_init_op=operations.local_init_op,
        chief_init_op=operations.begin_op,
        chief_resume_op=operations.resume_op,
        make_chief_service=make_chief_service,
        release_op=operations.release_op,
        gradients_per_step=replicas,
        verdict=getattr(operations, "verdict", None),  # TensorFlow's own engine has none
    )


def _summed(settings: UpdateSettings) -> list[tf.Variable]:
    stores = connection.stores_of(registry.current_registry()) if settings.sums_table_gradients else []
    return [store.rows for store in stores]
