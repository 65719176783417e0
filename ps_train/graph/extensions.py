"""What a part may add to a graph: objects whose methods the spine calls while it builds and runs the graph.

    begin_graph of a part    set_row_parameters, set_train_ops, set_lookups, set_packing, add_watcher
    the spine                row_parameters(), train_ops(), graph_lookups(), packing(): the graph's, or one that does
                             nothing

So the spine need not know whether a part is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Callable, NamedTuple, Protocol

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer

_ROWS, _TRAIN_OPS, _LOOKUPS = "ps_train/row_parameters", "ps_train/train_ops", "ps_train/lookups"
_PACKING, _BUILD, _WATCHERS = "ps_train/packing", "ps_train/build", "ps_train/watchers"


class Watcher:
    """Explains errors of session runs, and reports at their end; this one does nothing."""

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        """Raises a PsTrainError with the cause, if the part knows it; `where` names the worker or work that stopped."""

    def report(self, session: tf.Session, where: str) -> None:
        """Logs what the part has counted in the runs of a session."""


def add_watcher(watcher: Watcher) -> None:
    """Adds a watcher to the current graph, or to that of the session if the current one is of a function."""
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    graph.add_to_collection(_WATCHERS, watcher)


def explain_error(graph: tf.Graph, error: tf.errors.InvalidArgumentError, where: str) -> None:
    """Calls `explain` of all watchers of a graph."""
    for watcher in graph.get_collection(_WATCHERS):
        watcher.explain(error, where)


def report_counts(session: tf.Session, where: str) -> None:
    """Calls `report` of all watchers of the session's graph."""
    for watcher in session.graph.get_collection(_WATCHERS):
        watcher.report(session, where)


class Build(NamedTuple):
    """One call of model_fn; a graph may have several.

    Attributes:
      features, labels: what the model is built on.
      context: the control flow around the call.
    """

    features: Any = None
    labels: Any = None
    context: Any = None


class RowParameters(Watcher):
    """Parameters that a step pulls and pushes by row, and that are no TensorFlow variables; this one has none.

        call of model_fn --> notes which rows the model looks up --> `connect`, when the model is complete
                             (the first lookup may set them)         `push` the gradients --> `applied_by`

    Attributes:
      specs: name -> how the model defines it. Equal specs mean equal parameters; their text is in the fingerprint.
      delta_secs: time between deltas, 0 for none. A delta has the changes since the last checkpoint.
    """

    specs: Mapping[str, Any] = {}
    delta_secs = 0.0

    def begin_build(self, build: Build) -> None:
        """Prepares for a call of model_fn."""

    def renew(self) -> None:
        """Adds the same parameters, on the same ps, to the current graph before its model is built."""

    def connect(self, *, sorts_ids: bool = False) -> Any:
        """Connects the rows that the model has looked up since the last call; returns None without any.

        Args:
          sorts_ids: whether gradients are sent by ascending id, as TensorFlow's accumulators need them.

        Returns:
          An object with `pulled`, name -> float tensor [n, dim] for `tf.gradients`; `gradients_by_id(gradients)`, these
          gradients as tensors; and `push(gradients)`, (gradient on the ps, variable) pairs.
        """
        return None

    def applied_by(
        self, optimizer: tf.train.Optimizer, *, is_change: bool = False, factor: tf.Tensor | None = None
    ) -> tf.train.Optimizer:
        """Returns an optimizer that also applies the pairs of `push`, and all others by `optimizer`.

        Args:
          is_change: whether the pairs are changes of local steps instead of gradients.
          factor: float32 scalar by which learning rates are multiplied, or None for 1.
        """
        return optimizer

    def summed(self) -> list[tf.Variable]:
        """Returns the variables of `push` whose gradients are summed over the workers in sync, not averaged."""
        return []

    def updates_in_step(self) -> list[tf.Operation]:
        """Returns the updates that `push` itself has added: in sync, those of rows that are not aggregated."""
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
        """Adds operations that save and restore the rows to the current graph, whose model is complete."""

    def check_fits(self, path: str) -> None:
        """Raises CheckpointError if a checkpoint is of another model, with other parameters."""

    def delta_path_of(self) -> Callable[[int], str] | None:
        """Returns a function from global step to the path of a delta; None without a checkpoint to follow."""
        return None

    def remove_old_deltas(self, newest: str) -> None:
        """Removes the deltas to the same checkpoint that no restore needs, now that there is this one."""

    def newest(self, path: str) -> str:
        """Returns the newest sound delta to a checkpoint, which has all variables; `path` without any."""
        return path

    def restore(self, session: tf.Session, path: str, newest: str = "") -> None:
        """Restores all rows from a checkpoint, and from the result of `newest` for it.

        Raises:
          CheckpointError: the checkpoint cannot be read.
        """

    def reset(self, session: tf.Session) -> None:
        """Resets all rows to their initial values."""

    def fingerprint(self) -> Mapping[str, str]:
        """Returns the entries of the fingerprint, which all workers must share."""
        return {}


class ModelUpdate(Protocol):
    """The update of a model that brings its own optimizer.

    Attributes:
      pairs: (gradient or None, variable) of all variables.
      waits_for: operations to run in each step before its gradients are applied.
      names: the classes of the optimizers.
      is_sync: whether the model asks for synchronous updates.
      does_more: whether the model does something after each update.
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

    def gradients_of_rows(self, loss: tf.Tensor, values: Sequence[tf.Tensor]) -> list[Any]:
        """Returns the gradient, or None, of each of these rows, of what the optimizer minimises instead of the loss."""

    def gradients_of(self, variables: Sequence[int]) -> list[Any]:
        """Returns the gradient, or None, of each of these variables, given by `id`; refuses gradients of others."""

    def on_copies(self, copies: Mapping[int, tf.Variable]) -> tf.train.Optimizer:
        """Returns what applies the gradients to copies of the variables; `copies` has them by `id` of the original."""


class TrainOps:
    """Separates the gradients of a model's train_op, which every update mode can apply; this one separates none.

        model_fn within `recording` --> train_op --separate--> ModelUpdate: the gradients, and what applies them
                                                           --> or why not: then it runs as the model wrote it, async
    """

    def recording(self) -> contextlib.AbstractContextManager[Sequence[Any]]:
        """Returns a context around a call of model_fn; it yields a list of the calls of the model's optimizers."""
        return contextlib.nullcontext(())

    def separate(self, spec: Any, captured: Sequence[Any], created: Collection[tf.Operation]) -> ModelUpdate | str:
        """Returns the update of the train_op, or why it cannot be separated, such as "applies gradients in a loop".

        Args:
          spec: what model_fn returned; "" is the answer if it has no train_op.
          captured: the list of `recording`.
          created: the operations that model_fn has created.
        """
        return "" if spec.train_op is None else "applies its update by itself"

    def restore(self, train_op: tf.Operation | tf.Tensor, captured: Sequence[Any]) -> tf.Operation | tf.Tensor:
        """Applies the captured gradients where the model did; returns the train_op, which counts its steps."""
        return train_op


class Lookups:
    """Joins lookups in variables, and sparse gradients; this one leaves each its transfers."""

    def join_lookups(self, step: Sequence[tf.Tensor | tf.Operation], variables: Iterable[tf.Variable]) -> None:
        """Gives the readers of the looked-up rows of a step slices of one message per ps.

        Args:
          step: what a step computes: its loss, its gradients, and other operations.
          variables: the variables that may be looked up.
        """

    def join_gradients(self, pairs: Sequence[transfer.Pair], *, sorts_ids: bool) -> list[transfer.Pair]:
        """Returns (gradient or None, variable); sparse gradients of one ps may be there already, after one transfer.

        Args:
          pairs: the same, on the worker.
          sorts_ids: whether each row occurs once, in ascending order, as TensorFlow's accumulators need them.
        """
        return [(transfer.summed_by_row(gradient, sorts_ids=True)
                 if sorts_ids and isinstance(gradient, tf.IndexedSlices) else gradient, variable)
                for gradient, variable in pairs]


class Packed:
    """The variables that a step updates: those of the model, unless a part packs small ones into one.

    Attributes:
      pairs: (gradient or None, variable) for `optimizer`.
      optimizer: updates these variables.
      fill_ops: give the packed variables their values; to be run before training begins.
      contents: `ref()` of a packed variable -> the variables in it, in the order of their elements.
    """

    def __init__(
        self, pairs: list[transfer.Pair], optimizer: Any, fill_ops: Sequence[tf.Operation] = (),
        contents: Mapping[Any, Sequence[tf.Variable]] = MappingProxyType({}),
    ) -> None:
        self.pairs, self.optimizer, self.fill_ops, self.contents = pairs, optimizer, fill_ops, contents

    def places(self) -> Mapping[str, str]:
        """Returns variable of the model -> its place in a packed one, as `ps_train/packed_0[64:]`, both by name."""
        return {}

    def save_from(self, saver: tf.train.Saver) -> None:
        """Makes a Saver write the values in packed variables; it still restores into those of the model."""


class Packing:
    """Packs small variables of a ps into one while training runs; this one packs none."""

    def pack(
        self, loss: tf.Tensor, gradients: Sequence[transfer.Pair], optimizer: tf.train.Optimizer,
        wire: transfer.Wire, others: Sequence[tf.Operation] = (),
    ) -> Packed:
        """Makes the operations of a step read packed variables, if a ps has enough small ones.

        Args:
          gradients: (gradient or None, variable); a gradient is a tensor or IndexedSlices.
          optimizer: the optimizer whose slots are in checkpoints; a copy of it, with slots of its own, updates packs.
          wire: how variables travel; if they do not travel together, none is packed.
          others: further operations that a step runs.
        """
        return Packed(list(gradients), optimizer)


def set_row_parameters(parameters: RowParameters) -> None:
    """Sets the row parameters of the current graph, even within a call of model_fn."""
    _set(_ROWS, parameters)
    add_watcher(parameters)
    for build in tf.get_collection(_BUILD):
        parameters.begin_build(build)


def set_train_ops(train_ops: TrainOps) -> None:
    """Sets what separates the train_op of the current graph's model."""
    _set(_TRAIN_OPS, train_ops)


def set_lookups(lookups: Lookups) -> None:
    """Sets what joins the lookups of the current graph."""
    _set(_LOOKUPS, lookups)


def set_packing(packing: Packing) -> None:
    """Sets what packs the variables of the current graph."""
    _set(_PACKING, packing)


def row_parameters() -> RowParameters:
    """Returns the row parameters of the current graph."""
    return _get(_ROWS, RowParameters)


def train_ops() -> TrainOps:
    """Returns what separates the train_op of the current graph's model."""
    return _get(_TRAIN_OPS, TrainOps)


def graph_lookups() -> Lookups:
    """Returns what joins the lookups of the current graph."""
    return _get(_LOOKUPS, Lookups)


def packing() -> Packing:
    """Returns what packs the variables of the current graph."""
    return _get(_PACKING, Packing)


def begin_build(features: Any, labels: Any) -> None:
    """Notes a call of model_fn in the current graph, just before it."""
    build = Build(features, labels, tf.get_default_graph()._get_control_flow_context())  # noqa: SLF001 (no public name)
    _set(_BUILD, build)
    row_parameters().begin_build(build)


def _set(collection: str, value: Any) -> None:
    graph = tf.get_default_graph()
    graph.clear_collection(collection)
    graph.add_to_collection(collection, value)


def _get(collection: str, default: Callable[[], Any]) -> Any:
    return next(iter(tf.get_collection(collection)), None) or default()
