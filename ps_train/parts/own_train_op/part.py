"""The part that separates the train_op of a model, which then trains in every update mode."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import tensorflow.compat.v1 as tf

from ps_train.graph import extensions
from ps_train.part import Part
from ps_train.parts.own_train_op import capture, update
from ps_train.parts.own_train_op.capture import Captured
from ps_train.parts.own_train_op.update import OwnUpdate


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
        self, train_op: tf.Operation | tf.Tensor, loss: tf.Tensor, captured: Sequence[Captured],
        created: Collection[tf.Operation],
    ) -> OwnUpdate | str:
        """Returns the update of a train_op, or why it cannot be separated."""
        return update.separate(train_op, loss, captured, tf.train.get_global_step(), created)

    def restore(self, train_op: tf.Operation | tf.Tensor, captured: Sequence[Captured]) -> tf.Operation | tf.Tensor:
        """Applies the captured gradients where the model did; returns the train_op, which counts its steps."""
        return update.restore(train_op, captured, tf.train.get_global_step())
