"""Applies gradients of tables by their own rules, and all others with the optimizer of the model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rows.store import Store

Pair = tuple[Any, tf.Variable]


class TableOptimizer(tf.train.GradientDescentOptimizer):
    """An optimizer of dense variables and of tables: the pairs of a table are (gradient by id, rows of a store)."""

    def __init__(
        self, dense: tf.train.Optimizer, stores: Sequence[Store], apply: Callable[..., Any],
        factor: tf.Tensor | None = None,
    ) -> None:
        """Prepares it; nothing is added to the graph yet.

        Args:
          dense: updates everything that is not a table.
          apply: `Store.update`, or `Store.merge` for the changes of local steps.
          factor: float32 scalar by which `Store.update` multiplies the learning rates, or None for 1.
        """
        super().__init__(learning_rate=1.0)  # not used
        self._dense = dense
        self._stores = {store.rows.ref(): store for store in stores}
        self._apply = apply if factor is None else functools.partial(apply, factor=factor)

    def apply_gradients(
        self, grads_and_vars: Sequence[Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        pairs = list(grads_and_vars)
        tables = [self._apply(self._stores[variable.ref()], gradient.indices, gradient.values)
                  for gradient, variable in pairs if variable.ref() in self._stores]
        others = [pair for pair in pairs if pair[1].ref() not in self._stores]
        # The global step rises after both. The dense optimizer raises it, because it may do more after an update.
        with tf.control_dependencies(tables):
            if any(gradient is not None for gradient, _ in others):
                return self._dense.apply_gradients(others, global_step, name=name)
            return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns a slot of a dense variable."""
        return self._dense.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of dense variables."""
        return self._dense.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the dense optimizer."""
        return self._dense.variables()
