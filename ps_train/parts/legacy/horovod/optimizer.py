"""`hvd.DistributedOptimizer`: the mean of all workers' gradients is applied once a step, by ps_train's updates.

    minimize --> this worker's gradients --> SyncReplicasOptimizer --> the wrapped optimizer applies their mean

A row of a sparse gradient counts as zero on a worker that does not have it, as in Horovod: the rows are summed and
divided by the number of gradients in the update.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.parts.legacy.classic.sync_replicas import SyncReplicasOptimizer
from ps_train.parts.legacy.classic.updates import StandaloneEngine
from ps_train.parts.legacy.horovod import graphs
from ps_train.parts.legacy.horovod.second_step import Collectives, exchanged_step

AVERAGE, SUM, ADASUM = "Average", "Sum", "Adasum"
_log = logging.getLogger(__name__)


class HorovodOptimizer(SyncReplicasOptimizer):
    """What `hvd.DistributedOptimizer` returns in a cluster."""

    def __init__(self, optimizer: tf.train.Optimizer, size: int, is_chief: bool, *, collectives: Collectives, op: str,
                 sparse_as_dense: bool, name: str, use_locking: bool) -> None:
        """Takes the optimizer that applies the gradients, and how they are combined: AVERAGE or SUM."""
        super().__init__(optimizer, size, use_locking=use_locking, name=name)
        self._is_chief, self._collectives = is_chief, collectives
        self._op = op
        self._is_dense = sparse_as_dense
        self._computed: list[Any] = []

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        """Returns this worker's gradients; those of the others are added when they are applied."""
        _state().train()
        pairs = self._opt.compute_gradients(*args, **kwargs)
        if self._is_dense:
            pairs = [(tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient, variable)
                     for gradient, variable in pairs]
        self._computed = [gradient for gradient, _ in pairs]
        return pairs

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Returns a worker's step, as SyncReplicasOptimizer does; without a global step the updates count their own."""
        state, pairs = _state(), list(grads_and_vars)
        state.train()
        if any(gradient is not computed for (gradient, _), computed in zip(pairs, self._computed)):
            _log.info("hvd.DistributedOptimizer: the script changes the gradients, by clipping for example; that is "
                      "done to the gradients of each worker, and not to their mean")
        if state.hook is not None:
            train_op = exchanged_step(
                self._opt, pairs, global_step, self._collectives, is_chief=self._is_chief, name=name)
            state.add_start(train_op)
            return train_op
        if global_step is None:
            global_step = tf.get_variable("horovod_step", [], tf.int64, tf.zeros_initializer(), trainable=False)
        train_op = super().apply_gradients(pairs, global_step, name)
        with tf.control_dependencies(None):  # those of the script are for its steps
            state.unset = tf.report_uninitialized_variables(tf.global_variables())
        state.hook = self.make_session_run_hook(self._is_chief)
        state.hook.begin()
        state.add_start(train_op)
        return train_op

    def _make_engine(self, optimizer: Any, pairs: Sequence[tuple], global_step: tf.Variable,
                     before: Sequence[tf.Operation]) -> StandaloneEngine:
        sparse = [variable for gradient, variable in pairs if isinstance(gradient, tf.IndexedSlices)]
        return StandaloneEngine(_Combining(optimizer, self._op), pairs, global_step, self._settings,
                                worker=self.worker_number, summed=sparse, also_in_step=before)


class _Combining:
    """Applies what the accumulators give: means of dense gradients, and sums of sparse ones."""

    def __init__(self, optimizer: Any, op: str) -> None:
        self._optimizer, self._op = optimizer, op

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: tf.Variable) -> tf.Operation:
        """Returns the operation that applies them, on ps 0."""
        with tf.control_dependencies([_tensor(gradient) for gradient, _ in grads_and_vars]):
            count = variables.read("required")
        combined = [(self._combined(gradient, variable, count), variable) for gradient, variable in grads_and_vars]
        return self._optimizer.apply_gradients(combined, global_step)

    def _combined(self, gradient: Any, variable: tf.Variable, count: tf.Tensor) -> Any:
        number = tf.cast(count, gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / number if self._op == AVERAGE else gradient.values
            # An accumulator does not know how many rows there are, which an optimizer needs that makes them dense.
            is_known = variable.shape.is_fully_defined()
            shape = tf.constant(variable.shape.as_list(), tf.int64) if is_known else gradient.dense_shape
            return tf.IndexedSlices(values, gradient.indices, shape)
        return gradient if self._op == AVERAGE else gradient * number


def _tensor(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _state() -> graphs.GraphState:
    state = graphs.state_of(tf.get_default_graph())
    assert state is not None, "hvd.init() places each graph"
    return state
