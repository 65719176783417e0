"""What the train_op of a model applies: a part may take it apart, so that every update mode can apply it.

    model_fn within `recording` --> train_op --separate--> ModelUpdate: the gradients, and what applies them
                                                       --> why not: then it runs as the model wrote it, asynchronously

A graph without such a part has a `TrainOps`, which takes nothing apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer

_COLLECTION = "ps_train/train_ops"


class ModelUpdate(Protocol):
    """The update of a model that brings its own optimizer.

    Attributes:
      pairs: (gradient or None, variable) of all variables.
      waits_for: operations to run in each step before its gradients are applied.
      names: the classes of the optimizers.
      is_sync: whether the model asks for synchronous updates.
      does_more: whether something comes after each update.
      after_needs_batch: whether that needs the mini-batch.
      is_elementwise: whether its variables may be packed.
    """

    pairs: list[transfer.Pair]
    waits_for: list[tf.Operation]
    names: str
    is_sync: bool
    does_more: bool
    after_needs_batch: bool
    is_elementwise: bool

    def make_row_sparse(self) -> None:
        """Makes TensorFlow's AdamOptimizer update only the rows of a variable that have a gradient."""

    def make_optimizer(self) -> tf.train.Optimizer:
        """Returns what applies the gradients."""

    def make_another(self) -> tf.train.Optimizer:
        """Returns another optimizer of the same kind, without slots; only if `is_elementwise`."""

    def gradients_of(self, variables: Sequence[int]) -> list[Any]:
        """Returns the gradient, or None, of each of these variables of a model, given by their `id`.

        Raises:
          UserCodeError: the model has a gradient of another variable.
        """

    def on_copies(self, copies: Mapping[int, tf.Variable]) -> tf.train.Optimizer:
        """Returns what applies the gradients to copies of the variables, given copies by the `id` of the original."""


class TrainOps:
    """Takes nothing apart."""

    def recording(self) -> contextlib.AbstractContextManager[Sequence[Any]]:
        """Returns a context around a call of model_fn; it yields what optimizers of the model are told to apply."""
        return contextlib.nullcontext(())

    def separate(
        self, train_op: tf.Operation | tf.Tensor, loss: tf.Tensor, captured: Sequence[Any],
        created: Collection[tf.Operation],
    ) -> ModelUpdate | str:
        """Returns the update behind a train_op, or why it cannot be separated, such as "applies gradients in a loop".

        Args:
          captured: what `recording` has yielded.
          created: the operations that model_fn has created.
        """
        return "applies its update by itself"

    def restore(self, captured: Sequence[Any]) -> None:
        """Applies what was captured where the model did, so that its train_op does what the model wrote."""


_NONE = TrainOps()


def set_train_ops(train_ops: TrainOps) -> None:
    """Makes these take apart what the model of the current graph applies."""
    tf.get_default_graph().add_to_collection(_COLLECTION, train_ops)


def train_ops_of_graph() -> TrainOps:
    """Returns what takes apart the train_op of the current graph's model."""
    return next(iter(tf.get_default_graph().get_collection(_COLLECTION)), _NONE)
