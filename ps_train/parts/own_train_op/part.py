"""The part that separates the train_op of a model, which then trains in every update mode."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import tensorflow.compat.v1 as tf

from ps_train.graph import extensions
from ps_train.part import Part
from ps_train.parts.own_train_op import beside, capture, update
from ps_train.parts.own_train_op.capture import Captured
from ps_train.parts.own_train_op.update import OwnUpdate
from ps_train.plugins.contracts import ModelSpec


class OwnTrainOpPart(Part):
    """The model's own train_op, in the training graph of one worker."""

    def begin_graph(self) -> None:
        """Makes the graph separate train_ops."""
        extensions.set_train_ops(CapturedTrainOps())


class CapturedTrainOps(extensions.TrainOps):
    """Separates train_ops by the recorded calls of the model's optimizers; see `TrainOps`."""

    def recording(self) -> contextlib.AbstractContextManager[list[Captured]]:
        """Returns a context around a call of model_fn, in which nothing is applied yet."""
        return capture.recording()

    def separate(
        self, spec: ModelSpec, captured: Sequence[Captured], created: Collection[tf.Operation]
    ) -> OwnUpdate | str:
        """Returns the update of the train_op, or why it cannot be separated; lets hooks run the other optimizers."""
        step = tf.train.get_global_step()
        made = "" if spec.train_op is None else update.separate(spec.train_op, spec.loss, captured, step, created)
        if isinstance(made, OwnUpdate):
            beside.warn_of_whole_updates(spec, made.captured)
        if not (isinstance(made, str) and made):  # else `restore` applies all
            beside.apply_others(spec, captured, made.captured if made else ())
        return made

    def restore(self, train_op: tf.Operation | tf.Tensor, captured: Sequence[Captured]) -> tf.Operation | tf.Tensor:
        """Applies the captured gradients where the model did; returns the train_op, which counts its steps."""
        return update.restore(train_op, captured, tf.train.get_global_step())
