"""Builds the update of a model: by the optimizer of the flags, by the model's own, or by its train_op as it is.

    no train_op                          --optimizer, in every mode
    train_op made by an optimizer        that optimizer with the model's gradients, in every mode (graph/own_train_op)
    any other train_op                   as the model wrote it, asynchronously
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.embeddings import registry
from ps_train.errors import UserCodeError, refuse
from ps_train.graph.input.batches import Batches
from ps_train.graph.own_train_op.update import StepModel, restore
from ps_train.graph.plugin_calls import TrainModel
from ps_train.updates import build
from ps_train.updates.applied import update_from_train_op
from ps_train.updates.local_steps.source import StepSource
from ps_train.updates.prefetch import RowsAhead
from ps_train.updates.update import Update, UpdateSettings

_log = logging.getLogger(__name__)


def build_model_update(
    trained: TrainModel, global_step: tf.Variable, settings: UpdateSettings, batches: Batches,
    compute: Callable[[Any], TrainModel], steps_per_execution: int, ahead: RowsAhead | None = None,
) -> Update:
    """Adds what updates the parameters to the current graph.

    Args:
      trained: the model on a mini-batch.
      batches: the mini-batches.
      compute: builds the model once more, on another mini-batch.
      steps_per_execution: single steps in one session run.
      ahead: the rows that were staged for `trained`, or None.

    Raises:
      UserCodeError: the mode cannot use the model's train_op, or the loss depends on no trainable variable.
      ConfigError: the model cannot be trained with local steps.
    """
    def compute_again(batch: Any) -> StepModel:
        again = compute(batch)
        if again.problem:
            raise UserCodeError(f"--communication_period: when model_fn is called again, its train_op {again.problem}")
        return StepModel(again.spec.loss, again.own)

    loss = trained.spec.loss
    _refuse_two_rules(trained, settings)
    if not trained.problem:
        return build.build_update(
            loss, global_step, settings, StepSource(batches, compute_again, ahead), trained.own)
    refusing = ("--sync_replicas cannot aggregate" if settings.replicas_to_aggregate is not None else
                "--communication_period cannot run on a worker's copy" if settings.period.steps > 1 else
                "--steps_per_execution cannot repeat in order" if steps_per_execution > 1 else None)
    if refusing:
        raise UserCodeError(f"model_fn returned a train_op of its own, which {refusing}, because it {trained.problem}; "
                            "return the loss only and choose the rule with --optimizer")
    if registry.current_registry().specs:
        raise UserCodeError("model_fn returned a train_op of its own, which cannot update the embedding tables, "
                            f"because it {trained.problem}; return the loss only")
    restore(trained.captured)
    return update_from_train_op(trained.spec.train_op, loss)


def _refuse_two_rules(trained: TrainModel, settings: UpdateSettings) -> None:
    """Refuses what would change the update of a model that has returned a train_op.

    Raises:
      UserCodeError: the module has a make_optimizer, too.
      ConfigError: flags choose how the optimizer works.
    """
    if trained.spec.train_op is None:
        return
    if settings.make_own:
        raise UserCodeError("model_fn returned a train_op, and its module has a make_optimizer; leave one of them out")
    refuse([f"--{name}: model_fn returned a train_op, which clips and decays by itself; leave the flag out, or return "
            "the loss only" for name in settings.knobs.given])
    if trained.own:
        _log.info("the model brings its own optimizer, %s; --optimizer is not used", trained.own.names)


def describe_adam(settings: UpdateSettings, sparse: Sequence[str], own_optimizer: str = "") -> str | None:
    """Returns a line about the tables that Adam updates row by row, or None if there are none.

    Args:
      sparse: the names of the variables with sparse gradients.
      own_optimizer: the classes of the model's own optimizers, "" where it has none.
    """
    is_adam = "AdamOptimizer" in own_optimizer if own_optimizer else settings.optimizer == "adam"
    if not sparse or not is_adam or settings.decays_all_rows:
        return None
    advice = "; --adam_decays_all_rows decays all of them" if settings.replicas_to_aggregate is not None else ""
    return f"Adam updates only the rows of {', '.join(sparse)} that have a gradient (lazy Adam){advice}"
