"""Builds the update of a model: by which rule, and in which mode. No other module asks for the mode.

    no train_op                          --optimizer, in every mode
    train_op made by an optimizer        that optimizer with the model's gradients, in every mode (graph/extensions.py)
    any other train_op                   as the model wrote it, asynchronously

    async        pull, compute, push; no worker waits
    sync         the mean of R gradients is one update (sync/aggregation.py, or sync/tensorflow_engine.py)
    local steps  in either of the two; a worker pushes the change by several steps (local_steps.py)

Every mode provides an `Update`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import Problem, UserCodeError, refuse
from ps_train.graph import extensions, nan_guard, packing, transfer
from ps_train.graph.batches import Batches
from ps_train.graph.extensions import ModelUpdate, RowParameters
from ps_train.graph.plugin_calls import TrainModel
from ps_train.updates.local_steps import ChangeOptimizer, build_round
from ps_train.updates.sync import tensorflow_engine
from ps_train.updates.sync.aggregation import SyncEngine
from ps_train.updates.sync.runner import Quorum, UpdateRunner
from ps_train.updates.update import ChiefService, DenseVariables, InitOps, Update, UpdateSettings
from ps_train.updates.variable_copies import StepModel, StepSource, no_slot_transfer

_log = logging.getLogger(__name__)


def build_model_update(
    trained: TrainModel, global_step: tf.Variable, settings: UpdateSettings, batches: Batches,
    compute: Callable[[Any], TrainModel], steps_per_execution: int,
) -> Update:
    """Adds what updates the parameters to the current graph.

    Args:
      trained: the model on a mini-batch.
      batches: the mini-batches.
      compute: builds the model once more, on another mini-batch.
      steps_per_execution: single steps in one session run.

    Raises:
      UserCodeError: the mode cannot use the model's train_op, or the loss depends on no trainable variable.
      ConfigError: the model cannot be trained with local steps.
    """
    def compute_again(batch: Any) -> StepModel:
        again = compute(batch)
        if again.problem:
            raise UserCodeError("train_op_unsupported", "--communication_period: when model_fn is called again, its "
                                f"train_op {again.problem}")
        return StepModel(again.spec.loss, again.model_update)

    loss = trained.spec.loss
    _refuse_two_rules(trained, settings)
    if not trained.problem:
        return build_update(loss, global_step, settings, StepSource(batches, compute_again), trained.model_update)
    refusing = ("--sync_replicas cannot aggregate" if settings.sync else
                "--communication_period cannot run on a worker's copy" if settings.period.steps > 1 else
                "--steps_per_execution cannot repeat in order" if steps_per_execution > 1 else None)
    if refusing:
        raise UserCodeError("train_op_unsupported", f"model_fn returned a train_op, which {refusing}, because it "
                            f"{trained.problem}; return the loss only and choose the rule with --optimizer")
    if extensions.row_parameters().specs:
        raise UserCodeError("train_op_unsupported", "model_fn returned a train_op, which cannot update the embedding "
                            f"tables, because it {trained.problem}; return the loss only")
    extensions.train_ops().restore(trained.captured)
    return _update_from_train_op(trained.spec.train_op, loss)


def _refuse_two_rules(trained: TrainModel, settings: UpdateSettings) -> None:
    """Refuses what would change the update of a model that has returned a train_op.

    Raises:
      UserCodeError: the module has a make_optimizer, too.
      ConfigError: flags choose how the optimizer works.
    """
    if trained.spec.train_op is None:
        return
    if settings.plan.make_model_optimizer:
        raise UserCodeError("model_functions_conflict", "model_fn returned a train_op, and its module has a "
                            "make_optimizer; leave one of them out")
    refuse([Problem("flags_conflict", f"--{name}: model_fn returned a train_op, which clips and decays by itself; "
                    "leave the flag out, or return the loss only") for name in settings.plan.rule.flags])
    if trained.model_update:
        _log.info("the model brings its own optimizer, %s; --optimizer is not used", trained.model_update.names)


def describe_adam(settings: UpdateSettings, sparse: Sequence[str], own_optimizer: str = "") -> list[str]:
    """Returns a line about the tables that Adam updates row by row, or none without such tables.

    Args:
      sparse: the names of the variables with sparse gradients.
      own_optimizer: the classes of the model's own optimizers, "" where it has none.
    """
    is_adam = "AdamOptimizer" in own_optimizer if own_optimizer else settings.plan.name == "adam"
    if not sparse or not is_adam or settings.plan.decays_all_rows:
        return []
    advice = "; --adam_decays_all_rows decays all of them" if settings.sync else ""
    return [f"Adam updates only the rows of {', '.join(sparse)} that have a gradient (lazy Adam){advice}"]


def build_update(
    loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings, source: StepSource,
    own: ModelUpdate | None = None,
) -> Update:
    """Adds the gradients of the scalar `loss`, and what applies them to the parameters, to the current graph.

    Args:
      source: builds the model once more, on further mini-batches.
      own: the update that the model itself has defined; None for the optimizer of the settings.

    Raises:
      UserCodeError: the loss depends on no trainable variable, or the mode cannot use the model's own update.
      ConfigError: the model cannot be trained with local steps.
    """
    rows = extensions.row_parameters()
    connected = rows.connect(sorts_ids=settings.sync is not None)
    if own:
        _check_own(own, settings)
        if not settings.plan.decays_all_rows:
            own.make_row_sparse()
    optimizer = own.make_optimizer() if own else settings.plan.make(global_step)
    gradients, of_rows = _gradients_on_ps(loss, optimizer, own, connected)
    if not of_rows and not any(gradient is not None for gradient, _ in gradients):
        raise UserCodeError("loss_without_variables", "model_fn: the loss depends on no trainable variable; return the "
                            "loss of a model with variables made by tf.compat.v1.get_variable")
    if settings.period.steps > 1:
        return _local_steps_update(
            loss, optimizer, gradients, global_step, settings, source, rows, list(of_rows))
    update = _single_step_update(
        loss, optimizer, gradients, global_step, settings, own, rows, connected, of_rows)
    own_optimizer = own.names if own else type(optimizer).__name__ if settings.plan.make_model_optimizer else ""
    sparse = [variable.op.name for gradient, variable in gradients if isinstance(gradient, tf.IndexedSlices)]
    return update._replace(notes=describe_adam(settings, sparse, own_optimizer))


def _gradients_on_ps(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, own: ModelUpdate | None, connected: Any
) -> tuple[list, dict[str, tf.Tensor]]:
    """Returns (gradient or None, variable) of the variables, and the gradients of what was pulled of rows, by name."""
    pulled = list(connected.pulled.values()) if connected else []
    if own:
        found, of_rows = own.pairs, tf.gradients(loss, pulled) if pulled else []
    else:
        # All at once: a second call would build the model's gradients a second time.
        found = optimizer.compute_gradients(loss, [*tf.trainable_variables(), *pulled]) if (
            pulled or tf.trainable_variables()) else []
        count = len(found) - len(pulled)
        found, of_rows = found[:count], [gradient for gradient, _ in found[count:]]
    return found, connected.gradients_by_id(dict(zip(connected.pulled, of_rows))) if connected else {}


def _single_step_update(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: UpdateSettings,
    own: ModelUpdate | None, rows: RowParameters, connected: Any, of_rows: dict[str, tf.Tensor],
) -> Update:
    """Returns the Update of one mini-batch: pull, compute, push.

    Args:
      connected: what `rows.connect` has returned.
      of_rows: the gradients of what was pulled of rows, by name.
    """
    waits_for = own.waits_for if own else tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    if settings.wire.is_fused:
        of_step = [part for gradient, _ in gradients for part in transfer.tensors_of(gradient)]
        extensions.graph_lookups().join_lookups([loss, *of_step, *of_rows.values(), *waits_for], tf.global_variables())
    packed = _pack(loss, gradients, optimizer, global_step, settings, own)
    with tf.control_dependencies(waits_for):
        checked, checked_rows = nan_guard.guard(loss, packed.pairs, packed.packs, of_rows)
    if settings.wire.is_fused:
        checked = extensions.graph_lookups().join_gradients(checked, sorts_ids=settings.sync is not None)
    fused = transfer.fuse(loss, checked, settings.wire)
    optimizer, pairs = packed.optimizer, fused.pairs
    if connected:
        optimizer = rows.applied_by(optimizer, factor=None if own else settings.plan.factor(global_step))
        pairs = [*pairs, *connected.push(checked_rows)]
    if not own:
        optimizer = settings.plan.wrap(optimizer, global_step)  # last: the norm covers rows and variables
    if settings.sync:
        update = _sync_update(optimizer, pairs, loss, global_step, settings, rows.summed())
    else:
        update = _update_from_train_op(_apply_on_ps(optimizer, pairs, global_step), loss)
    return update._replace(
        init=update.init._replace(new_run=tf.group(update.init.new_run, packed.fill_op)),
        dense=DenseVariables(packed, fused.pulled))


def _pack(
    loss: tf.Tensor, gradients: list, optimizer: tf.train.Optimizer, global_step: tf.Variable, settings: UpdateSettings,
    own: ModelUpdate | None,
) -> packing.Packed:
    """Packs the small variables, unless the model's own optimizer may treat the elements of a variable as a whole."""
    if not (own.is_elementwise if own else settings.plan.is_elementwise(optimizer)):
        return packing.NOTHING._replace(pairs=gradients, optimizer=optimizer, fill_op=tf.no_op())
    make_another = own.make_another if own else lambda: settings.plan.make(global_step)
    return packing.pack(loss, gradients, optimizer, make_another, settings.wire,
                        others=own.waits_for if own else tf.get_collection(tf.GraphKeys.UPDATE_OPS))


def _check_own(own: ModelUpdate, settings: UpdateSettings) -> None:
    """Refuses an update of the model that this mode cannot carry out as the model means it.

    Raises:
      UserCodeError: the mode is async, and the model asks for sync; or the model does something after each update that
        the mode has no place for.
    """
    if own.is_sync and not settings.sync:
        raise UserCodeError("model_is_synchronous", "model_fn wraps its optimizer in SyncReplicasOptimizer, and this "
                            "training is asynchronous; give --sync_replicas, or leave the wrapper out")
    if own.does_more and settings.period.steps > 1:
        raise UserCodeError("train_op_unsupported", "--communication_period: the model's train_op does something after "
                            "each update, such as a moving average, which a worker's copy cannot do; leave the flag "
                            "out")
    if own.after_needs_batch and settings.sync:
        raise UserCodeError("train_op_unsupported", "--sync_replicas: the model's train_op does something with the "
                            "mini-batch after the update, and an update has the mini-batches of all workers; do it "
                            "before the update")


def _local_steps_update(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: UpdateSettings,
    source: StepSource, rows: RowParameters, names: Sequence[str],
) -> Update:
    """Returns the Update of a round; `names` are the row parameters that the model reads."""
    _create_slots(optimizer, gradients)
    built = build_round(
        loss, gradients, source, settings, ps_optimizer=optimizer, global_step=global_step,
        rows=rows.copies(names, source, sorts_ids=settings.sync is not None))
    if settings.sync:
        # The chief applies the mean for all workers, whose rounds had the same number of steps.
        optimizer = ChangeOptimizer(lambda: settings.period.sync_round_steps(global_step.read_value()))
        optimizer = rows.applied_by(optimizer, is_change=True)
        update = _sync_update(optimizer, built.change.pairs, built.loss, global_step, settings, rows.summed())
        failed_run_steps = tf.constant(0, tf.int64)
    else:
        train_op, cut_op = (
            _apply_on_ps(
                rows.applied_by(ChangeOptimizer(lambda change=change: change.num_taken), is_change=True),
                change.pairs, global_step)
            for change in (built.change, built.cut_change))
        with tf.device(global_step.device):
            update = _update_from_train_op(tf.group(train_op, built.begin_op), built.loss)
        with tf.control_dependencies([cut_op]):
            failed_run_steps = tf.identity(built.cut_change.num_taken)
    return update._replace(num_taken=built.change.num_taken, failed_run_steps=failed_run_steps, slots=built.slots)


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
        raise UserCodeError("optimizer_unsupported", "--communication_period: the model's optimizer keeps "
                            f"{others[0]}, which it has not created as a slot, so it cannot move to a worker; leave "
                            "the flag out")


def _apply_on_ps(optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable) -> tf.Operation:
    """Returns the operation that applies gradients which are on the ps."""
    # The operation that waits for all of them is on ps 0, too. If it were on the worker, the answers of the other ps
    # would reach ps 0 through the worker.
    with tf.device(global_step.device):
        return optimizer.apply_gradients(gradients, global_step)


def _update_from_train_op(train_op: tf.Operation, loss: tf.Tensor) -> Update:
    """Returns the Update of a train op that increments the global step by itself: asynchronous."""
    return Update(
        train_op=tf.group(train_op),
        loss=loss,
        num_taken=tf.constant(1, tf.int64),
        failed_run_steps=tf.constant(0, tf.int64),
        slots=no_slot_transfer(),
        init=InitOps(tf.no_op(), tf.no_op(), tf.no_op()),
        make_chief_service=ChiefService,
        release_op=tf.no_op(),
        gradients_per_step=1,
    )


def _sync_update(
    optimizer: tf.train.Optimizer, gradients: list, loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings,
    summed: Sequence[tf.Variable],
) -> Update:
    """Returns the Update that averages gradients, which are on the ps, before `optimizer` applies them.

    Args:
      summed: the variables whose gradients are summed, not averaged.
    """
    sync = settings.sync
    if sync.engine == "tensorflow":
        operations = tensorflow_engine.build_engine(optimizer, gradients, global_step, sync)

        def make_chief_service() -> ChiefService:
            return tensorflow_engine.QueueService(operations, sync)
    else:
        operations = SyncEngine(
            optimizer, gradients, global_step, sync, worker=settings.worker,
            is_in_rounds=settings.period.steps > 1, summed=summed).operations()
        tf.summary.scalar("dropped_gradients", operations.status.dropped)

        def make_chief_service() -> ChiefService:
            return UpdateRunner(operations, Quorum(sync))
    return _update_from_train_op(operations.train_op, loss)._replace(
        init=operations.init,
        make_chief_service=make_chief_service,
        release_op=operations.release_op,
        gradients_per_step=sync.replicas_to_aggregate,
        verdict=getattr(operations, "verdict", None),  # TensorFlow's own engine has none
    )
