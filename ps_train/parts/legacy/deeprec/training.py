"""Gradients of embedding variables, and how an optimizer of the script applies them.

    tf.gradients(loss, [variable])     IndexedSlices: ids, and the gradient of each row that was looked up
    optimizer.apply_gradients          the ps update the rows by the rule of the optimizer, one worker at a time;
                                       then the optimizer updates the other variables

Each function takes TensorFlow's own as its first argument; `installation.py` puts them in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.legacy.deeprec import optimizers, saving, variables
from ps_train.parts.legacy.deeprec.variables import EmbeddingVariable
from ps_train.parts.tables import connection


def gradients_with_rows(original: Callable, ys: Any, xs: Any, *args: Any, **kwargs: Any) -> list:
    """`tf.gradients`, also of embedding variables."""
    sources = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    if not any(isinstance(source, EmbeddingVariable) for source in sources):
        return original(ys, xs, *args, **kwargs)
    targets = [[lookup.stand_in for lookup in source.lookups] if isinstance(source, EmbeddingVariable) else [source]
               for source in sources]
    found = iter(original(ys, [target for of_source in targets for target in of_source], *args, **kwargs))
    by_source = [[next(found) for _ in of_source] for of_source in targets]
    return [_by_id(source, of_source) if isinstance(source, EmbeddingVariable) else of_source[0]
            for source, of_source in zip(sources, by_source)]


def _by_id(variable: EmbeddingVariable, of_lookups: Sequence[Any]) -> tf.IndexedSlices | None:
    """Returns the gradient of a variable from those of its lookups; None if the loss depends on none of them."""
    if all(gradient is None for gradient in of_lookups):
        return None
    values = [connection.dense_gradient(gradient, lookup.stand_in)
              for lookup, gradient in zip(variable.lookups, of_lookups)]
    return tf.IndexedSlices(
        tf.concat([tf.reshape(value, [-1, variable.spec.dim]) for value in values], 0),
        tf.concat([tf.reshape(lookup.ids, [-1]) for lookup in variable.lookups], 0))


class Processor:
    """What `compute_gradients` asks of a variable."""

    def __init__(self, variable: EmbeddingVariable) -> None:
        self._variable = variable

    def target(self) -> EmbeddingVariable:
        """Returns what `gradients` is asked for."""
        return self._variable


def row_processor(original: Callable, variable: Any) -> Any:
    """TensorFlow's processor of a variable, also of an embedding variable."""
    return Processor(variable) if isinstance(variable, EmbeddingVariable) else original(variable)


def apply_with_rows(
    original: Callable, optimizer: Any, grads_and_vars: Any, global_step: Any = None, name: str | None = None
) -> Any:
    """`tf.train.Optimizer.apply_gradients`, also to embedding variables."""
    pairs = list(grads_and_vars)
    rows = [(gradient, variable) for gradient, variable in pairs if isinstance(variable, EmbeddingVariable)]
    if not rows:
        return original(optimizer, pairs, global_step=global_step, name=name)
    others = [(gradient, variable) for gradient, variable in pairs if not isinstance(variable, EmbeddingVariable)]
    updates = update_rows(optimizer, [(gradient, variable) for gradient, variable in rows if gradient is not None])
    with tf.control_dependencies(updates):
        if any(gradient is not None for gradient, _ in others):
            return original(optimizer, others, global_step=global_step, name=name)
        return tf.no_op(name) if global_step is None else tf.assign_add(global_step, 1).op


def update_rows(
    optimizer: tf.train.Optimizer, pairs: Sequence[tuple[tf.IndexedSlices, EmbeddingVariable]]
) -> list[tf.Operation]:
    """Returns the operations that update rows of embedding variables by an optimizer's rule.

    Raises:
      UserCodeError: the optimizer has no such rule, or another one updates the variable, too.
    """
    if not pairs:
        return []
    row_rule = optimizers.row_rule(getattr(optimizer, "_opt", optimizer))  # that of a SyncReplicasOptimizer
    if new := [variable for _, variable in pairs if not variable.is_connected]:
        variables.connect_variables(new, row_rule.rule, row_rule.slots)
    for _, variable in pairs:
        if variable.rule != variables.variable_rule(variable, row_rule.rule):
            raise UserCodeError("embedding_has_optimizer", (
                f"embedding variable {variable.spec.name}: got {type(optimizer).__name__}, but another optimizer "
                "updates it, or its Saver or initializer was made before minimize; allowed: one optimizer for a "
                "variable, before its Saver"))
    by_exchange: dict[int, list[tuple[tf.IndexedSlices, EmbeddingVariable]]] = {}
    for gradient, variable in pairs:
        by_exchange.setdefault(id(variable.exchange), []).append((gradient, variable))
    return [update for group in by_exchange.values() for update in _push(group, row_rule.factor)]


def _push(
    pairs: Sequence[tuple[tf.IndexedSlices, EmbeddingVariable]], factor: tf.Tensor | None
) -> list[tf.Operation]:
    """Sends the gradients of variables that share an exchange, and returns their updates on the ps."""
    exchange, tables = pairs[0][1].exchange, variables.graph_registry()
    assert exchange is not None  # there is a gradient, so there was a lookup
    with tf.device(None), tf.device(saving.own_device()):
        rows = {name: tf.zeros(tf.stack([tf.size(exchange.ids[name]), tables.specs[name].dim]))
                for name in exchange.names}
        for gradient, variable in pairs:
            name = variable.spec.name
            # Lookups behind those of the gradient are newer than it.
            places = exchange.places[name][:tf.shape(gradient.values)[0]]
            rows[name] = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(exchange.ids[name]))
        pushed = exchange.push(rows)
    stores = {store.rows.ref(): store for _, variable in pairs for store in tables.stores(variable.spec.name)}
    return [stores[rows.ref()].update(gradient.indices, gradient.values, factor)
            for gradient, rows in pushed if rows.ref() in stores]
