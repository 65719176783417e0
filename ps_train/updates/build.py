"""Builds the update of the mode that the settings ask for: the only module that asks for the mode.

    async        pull, compute, push; no worker waits
    sync         the mean of R gradients is one update (sync/sync_replicas.py, or sync/tensorflow_engine.py)
    local steps  in either of the two; a worker pushes the change by several steps (local_steps/rounds.py)

Every mode provides an `Update`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.embeddings import connection, registry
from ps_train.embeddings.connection import Connected
from ps_train.embeddings.optimizer import TableOptimizer
from ps_train.embeddings.rows.store import Store
from ps_train.errors import UserCodeError
from ps_train.graph import nan_guard, packing, transfer
from ps_train.graph.own_train_op.update import OwnUpdate
from ps_train.graph.row_sparse import joined_lookups
from ps_train.updates.applied import apply_on_ps, sync_update, update_from_train_op
from ps_train.updates.gradients import gradients_on_ps
from ps_train.updates.local_steps.change import ChangeOptimizer
from ps_train.updates.local_steps.divisor import make_divisor
from ps_train.updates.local_steps.rounds import build_round
from ps_train.updates.local_steps.source import StepSource
from ps_train.updates.update import Update, UpdateSettings


def build_update(
    loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings, source: StepSource,
    own: OwnUpdate | None = None,
) -> Update:
    """Adds the gradients of the scalar `loss`, and what applies them to the parameters, to the current graph.

    Args:
      source: builds the model once more, on further mini-batches.
      own: the update that the model itself has defined; None for the optimizer of the settings.

    Raises:
      UserCodeError: the loss depends on no trainable variable, or the mode cannot use the model's own update.
      ConfigError: the model cannot be trained with local steps.
    """
    is_sync = settings.replicas_to_aggregate is not None
    tables = source.ahead.connect() if source.ahead else connection.connect_lookups(sorts_ids=is_sync)
    if own:
        _check_own(own, settings)
        if not settings.decays_all_rows:
            own.make_row_sparse()
    optimizer = own.make_optimizer() if own else settings.plan.make(global_step)
    gradients, of_tables = gradients_on_ps(loss, optimizer, own, tables)
    if not of_tables and not any(gradient is not None for gradient, _ in gradients):
        raise UserCodeError("model_fn: the loss depends on no trainable variable; return the loss of a model with "
                            "variables made by tf.compat.v1.get_variable")
    if settings.period.steps > 1:
        return _local_steps_update(loss, optimizer, gradients, global_step, settings, source, list(of_tables))
    update = _single_step_update(loss, optimizer, gradients, global_step, settings, own, tables, of_tables)
    if source.ahead:
        update = update._replace(loss=source.ahead.after_staging(update.loss), prime_op=source.ahead.prime_op)
    return update._replace(
        own_optimizer=own.names if own else type(optimizer).__name__ if settings.make_own else "",
        sparse=[variable.op.name for gradient, variable in gradients if isinstance(gradient, tf.IndexedSlices)])


def _single_step_update(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: UpdateSettings,
    own: OwnUpdate | None, tables: Connected | None, of_tables: dict[str, tf.Tensor],
) -> Update:
    """Returns the Update of one mini-batch: pull, compute, push.

    Args:
      of_tables: the gradient of what was pulled of each table.
    """
    waits_for = own.waits_for if own else tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    if settings.wire.is_fused:
        of_step = [part for gradient, _ in gradients for part in transfer.tensors_of(gradient)]
        joined_lookups.join_lookups([loss, *of_step, *of_tables.values(), *waits_for], tf.global_variables())
    packed = _pack(loss, gradients, optimizer, global_step, settings, own)
    with tf.control_dependencies(waits_for):
        checked, checked_tables = nan_guard.guard(loss, packed.pairs, packed.packs, of_tables)
    if settings.wire.is_fused:
        checked = joined_lookups.join_gradients(checked, sorts_ids=settings.replicas_to_aggregate is not None)
    fused = transfer.fuse(loss, checked, settings.wire)
    optimizer, pairs = packed.optimizer, fused.pairs
    if tables:
        optimizer = _with_tables(optimizer, Store.update, None if own else settings.plan.factor(global_step))
        pairs = [*pairs, *tables.push(checked_tables)]
    if not own:
        optimizer = settings.plan.shaped(optimizer, global_step)  # outside, as the norm includes that of the tables
    if settings.replicas_to_aggregate is None:
        update = update_from_train_op(apply_on_ps(optimizer, pairs, global_step), loss)
    else:
        update = sync_update(optimizer, pairs, loss, global_step, settings)
    return update._replace(
        chief_init_op=tf.group(update.chief_init_op, packed.fill_op), packed=packed, pulled=fused.pulled)


def _with_tables(
    optimizer: tf.train.Optimizer, apply: Callable[..., tf.Operation], factor: tf.Tensor | None = None
) -> tf.train.Optimizer:
    """Returns an optimizer that also applies what concerns tables, by `Store.update` or `Store.merge`."""
    stores = connection.stores_of(registry.current_registry())
    return TableOptimizer(optimizer, stores, apply, factor) if stores else optimizer


def _pack(
    loss: tf.Tensor, gradients: list, optimizer: tf.train.Optimizer, global_step: tf.Variable, settings: UpdateSettings,
    own: OwnUpdate | None,
) -> packing.Packed:
    """Packs the small variables, unless the model's own optimizer may treat the elements of a variable as a whole."""
    if not (own.is_elementwise if own else settings.plan.is_elementwise(optimizer)):
        return packing.NOTHING._replace(pairs=gradients, optimizer=optimizer, fill_op=tf.no_op())
    make_another = own.make_another if own else lambda: settings.plan.make(global_step)
    return packing.pack(loss, gradients, optimizer, make_another, settings.wire,
                        others=own.waits_for if own else tf.get_collection(tf.GraphKeys.UPDATE_OPS))


def _check_own(own: OwnUpdate, settings: UpdateSettings) -> None:
    """Refuses an update of the model that this mode cannot carry out as the model means it.

    Raises:
      UserCodeError: the mode is async, and the model asks for sync; or the model does something after each update that
        the mode has no place for.
    """
    is_sync = settings.replicas_to_aggregate is not None
    if own.is_sync and not is_sync:
        raise UserCodeError("model_fn wraps its optimizer in SyncReplicasOptimizer, and this training is asynchronous; "
                            "give --sync_replicas, or leave the wrapper out")
    if own.does_more and settings.period.steps > 1:
        raise UserCodeError("--communication_period: the model's train_op does something after each update, such as a "
                            "moving average, which has no place on a worker's copy; leave the flag out")
    if own.after_needs_batch and is_sync:
        raise UserCodeError("--sync_replicas: the model's train_op does something with the mini-batch after the "
                            "update, and an update has the mini-batches of all workers; do it before the update")


def _local_steps_update(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: UpdateSettings,
    source: StepSource, tables: Sequence[str],
) -> Update:
    _create_slots(optimizer, gradients)
    divisor = None
    if settings.replicas_to_aggregate is None:  # in sync, the update on the ps takes the mean
        with tf.device(global_step.device):
            divisor = make_divisor(settings.worker, settings.heartbeat_timeout_secs)
    built = build_round(
        loss, gradients, source, ps_optimizer=optimizer, plan=settings.plan,
        global_step=global_step, period=settings.period, wire=settings.wire, divisor=divisor, tables=tables)
    if divisor:
        train_op, rest_op = (
            apply_on_ps(_with_tables(ChangeOptimizer(lambda change=change: change.num_taken), Store.merge),
                         change.pairs, global_step)
            for change in (built.change, built.rest))
        with tf.device(global_step.device):
            update = update_from_train_op(tf.group(train_op, divisor.begin_op), built.loss)
        with tf.control_dependencies([rest_op]):
            num_rest = tf.identity(built.rest.num_taken)
    else:
        # The chief applies the mean for all workers, whose rounds had the same number of steps.
        optimizer = ChangeOptimizer(lambda: settings.period.sync_round_steps(global_step.read_value()))
        optimizer = _with_tables(optimizer, Store.merge)
        update = sync_update(optimizer, built.change.pairs, built.loss, global_step, settings)
        num_rest = tf.constant(0, tf.int64)
    return update._replace(num_taken=built.change.num_taken, rest=num_rest, slots=built.slots)


def _create_slots(optimizer: tf.train.Optimizer, gradients: list) -> None:
    """Creates the slots that a checkpoint has.

    Raises:
      UserCodeError: the optimizer keeps variables that are not slots, so that nobody can move them to a worker.
    """
    before = {variable.ref() for variable in tf.global_variables()}
    if any(gradient is not None for gradient, _ in gradients):  # a model may have tables only
        optimizer.apply_gradients(gradients)  # never run
    known = before | {variable.ref() for variable in optimizer.variables()}
    others = [variable.op.name for variable in tf.global_variables() if variable.ref() not in known]
    if others:
        raise UserCodeError(f"--communication_period: the model's optimizer keeps {others[0]}, which it has not "
                            "created as a slot, so that it cannot move to a worker; leave the flag out")
