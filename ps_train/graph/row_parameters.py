"""Parameters that a step pulls and pushes by the row, and that are no variables of TensorFlow: a part may bring some.

    call of model_fn --> the part notes which rows the model asks for --> `connect`, when the model is complete
                         (the first call for rows may `set_for_graph` them)     `push` the gradients --> `applied_by`

A graph without them has a `RowParameters`, which does nothing. So nobody asks whether there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

_COLLECTION, _BUILD = "ps_train/row_parameters", "ps_train/build"


class Build(NamedTuple):
    """One call of model_fn; a graph may have several.

    Attributes:
      features, labels: what the model is built on.
      context: the control flow around the call.
    """

    features: Any = None
    labels: Any = None
    context: Any = None


class RowParameters:
    """The row parameters of one graph: none.

    Attributes:
      specs: name -> what the model says about it. Equal specs mean equal parameters; their text is in the fingerprint.
      delta_secs: time between deltas, 0 for none. A delta has what has changed since the last checkpoint.
    """

    specs: Mapping[str, Any] = {}
    delta_secs = 0.0

    def begin_build(self, build: Build) -> None:
        """Prepares for a call of model_fn."""

    def renew(self) -> None:
        """Gives the current graph, before its model is built, the same parameters: those of the same ps."""

    def connect(self, *, sorts_ids: bool = False) -> Any:
        """Connects the rows that the model has asked for since the last call; returns None if there are none.

        Args:
          sorts_ids: whether gradients are sent by ascending id, as TensorFlow's accumulators need them.

        Returns:
          With `pulled`, name -> float tensor [n, dim] for `tf.gradients`; `gradients_by_id(gradients)`, which
          returns these gradients as tensors; and `push(gradients)`, which returns (gradient on the ps, variable) pairs.
        """
        return None

    def applied_by(
        self, optimizer: tf.train.Optimizer, *, is_change: bool = False, factor: tf.Tensor | None = None
    ) -> tf.train.Optimizer:
        """Returns an optimizer that also applies the pairs of `push`, and all others by `optimizer`.

        Args:
          is_change: whether the pairs are the changes of local steps, and no gradients.
          factor: float32 scalar by which learning rates are multiplied, or None for 1.
        """
        return optimizer

    def summed(self) -> list[tf.Variable]:
        """Returns the variables of `push` whose gradients are summed over the workers in sync, not averaged."""
        return []

    def copies(self, names: Sequence[str], source: Any, *, sorts_ids: bool) -> Any:
        """Returns the copies of rows in a round of local steps (updates/local_steps.py), or None.

        Args:
          names: which parameters the model reads in training.
          source: the `StepSource` of the round.
          sorts_ids: see `connect`.
        """
        return None

    def add_saving(self) -> None:
        """Adds to the current graph, whose model is complete, what saves and restores the rows."""

    def check_fits(self, path: str) -> None:
        """Compares the parameters with those in a checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model.
        """

    def delta_path_of(self) -> Callable[[int], str] | None:
        """Returns what names a delta by its global step; None if there is no checkpoint that it could follow."""
        return None

    def remove_old_deltas(self) -> None:
        """Removes the deltas to the last checkpoint that no restore needs."""

    def newest(self, path: str) -> str:
        """Returns the newest sound delta to a checkpoint, which has all variables; `path` if there is none."""
        return path

    def restore(self, session: tf.Session, path: str, newest: str = "") -> None:
        """Restores all rows from a checkpoint, and from what `newest` has returned for it.

        Raises:
          CheckpointError: the checkpoint cannot be read.
        """

    def reset(self, session: tf.Session) -> None:
        """Makes all rows new."""

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        """Raises UserCodeError if it was a request for rows that has stopped a session run.

        Args:
          where: what was stopped, such as the name of a worker.
        """

    def fingerprint(self) -> Mapping[str, str]:
        """Returns what all workers must have in common."""
        return {}


_NONE = RowParameters()


def set_for_graph(parameters: RowParameters) -> None:
    """Gives the current graph row parameters, even in the midst of a call of model_fn."""
    graph = tf.get_default_graph()
    graph.clear_collection(_COLLECTION)
    graph.add_to_collection(_COLLECTION, parameters)
    for build in graph.get_collection(_BUILD):
        parameters.begin_build(build)


def of_graph() -> RowParameters:
    """Returns the row parameters of the current graph."""
    return next(iter(tf.get_default_graph().get_collection(_COLLECTION)), _NONE)


def begin_build(features: Any, labels: Any) -> None:
    """Notes that model_fn is called now, in the current graph."""
    graph = tf.get_default_graph()
    build = Build(features, labels, graph._get_control_flow_context())  # noqa: SLF001 (it has no public name)
    graph.clear_collection(_BUILD)
    graph.add_to_collection(_BUILD, build)
    of_graph().begin_build(build)
