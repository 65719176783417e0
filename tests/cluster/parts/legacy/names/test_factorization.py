"""tf.contrib.factorization: against numpy, and against numbers of TensorFlow 1.15.5."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from ps_train.parts.legacy.names.factorization import WALSModel
from tests.tensorflow_mode import tf

MATRIX = np.array([
    [1, 0, 2, 0, 3], [0, 4, 0, 0, 1], [2, 0, 0, 5, 0], [0, 1, 1, 0, 0], [3, 0, 0, 0, 2], [0, 2, 0, 1, 0]], np.float32)
_RANDOM = np.random.RandomState(0)
ROWS, COLS = (_RANDOM.normal(size=[size, 2]).astype(np.float32) for size in MATRIX.shape)
# Unobserved weight, regularization, weights of rows and of columns, options.
CASES = {
    "the defaults": (0.1, None, np.ones(6), np.ones(5), {}),
    "shards": (0.2, 0.5, np.array([1.0, 2.0, 3.0, 0.5, 1.0, 2.0]), 2 * np.ones(5), {
        "regularization": 0.5, "unobserved_weight": 0.2, "num_row_shards": 4, "num_col_shards": 2,
        "row_weights": [[1.0, 2.0], [3.0, 0.5], [1.0], [2.0]], "col_weights": 2.0,
        "row_init": [ROWS[:2], ROWS[2:4], ROWS[4:5], ROWS[5:]], "col_init": [COLS[:3], COLS[3:]]}),
    "no weights, no copies": (0.1, 0.1, np.zeros(6), np.zeros(5), {
        "regularization": 0.1, "row_weights": None, "col_weights": None, "use_factors_weights_cache": False,
        "use_gramian_cache": False}),
    "weights of the columns": (0.1, None, 0.7 * np.ones(6), np.arange(1.0, 6.0), {
        "row_weights": 0.7, "col_weights": range(1, 6), "row_init": lambda: ROWS}),
}


def solved(matrix, right, weights, case):
    """Returns the factors of the rows: the least squares of each, with the weights of its entries [rows, columns]."""
    unobserved, regularization = case[0], case[1] or 0.0
    rows = []
    for entries, own in zip(matrix, weights):
        all_weights = unobserved + own * (entries != 0)
        left_side = (right.T * all_weights) @ right + regularization * np.eye(2)
        rows.append(np.linalg.solve(left_side, right.T @ (all_weights * entries)))
    return np.array(rows)


def loss_of(matrix, left, right, weights, case):
    """Returns the loss, its regularization and the sum of the weights."""
    all_weights = case[0] + weights * (matrix != 0)
    squares = np.sum(np.square(left)) + np.sum(np.square(right))
    return np.sum(all_weights * np.square(matrix - left @ right.T)), (case[1] or 0.0) * squares, np.sum(all_weights)


@pytest.mark.parametrize("name", CASES)
def test_each_sweep_solves_the_least_squares(name):
    """By batches of rows, from the matrix and from its transpose; the columns at once; and a row that is new."""
    case = CASES[name]
    weights = np.outer(*case[2:4])
    with tf.Graph().as_default():
        matrix = tf.sparse_placeholder(tf.float32)
        model = WALSModel(*MATRIX.shape, 2, **{"row_init": ROWS, "col_init": COLS, **case[4]})
        row_updates = [model.update_row_factors(matrix), model.update_row_factors(
            tf.sparse.transpose(matrix), transpose_input=True)]
        col_update, projection = model.update_col_factors(matrix), model.project_row_factors(matrix, False, [0.5])
        starts = [model.initialize_op, tf.local_variables_initializer()]
        right, left = COLS, None
        with tf.Session() as session:
            for start in (*starts, model.worker_init):
                session.run(start)
            for update in row_updates:
                left = solved(MATRIX, right, weights, case)
                session.run(model.row_update_prep_gramian_op)
                session.run(model.initialize_row_update_op)
                assert session.run(projection, feed(matrix, [1])) == pytest.approx(
                    solved(MATRIX[1:2], right, 0.5 * (case[2][1] > 0) * case[3][np.newaxis], case), rel=1e-3, abs=1e-4)
                for batch in ([0, 1, 2], [5, 3, 4]):
                    found = session.run(update[1:], feed(matrix, batch))
                    assert found[1] == pytest.approx(
                        2 * loss_of(MATRIX[batch], left[batch], right, weights[batch], case)[0], rel=1e-3)
                right = solved(MATRIX.T, left, weights.T, case)
                session.run(model.col_update_prep_gramian_op)
                session.run(model.initialize_col_update_op)
                found = session.run(col_update[1:], feed(matrix, range(6)))
                assert found[1:] == pytest.approx(loss_of(MATRIX.T, right, left, weights.T, case), rel=1e-3)
            assert np.concatenate(session.run(model.row_factors)) == pytest.approx(left, rel=1e-3, abs=1e-4)
            assert np.concatenate(session.run(model.col_factors)) == pytest.approx(right, rel=1e-3, abs=1e-4)


def feed(matrix, rows):
    """Returns the feeds of some rows of the matrix."""
    found = [(row, column) for row in rows for column in np.flatnonzero(MATRIX[row])]
    return {matrix: tf.SparseTensorValue(found, [MATRIX[place] for place in found], MATRIX.shape)}


@pytest.mark.parametrize(("is_scoped", "scope"), [(False, ""), (True, "row_factors/")])
def test_variables_have_the_names_of_tensorflow_1(is_scoped, scope):
    """In its order, by which they are distributed over the ps; each ps multiplies what it has."""
    with tf.Graph().as_default() as graph, tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        model = WALSModel(6, 5, 2, num_row_shards=2, use_scoped_vars=is_scoped)
        assert len(tf.trainable_variables()) == len(tf.global_variables()) == 8
        assert [variable.op.name for variable in model.row_factors] == [
            f"{scope}row_factors_shard_0", f"{scope}row_factors_shard_1"]
        assert [variable.op.name for variable in tf.global_variables()[-2:]] == ["row_gramian", "col_gramian"]
        assert {variable.op.name.partition("/")[0] for variable in tf.local_variables()} == {"transient_vars"}
        products = [op for op in graph.get_operations() if op.type == "MatMul"]
        assert [op.colocation_groups() for op in products[1:3]] == [
            variable.op.colocation_groups() for variable in model.row_factors]
        assert {variable.device for variable in model.row_factors} == {"/job:ps/task:0", "/job:ps/task:1"}


@pytest.mark.parametrize(("options", "message"), [
    ({"row_weights": None}, "must both be None"), ({"row_weights": -1}, "got -1"),
    ({"num_row_shards": 2, "row_weights": [[1.0] * 6]}, "1 parts for 2 shards"),
    ({"num_col_shards": 2, "col_init": [COLS]}, "1 parts for 2 shards")])
def test_wrong_weights_are_one_line(options, message):
    """With the argument's name."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        WALSModel(6, 5, 2, **options)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow_estimator") is None, reason="needs the Estimator")
def test_the_estimator_trains_by_sweeps(tmp_path):
    """Numbers of TensorFlow 1.15.5, of the same matrix; it ends after the fifth sweep, not the 20th step."""
    bridge.install_estimator()
    from ps_train.parts.legacy.names.learn_factorization import (  # noqa: PLC0415 (it needs the Estimator)
        WALSMatrixFactorization,
    )

    def sparse(matrix):
        return tf.SparseTensor(np.argwhere(matrix).astype(np.int64), matrix[matrix != 0], matrix.shape)

    def input_fn(is_row=True, **others):
        return {"input_rows": sparse(MATRIX), "input_cols": sparse(MATRIX.T), "project_row": tf.constant(is_row),
                **others}, None
    model = WALSMatrixFactorization(6, 5, 2, regularization_coeff=0.1, row_init=ROWS, col_init=[COLS[:3], COLS[3:]],
                                    num_col_shards=2, max_sweeps=5, model_dir=str(tmp_path))
    model.fit(input_fn=input_fn, steps=20)
    assert sorted(model.get_variable_names()) == [
        "WALS_RWSE", "WALS_loss", "col_factors_shard_0", "col_factors_shard_1", "col_gramian", "col_weights_shard_0",
        "col_weights_shard_1", "completed_sweeps", "global_step", "is_row_sweep", "is_sweep_done", "processed_cols",
        "processed_rows", "row_factors_shard_0", "row_gramian", "row_weights_shard_0"]
    assert [model.get_variable_value(name) for name in ("completed_sweeps", "WALS_loss", "WALS_RWSE", "global_step")
            ] == pytest.approx([5, 12.2954655, 0.6389705, 5], rel=1e-5)
    assert [model.evaluate(input_fn=lambda is_row=is_row: input_fn(is_row), steps=1)["loss"]
            for is_row in (True, False)] == pytest.approx([12.2954655, 13.7888556], rel=1e-5)
    assert [part.shape for part in model.get_col_factors()] == [(3, 2), (2, 2)]
    found = list(model.get_projections(lambda: input_fn(projection_weights=tf.constant([0.5] * 6))))
    assert found[0] == pytest.approx([0.0615156, 3.3181081], rel=1e-4)
    with pytest.raises(ValueError, match="no labels"):
        model.fit(input_fn=lambda: (input_fn()[0], tf.constant([1])), steps=1)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow_estimator") is None, reason="needs the Estimator")
def test_a_new_session_fills_the_copies_again():
    """As MonitoredSession makes one after a ps was lost; local variables are then those of the start."""
    bridge.install_estimator()
    from ps_train.parts.legacy.names.learn_factorization import (  # noqa: PLC0415 (it needs the Estimator)
        WALSMatrixFactorization,
    )

    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        places = np.argwhere(MATRIX)
        rows = tf.SparseTensor(places, MATRIX[MATRIX != 0], MATRIX.shape)
        model = WALSMatrixFactorization(6, 5, 2, row_init=ROWS, col_init=COLS)
        spec = model.model_fn(
            {"input_rows": rows, "input_cols": tf.sparse.transpose(rows)}, None, "train", model.config)
        losses = []
        for _ in range(2):
            with tf.train.MonitoredSession(hooks=spec.training_hooks) as session:
                session.run(spec.train_op)
                losses.append(session.run(spec.loss))
    assert losses[0] == losses[1] > 0
