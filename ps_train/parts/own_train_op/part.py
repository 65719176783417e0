"""The part that takes a model's own train_op apart, so that it trains in every update mode."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import tensorflow.compat.v1 as tf

from ps_train.graph import train_ops
from ps_train.part import Part
from ps_train.parts.own_train_op import capture, update
from ps_train.parts.own_train_op.capture import Captured
from ps_train.parts.own_train_op.update import OwnUpdate


class OwnTrainOpPart(Part):
    """Own train_ops in the training graph of one worker."""

    def begin_graph(self) -> None:
        """Lets the graph take train_ops apart."""
        train_ops.set_train_ops(CapturedTrainOps())


class CapturedTrainOps(train_ops.TrainOps):
    """Takes train_ops apart by what the optimizers of a model are told to apply; see `TrainOps`."""

    def recording(self) -> contextlib.AbstractContextManager[list[Captured]]:
        """Returns a context around a call of model_fn, in which nothing is applied yet."""
        return capture.recording()

    def separate(
        self, train_op: tf.Operation | tf.Tensor, loss: tf.Tensor, captured: Sequence[Captured],
        created: Collection[tf.Operation],
    ) -> OwnUpdate | str:
        """Returns the update behind a train_op, or why it cannot be separated."""
        return update.carry(train_op, loss, captured, tf.train.get_global_step(), created)

    def restore(self, captured: Sequence[Captured]) -> None:
        """Applies what was captured where the model did."""
        update.restore(captured)
