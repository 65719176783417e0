"""--embedding_prefetch: the rows of the next mini-batch travel while the model computes on this one.

    session run n    stage   mini-batch n + 1, and the rows that the ps have for it now  --+
                     step    on mini-batch n, with the rows that run n - 1 has staged      | at the same time
                             its gradients --> the ps                                    --+

The rows are those before the updates of one run, so this worker's last update is not in them. Async only. The model is
built twice: once to see what it looks up in the next mini-batch, and once for the step.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops  # StagingArea has no public name

from ps_train.embeddings import connection, id_check, registry
from ps_train.embeddings.connection import RowExchange
from ps_train.errors import UserCodeError
from ps_train.graph.input.batches import Batches
from ps_train.updates.local_steps.variable_copies import build_collections

Build = Callable[[Any], Any]


class RowsAhead:
    """The lookups of a step, connected with rows that the run before has staged; as `connection.Connected`.

    Attributes:
      prime_op: stages the first mini-batch; to be run before the first step of a session.
      pulled: name of a table -> the values of its unique ids, float32 [n, dim].
    """

    def __init__(self, batches: Batches, build: Build) -> None:
        """Builds the model on the next mini-batch, for its lookups, and stages what it needs.

        Args:
          build: adds the model to the graph.
        """
        self._build = build
        self._found = registry.current_registry()
        self._spec = batches.element_spec
        batch = batches.next()
        kept = {name: tf.get_collection(name) for name in (tf.GraphKeys.GLOBAL_STEP, tf.GraphKeys.TRAINABLE_VARIABLES)}
        with tf.name_scope("ahead"), build_collections(kept):
            build(batch)
            created = tf.trainable_variables()[len(kept[tf.GraphKeys.TRAINABLE_VARIABLES]):]
            lookups = connection.by_table(self._found.take_pending())
            id_check.refuse_drawn(itertools.chain(*lookups.values()), batch, "--embedding_prefetch")
            exchange = RowExchange(self._found, {
                name: connection.flat_ids(own, self._found.specs[name]) for name, own in lookups.items()},
                sorts_ids=False)
            rows = exchange.pull()
        for variable in created:  # the second build finds them and registers none
            tf.add_to_collection(tf.GraphKeys.TRAINABLE_VARIABLES, variable)
        self._names = list(lookups)
        parts = [*tf.nest.flatten(batch, expand_composites=True), *(
            part for name in self._names for part in (rows[name], exchange.places[name], exchange.ids[name]))]
        with tf.device(batches.device):
            waiting = data_flow_ops.StagingArea([part.dtype for part in parts])
            self._put = waiting.put(parts)
            with tf.control_dependencies([waiting.clear()]):
                # What a lost session has staged is of no use. The rows are pulled meanwhile.
                self.prime_op = tf.group(waiting.put([tf.identity(part) for part in parts]))
            staged = waiting.get()
        for before, after in zip(parts, staged):
            after.set_shape(before.shape)
        count = len(parts) - 3 * len(self._names)
        self._batch = tf.nest.pack_sequence_as(self._spec, staged[:count], expand_composites=True)
        self._staged = {name: staged[count + 3 * number:][:3] for number, name in enumerate(self._names)}
        self.pulled = {name: values for name, (values, _, _) in self._staged.items()}

    def build_step(self) -> Any:
        """Builds the model on the mini-batch that is staged; returns what `build` does.

        Raises:
          UserCodeError: the model creates variables anew.
        """
        with (
            tf.variable_scope(
                tf.get_variable_scope(), custom_getter=_get_regularised, reuse=True, auxiliary_name_scope=False),
            tf.variable_creator_scope(_refuse_new),
            _unknown_to_layers(),
        ):
            return self._build(self._batch)

    def connect(self) -> RowsAhead:
        """Connects the lookups of the step."""
        for name, own in connection.by_table(self._found.take_pending()).items():
            values, places, _ = self._staged[name]
            connection.put_rows(own, tf.gather(values, places))
        return self

    def gradients_by_id(self, gradients: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the gradient of each table's `pulled` as a tensor."""
        return {name: connection.dense_gradient(gradients.get(name), values) for name, values in self.pulled.items()}

    def push(self, gradients: Mapping[str, tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Sends gradients of `pulled`; see `RowExchange.push`."""
        exchange = RowExchange(self._found, {name: ids for name, (_, _, ids) in self._staged.items()}, sorts_ids=False)
        return exchange.push(gradients)

    def after_staging(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss, which is there once the next mini-batch is staged."""
        # Not the train op, which ends on ps 0: a wait for the worker would cost a transfer.
        with tf.control_dependencies([self._put]):
            return tf.identity(loss)


def _get_regularised(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """Finds a variable, with its regularizer, which TensorFlow adds only when it makes the variable."""
    variable = getter(name, *args, **kwargs)
    if kwargs.get("regularizer") is not None:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, kwargs["regularizer"](variable))
    return variable


@contextlib.contextmanager
def _unknown_to_layers() -> Iterator[None]:
    """Hides the variables in its body: a layer adds its regularizers only for variables that it does not know."""
    known = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
    hidden, known[:] = list(known), []
    try:
        yield
    finally:
        known[:0] = hidden


def _refuse_new(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    if tf.GraphKeys.LOCAL_VARIABLES not in (kwargs.get("collections") or ()):
        raise UserCodeError(f"model_fn creates {kwargs.get('name') or 'a variable'} anew when it is called again; "
                            "--embedding_prefetch needs variables from tf.compat.v1.get_variable, with the same names "
                            "each time")
    return next_creator(**kwargs)
