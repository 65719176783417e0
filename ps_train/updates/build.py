"""Builds the update of a model: by which rule, and in which mode. No other module asks for the mode.

    no train_op                          --optimizer, in every mode
    train_op made by an optimizer        that optimizer with the model's gradients, in every mode (graph/extensions.py)
    any other train_op                   as the model wrote it, asynchronously

    async        pull, compute, push; no worker waits
    sync         the mean of R gradients is one update (sync/aggregation.py, or the engine of a part)
    local steps  in either of the two; a worker pushes the change by several steps (local_steps.py)

Every mode provides an `Update`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import Problem, UserCodeError, refuse
from ps_train.graph import extensions, nan_guard, optimizers, transfer
from ps_train.graph.batches import Batches
from ps_train.graph.extensions import ModelUpdate
from ps_train.graph.plugin_calls import TrainModel
from ps_train.updates.local_steps import Change, ChangeOptimizer, Gradients, build_round
from ps_train.updates.sync.aggregation import SyncEngine
from ps_train.updates.sync.runner import Quorum, UpdateRunner
from ps_train.updates.update import ChiefService, DenseVariables, InitOps, Update, UpdateSettings
from ps_train.updates.variable_copies import SlotTransfer, StepModel, StepSource

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
    return async_update(extensions.train_ops().restore(trained.spec.train_op, trained.captured), loss)


def _refuse_two_rules(trained: TrainModel, settings: UpdateSettings) -> None:
    """Refuses a make_optimizer, or flags of the optimizer, beside a train_op that the model has returned."""
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
    model_update: ModelUpdate | None = None,
) -> Update:
    """Adds the gradients of the scalar `loss`, and what applies them to the parameters, to the current graph.

    Args:
      source: builds the model once more, on further mini-batches.
      model_update: the update that the model itself has defined; None for the optimizer of the settings.
    """
    if model_update:
        _refuse_unsupported(model_update, settings)
        if not settings.plan.decays_all_rows:
            model_update.make_row_sparse()
    builder = _UpdateBuilder(loss, global_step, settings, model_update)
    return builder.local_steps(source) if settings.period.steps > 1 else builder.single_step()


def _refuse_unsupported(model_update: ModelUpdate, settings: UpdateSettings) -> None:
    """Raises UserCodeError for an update of the model that this mode cannot carry out as the model means it."""
    if model_update.is_sync and not settings.sync:
        raise UserCodeError("model_is_synchronous", "model_fn wraps its optimizer in SyncReplicasOptimizer, and this "
                            "training is asynchronous; give --sync_replicas, or leave the wrapper out")
    if model_update.does_more and settings.period.steps > 1:
        raise UserCodeError("train_op_unsupported", "--communication_period: the model's train_op does something after "
                            "each update, such as a moving average, which a worker's copy cannot do; leave the flag "
                            "out")
    if model_update.after_needs_batch and settings.sync:
        raise UserCodeError("train_op_unsupported", "--sync_replicas: the model's train_op does something with the "
                            "mini-batch after the update, and an update has the mini-batches of all workers; do it "
                            "before the update")


class _UpdateBuilder:
    """Adds the gradients of a loss, and what applies them, to the current graph.

    Its gradients are pairs (gradient or None, variable), and those of rows, by the name of the table.
    """

    def __init__(
        self, loss: tf.Tensor, global_step: tf.Variable, settings: UpdateSettings, model_update: ModelUpdate | None
    ) -> None:
        self._loss, self._global_step = loss, global_step
        self._settings, self._model_update = settings, model_update
        self._rows = extensions.row_parameters()
        self._pulled_rows = self._rows.connect(sorts_ids=settings.sync is not None)
        self._optimizer = model_update.make_optimizer() if model_update else settings.plan.make(global_step)
        self._gradients, self._row_gradients = self._compute_gradients()
        if not self._row_gradients and not any(gradient is not None for gradient, _ in self._gradients):
            raise UserCodeError("loss_without_variables", "model_fn: the loss depends on no trainable variable; return "
                                "the loss of a model with variables made by tf.compat.v1.get_variable")

    def _compute_gradients(self) -> tuple[list, dict[str, tf.Tensor]]:
        pulled = self._pulled_rows.pulled if self._pulled_rows else {}
        values = list(pulled.values())
        if self._model_update:
            pairs = self._model_update.pairs
            row_gradients = self._model_update.gradients_of_rows(self._loss, values)
        else:
            # All at once: a second call would build the model's gradients a second time.
            trained = [*tf.trainable_variables(), *values]
            pairs = self._optimizer.compute_gradients(self._loss, trained) if trained else []
            count = len(pairs) - len(values)
            pairs, row_gradients = pairs[:count], [gradient for gradient, _ in pairs[count:]]
        return pairs, self._pulled_rows.gradients_by_id(dict(zip(pulled, row_gradients))) if self._pulled_rows else {}

    def single_step(self) -> Update:
        """Returns the Update of one mini-batch: pull, compute, push."""
        settings, plan = self._settings, self._settings.plan
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        waits_for = self._model_update.waits_for if self._model_update else update_ops
        lookups = extensions.graph_lookups() if settings.wire.is_fused else extensions.Lookups()
        gradients = [part for gradient, _ in self._gradients for part in transfer.tensors_of(gradient)]
        lookups.join_lookups([self._loss, *gradients, *self._row_gradients.values(), *waits_for], tf.global_variables())
        packed = self._pack(waits_for)
        pairs, row_gradients = nan_guard.guard(
            self._loss, packed.pairs, packed.contents, self._row_gradients, waits_for=waits_for,
            is_judged=optimizers.judges_gradients(self._optimizer),
            written={variable.op: variable.op.name for variable in tf.global_variables()})
        pairs = lookups.join_gradients(pairs, sorts_ids=settings.sync is not None)
        pairs, pulled = transfer.fuse(self._loss, pairs, settings.wire)
        optimizer = packed.optimizer
        if self._pulled_rows:
            optimizer = self._rows.applied_by(
                optimizer, factor=None if self._model_update else plan.factor(self._global_step))
            pairs = [*pairs, *self._pulled_rows.push(row_gradients)]
        if not self._model_update:
            optimizer = plan.wrap(optimizer, self._global_step)  # last: the norm covers rows and variables
        if settings.sync:
            update = sync_update(optimizer, pairs, self._loss, self._global_step, settings, self._rows)
        else:
            update = async_update(apply_on_ps(optimizer, pairs, self._global_step), self._loss)
        return update._replace(
            init=update.init._replace(new_run=tf.group(update.init.new_run, *packed.fill_ops)),
            dense=DenseVariables(packed, pulled), notes=self._notes())

    def _pack(self, waits_for: Sequence[Any]) -> extensions.Packed:
        """Packs the small variables, unless the model's optimizer may treat the elements of a variable as a whole."""
        model_update, settings = self._model_update, self._settings
        if not (model_update.is_elementwise if model_update else settings.plan.is_elementwise(self._optimizer)):
            return extensions.Packed(self._gradients, self._optimizer)
        return extensions.packing().pack(self._loss, self._gradients, self._optimizer, settings.wire, others=waits_for)

    def _notes(self) -> list[str]:
        if self._model_update:
            own_optimizer = self._model_update.names
        else:
            own_optimizer = type(self._optimizer).__name__ if self._settings.plan.make_model_optimizer else ""
        sparse = [variable.op.name for gradient, variable in self._gradients if isinstance(gradient, tf.IndexedSlices)]
        return describe_adam(self._settings, sparse, own_optimizer)

    def local_steps(self, source: StepSource) -> Update:
        """Returns the Update of a round."""
        self._create_slots()
        settings, rows = self._settings, self._rows
        built = build_round(
            self._loss, self._gradients, source, settings, ps_optimizer=self._optimizer, global_step=self._global_step,
            rows=rows.copies(list(self._row_gradients), source, sorts_ids=settings.sync is not None))
        if settings.sync:
            # The chief applies the mean for all workers, whose rounds had the same number of steps.
            optimizer = ChangeOptimizer(lambda: settings.period.sync_round_steps(self._global_step.read_value()))
            update = sync_update(rows.applied_by(optimizer, is_change=True), built.change.pairs, built.loss,
                                 self._global_step, settings, rows)
            failed_run_steps = tf.constant(0, tf.int64)
        else:
            train_op, cut_op = (self._apply_change(change) for change in (built.change, built.cut_change))
            with tf.device(self._global_step.device):
                update = async_update(tf.group(train_op, built.begin_op), built.loss)
            with tf.control_dependencies([cut_op]):
                failed_run_steps = tf.identity(built.cut_change.num_taken)
        return update._replace(num_taken=built.change.num_taken, failed_run_steps=failed_run_steps, slots=built.slots)

    def _create_slots(self) -> None:
        """Creates the slots that a checkpoint has; refuses other variables of the optimizer, which cannot move."""
        known = {variable.ref() for variable in tf.global_variables()}
        if any(gradient is not None for gradient, _ in self._gradients):  # a model may have tables only
            self._optimizer.apply_gradients(self._gradients)  # never run
        known |= {variable.ref() for variable in self._optimizer.variables()}
        others = [variable.op.name for variable in tf.global_variables() if variable.ref() not in known]
        if others:
            raise UserCodeError("optimizer_unsupported", "--communication_period: the model's optimizer keeps "
                                f"{others[0]}, which it has not created as a slot, so it cannot move to a worker; "
                                "leave the flag out")

    def _apply_change(self, change: Change) -> tf.Operation:
        optimizer = self._rows.applied_by(ChangeOptimizer(lambda: change.num_taken), is_change=True)
        return apply_on_ps(optimizer, change.pairs, self._global_step)


def apply_on_ps(optimizer: tf.train.Optimizer, pairs: Gradients, global_step: tf.Variable) -> tf.Operation:
    """Returns the operation that applies gradients which are on the ps."""
    # The operation that waits for all of them is on ps 0, too. If it were on the worker, the answers of the other ps
    # would reach ps 0 through the worker.
    with tf.device(global_step.device):
        return optimizer.apply_gradients(pairs, global_step)


def sync_update(
    optimizer: tf.train.Optimizer, pairs: Gradients, loss: tf.Tensor, global_step: tf.Variable,
    settings: UpdateSettings, rows: extensions.RowParameters,
) -> Update:
    """Returns the Update that averages gradients, which are on the ps, before `optimizer` applies them.

    Args:
      rows: says which gradients are summed, not averaged, and what else a worker's step updates.
    """
    sync = settings.sync
    if sync.engine:
        operations, make_chief_service = sync.engine(optimizer, pairs, global_step, sync)
    else:
        operations = SyncEngine(
            optimizer, pairs, global_step, sync, worker=settings.worker, is_in_rounds=settings.period.steps > 1,
            summed=rows.summed(), also_in_step=rows.updates_in_step()).operations()
        refuse_feeds(operations.update_op)
        tf.summary.scalar("dropped_gradients", operations.status.dropped)

        def make_chief_service() -> ChiefService:
            return UpdateRunner(operations, Quorum(sync))
    return async_update(operations.train_op, loss)._replace(
        init=operations.init,
        make_chief_service=make_chief_service,
        release_op=operations.release_op,
        gradients_per_step=sync.replicas_to_aggregate,
        verdict=operations.verdict,
    )


def refuse_feeds(update_op: tf.Operation) -> None:
    """Makes it an error if a hook feeds what an update of all workers needs; refuses a placeholder there at once."""
    needed = transfer.upstream([update_op])
    reason = "which --sync_replicas uses for all workers, where no hook feeds; compute it, or leave the flag out"
    transfer.note_unfed(needed, reason)
    for name in [op.name for op in needed if op.type == "Placeholder"]:
        raise UserCodeError("feed_not_used", f"the model's optimizer needs {name}, {reason}")


def async_update(train_op: tf.Operation, loss: tf.Tensor) -> Update:
    """Returns the Update of a train op that increments the global step by itself."""
    return Update(
        train_op=tf.group(train_op),
        loss=loss,
        num_taken=tf.constant(1, tf.int64),
        failed_run_steps=tf.constant(0, tf.int64),
        slots=SlotTransfer(tf.no_op(), tf.no_op(), tf.no_op()),
        init=InitOps(tf.no_op(), tf.no_op(), tf.no_op()),
        make_chief_service=ChiefService,
        release_op=tf.no_op(),
        gradients_per_step=1,
    )
