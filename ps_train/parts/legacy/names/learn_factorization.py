"""`tf.contrib.factorization.WALSMatrixFactorization`: an Estimator that trains a WALSModel, sweep by sweep.

    step   solves a batch of rows, or of columns, and marks them as processed
    sweep  is over when all are marked; SweepHook then changes from rows to columns, or back
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.factorization import WALSModel
from ps_train.parts.legacy.names.learn import LearnEstimator, ModelFnOps

_log = logging.getLogger(__name__)
_ROWS, _COLS, _IS_ROW, _WEIGHTS = "input_rows", "input_cols", "project_row", "projection_weights"
_RESULT, _COMPLETED, _LOSS, _ERROR = "projection", "completed_sweeps", "WALS_loss", "WALS_RWSE"


class WALSMatrixFactorization(LearnEstimator):
    """Factors of a sparse matrix, by weighted alternating least squares.

    An input function returns (features, None). Features are `INPUT_ROWS`, float32 [rows, columns], some rows of the
    matrix, and `INPUT_COLS`, float32 [columns, rows], some of the rows of its transpose, both sparse, of which a step
    takes one. An evaluation and a projection take the rows or the columns, as bool [] `PROJECT_ROW` says; float32
    `PROJECTION_WEIGHTS` are those of the rows to project.
    """

    INPUT_ROWS, INPUT_COLS, PROJECT_ROW, PROJECTION_WEIGHTS = _ROWS, _COLS, _IS_ROW, _WEIGHTS
    PROJECTION_RESULT, COMPLETED_SWEEPS, LOSS, RWSE = _RESULT, _COMPLETED, _LOSS, _ERROR

    def __init__(self, num_rows: int, num_cols: int, embedding_dimension: int, unobserved_weight: float = 0.1,
                 regularization_coeff: float | None = None, row_init: Any = "random", col_init: Any = "random",
                 num_row_shards: int = 1, num_col_shards: int = 1, row_weights: Any = 1, col_weights: Any = 1,
                 use_factors_weights_cache_for_training: bool = True, use_gramian_cache_for_training: bool = True,
                 max_sweeps: int | None = None, model_dir: str | None = None, config: Any = None) -> None:
        """Takes what WALSModel takes, and the number of sweeps, of rows or columns, after which training ends.

        Raises:
          ValueError: there are several workers: each would sweep on its own.
        """
        params = {
            "num_rows": num_rows, "num_cols": num_cols, "embedding_dimension": embedding_dimension,
            "unobserved_weight": unobserved_weight, "regularization_coeff": regularization_coeff, "row_init": row_init,
            "col_init": col_init, "num_row_shards": num_row_shards, "num_col_shards": num_col_shards,
            "row_weights": row_weights, "col_weights": col_weights, "max_sweeps": max_sweeps,
            "use_factors_weights_cache_for_training": use_factors_weights_cache_for_training,
            "use_gramian_cache_for_training": use_gramian_cache_for_training}
        super().__init__(_model_fn, model_dir=model_dir, config=config, params=params)
        if self.config.num_worker_replicas > 1:
            raise ValueError(f"WALSMatrixFactorization trains on one worker; got {self.config.num_worker_replicas}")

    def get_row_factors(self) -> list[np.ndarray]:
        """Returns the shards of the trained factors of the rows."""
        return self._shards("row", "num_row_shards")

    def get_col_factors(self) -> list[np.ndarray]:
        """Returns the shards of the trained factors of the columns."""
        return self._shards("col", "num_col_shards")

    def _shards(self, side: str, count: str) -> list[np.ndarray]:
        return [self.get_variable_value(f"{side}_factors_shard_{index}")
                for index in range(self.params[count])]

    def get_projections(self, input_fn: Callable) -> Iterator[np.ndarray]:
        """Yields the factors of the rows or columns that an input function makes."""
        return (each[_RESULT] for each in self.predict(input_fn=input_fn))


def _model_fn(features: dict, labels: Any, mode: str, params: dict) -> ModelFnOps:
    """Builds the model; `labels` must be None."""
    if labels is not None:
        raise ValueError("WALSMatrixFactorization takes no labels: input_fn must return (features, None)")
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    model = WALSModel(
        params["num_rows"], params["num_cols"], params["embedding_dimension"], params["unobserved_weight"],
        params["regularization_coeff"], params["row_init"], params["col_init"], params["num_row_shards"],
        params["num_col_shards"], params["row_weights"], params["col_weights"],
        params["use_factors_weights_cache_for_training"] and is_training,
        params["use_gramian_cache_for_training"] and is_training)
    rows, cols = features[_ROWS], features[_COLS]
    if is_training:
        return _training(model, rows, cols, params)
    if mode == tf.estimator.ModeKeys.EVAL:
        loss = tf.cond(features[_IS_ROW], lambda: tf.add(*model.update_row_factors(rows)[2:4]),
                       lambda: tf.add(*model.update_col_factors(cols, transpose_input=True)[2:4]))
        return ModelFnOps(mode, predictions={}, loss=loss, train_op=tf.no_op())
    weights = features.get(_WEIGHTS)
    projection = tf.cond(
        features[_IS_ROW], lambda: model.project_row_factors(rows, projection_weights=weights),
        lambda: model.project_col_factors(cols, transpose_input=True, projection_weights=weights))
    return ModelFnOps(mode, predictions={_RESULT: projection})


class _State(NamedTuple):
    """The variables of a training."""

    is_row_sweep: tf.Variable
    is_sweep_done: tf.Variable
    completed_sweeps: tf.Variable
    loss: tf.Variable
    error: tf.Variable


def _variable(value: Any, name: str) -> tf.Variable:
    return tf.Variable(value, trainable=False, name=name, collections=[tf.GraphKeys.GLOBAL_VARIABLES])


def _training(model: WALSModel, rows: tf.SparseTensor, cols: tf.SparseTensor, params: dict) -> ModelFnOps:
    state = _State(_variable(True, "is_row_sweep"), _variable(False, "is_sweep_done"),
                   _variable(0, _COMPLETED), _variable(0.0, _LOSS), _variable(0.0, _ERROR))
    tf.summary.scalar("loss", state.loss)
    tf.summary.scalar("root_weighted_squared_error", state.error)
    tf.summary.scalar("completed_sweeps", state.completed_sweeps)
    reset_rows, row_step = _step(state, rows, params["num_rows"], "rows", model.update_row_factors(rows))
    reset_cols, col_step = _step(
        state, cols, params["num_cols"], "cols", model.update_col_factors(cols, transpose_input=True))
    switch = tf.group(tf.assign(state.is_row_sweep, tf.logical_not(state.is_row_sweep)), reset_rows, reset_cols,
                      name="sweep_switch_op")
    hooks: list[Any] = [
        _SweepHook(state, model.worker_init, switch, {
            True: ([model.row_update_prep_gramian_op, model.initialize_row_update_op], row_step),
            False: ([model.col_update_prep_gramian_op, model.initialize_col_update_op], col_step)}),
        _GlobalStepHook()]
    if params["max_sweeps"] is not None:
        hooks.append(_StopAtSweepHook(state.completed_sweeps, params["max_sweeps"]))
    # The loss that is logged is that of the step before, as which step a session runs is the hook's choice.
    return ModelFnOps(tf.estimator.ModeKeys.TRAIN, predictions={}, loss=tf.identity(state.loss),
                      train_op=tf.no_op(), training_hooks=hooks)


def _step(state: _State, batch: tf.SparseTensor, size: int, side: str, updates: tuple) -> tuple:
    """Returns what marks all rows or columns as not processed, and what processes a batch of them."""
    _, update_op, loss, regularization, sum_weights = updates
    processed = _variable(tf.fill([size], False), f"processed_{side}")
    places = batch.indices[:, 0]
    with tf.control_dependencies([update_op, tf.assign(state.loss, loss + regularization),
                                  tf.assign(state.error, tf.sqrt(loss / sum_weights))]):
        marked = tf.scatter_update(processed, places, tf.ones_like(places, tf.bool),
                                   name=f"update_processed_{side}_indices")
    with tf.control_dependencies([marked]):
        is_done = tf.reduce_all(processed)
        counted = tf.assign_add(state.completed_sweeps, tf.cast(is_done, tf.int32))
        step = tf.group(tf.assign(state.is_sweep_done, is_done), counted, name=f"{side}_sweep_train_op")
    return processed.initializer, step


class _SweepHook(tf.train.SessionRunHook):
    """Prepares each sweep, and adds the step of rows or columns to what a session runs."""

    def __init__(self, state: _State, worker_init: tf.Operation, switch: tf.Operation, sweeps: dict) -> None:
        """Takes for a sweep of rows, True, and one of columns, False, the operations before it, and its step."""
        self._state, self._worker_init, self._switch, self._sweeps = state, worker_init, switch, sweeps
        self._is_initialized = False

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        self._is_initialized = False  # a later one, after a ps was lost, has new local variables

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        session = run_context.session
        is_done = session.run(self._state.is_sweep_done)
        if not self._is_initialized:
            session.run(self._worker_init)
        if is_done:
            session.run(self._switch)
        is_row_sweep = bool(session.run(self._state.is_row_sweep))
        preparations, step = self._sweeps[is_row_sweep]
        if is_done or not self._is_initialized:
            _log.info("sweep of the %s", "rows" if is_row_sweep else "columns")
            for preparation in preparations:  # in this order
                session.run(preparation)
        self._is_initialized = True
        return tf.train.SessionRunArgs([step])


class _GlobalStepHook(tf.train.SessionRunHook):
    """Counts the global step, as no optimizer does."""

    def __init__(self) -> None:
        step = tf.train.get_global_step()
        self._count = None if step is None else tf.assign_add(step, 1, name="global_step_incr").op

    def before_run(self, run_context: tf.train.SessionRunContext) -> None:
        if self._count is not None:
            run_context.session.run(self._count)


class _StopAtSweepHook(tf.train.SessionRunHook):
    """Ends the training after some sweeps."""

    def __init__(self, completed: tf.Variable, last_sweep: int) -> None:
        self._completed, self._last_sweep = completed, last_sweep

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: Any) -> None:
        # Fetched together with the step, it could be read before the step has counted.
        if run_context.session.run(self._completed) >= self._last_sweep:
            run_context.request_stop()
