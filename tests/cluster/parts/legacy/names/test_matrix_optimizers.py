"""Shampoo and GGT, against numpy.

The same losses on TensorFlow 1.15.5 had the same variables and slots, with the same names.
"""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names.matrix_optimizers import (
    GGTOptimizer,
    ShampooOptimizer,
    matrix_inverse_pth_root,
    matrix_square_root,
)
from tests.tensorflow_mode import tf

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.2
B = np.array([0.1, -0.2, 0.3], np.float32)
STEPS = ([0, 2, 2], [2, 3, 0], [1, 2, 1], [0, 1, 2])  # the rows that each step looks up
RATE, EPSILON = 0.05, 0.5
TOLERANCE = {"rtol": 2e-4, "atol": 1e-5}


def gradients_of(x, b, rows):
    """Returns those of the sum of (x + b)**2 + x**3 over the rows that are looked up."""
    of_x = np.zeros_like(x)
    np.add.at(of_x, rows, 2 * (x[rows] + b) + 3 * x[rows] ** 2)
    return of_x, 2 * (x[rows] + b).sum(0)


def train(make, is_resource=True, is_sparse=False):
    """Returns name -> value of all variables after each of STEPS."""
    values = []
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step()
        with tf.variable_scope("", use_resource=is_resource):
            x, b = tf.get_variable("x", initializer=X), tf.get_variable("b", initializer=B)
        rows = tf.placeholder(tf.int32, [None])
        picked = tf.gather(x, rows) if is_sparse else tf.matmul(tf.one_hot(rows, 4), x)
        train_op = make(step).minimize(tf.reduce_sum((picked + b) ** 2) + tf.reduce_sum(picked ** 3), step)
        session.run(tf.global_variables_initializer())
        for picked_rows in STEPS:
            session.run(train_op, {rows: picked_rows})
            values.append(session.run({each.op.name: each for each in tf.global_variables()}))
    return values


def power_of(matrix, power):
    """Returns a symmetric matrix to a power, with EPSILON on its diagonal."""
    values, vectors = np.linalg.eigh(matrix + EPSILON * np.eye(len(matrix)))
    return vectors * values ** power @ vectors.T


both_kinds = pytest.mark.parametrize("is_resource", [True, False])


@both_kinds
@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("is_iterative", [True, False])
def test_shampoo(is_resource, is_sparse, is_iterative):
    """Each dimension has its matrix, with the mean of the gradients' products."""
    trained = train(lambda step: ShampooOptimizer(
        step, learning_rate=RATE, epsilon=EPSILON, use_iterative_root=is_iterative), is_resource, is_sparse)
    x, b, left, right, of_b = X, B, np.zeros((4, 4)), np.zeros((3, 3)), np.zeros((3, 3))
    for rows, values in zip(STEPS, trained):
        g, h = gradients_of(x, b, rows)
        left, right, of_b = left + g @ g.T, right + g.T @ g, of_b + np.outer(h, h)
        x = x - RATE * power_of(left / 4, -1 / 4) @ g @ power_of(right / 3, -1 / 4)
        b = b - RATE * power_of(of_b / 3, -1 / 2) @ h
        for name, expected in (("x", x), ("b", b), ("x/Shampoo_1", left), ("x/Shampoo_2", right),
                               ("b/Shampoo_1", of_b), ("x/Shampoo", 0 * x)):
            np.testing.assert_allclose(values[name], expected, err_msg=name, **TOLERANCE)


def test_shampoo_in_intervals_and_with_means():
    """Matrices change in every second step, their powers in every third, which it keeps."""
    trained = train(lambda step: ShampooOptimizer(
        step, learning_rate=lambda t: RATE / t, epsilon=EPSILON, gbar_decay=0.9, gbar_weight=0.2, mat_gbar_decay=0.5,
        mat_gbar_weight=0.25, svd_interval=3, precond_update_interval=2))
    x, b, mean, left, kept = X, B, np.zeros_like(X), np.zeros((4, 4)), np.eye(4)
    for step, (rows, values) in enumerate(zip(STEPS, trained), 1):
        g, _ = gradients_of(x, b, rows)
        mean = 0.9 * mean + 0.2 * g
        if step % 2 == 0:
            left = 0.5 * left + 2 * 0.25 * g @ g.T
        if step % 3 == 0:
            kept = power_of(left / 4, -1 / 4)
        x_before, x, b = x, values["x"], values["b"]
        for name, expected in (("x/Shampoo", mean), ("x/Shampoo_1", kept), ("x/Shampoo_2", left)):
            np.testing.assert_allclose(values[name], expected, err_msg=name, **TOLERANCE)
        np.testing.assert_allclose(x, x_before - RATE / step * kept @ mean @ values["x/Shampoo_3"], **TOLERANCE)
    assert "x/Shampoo_4" in values and "b/Shampoo_3" not in values


@both_kinds
@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_large_dimension_has_the_diagonal_only(is_resource, is_sparse):
    """Of a sparse gradient, the rows that it has, whose squares are added and not averaged."""
    trained = train(lambda step: ShampooOptimizer(
        step, learning_rate=RATE, max_matrix_size=3, epsilon=EPSILON), is_resource, is_sparse)
    x, b, left, right = X, B, np.zeros(4), np.zeros((3, 3))
    for rows, values in zip(STEPS, trained):
        g, _ = gradients_of(x, b, rows)
        left, right = left + (g ** 2).sum(1) / (1 if is_sparse else 4), right + g.T @ g
        factors = np.where(left > 0, np.maximum(left, 1e-30) ** (-1 / 4), 0)
        x = x - RATE * factors[:, None] * g @ power_of(right / 3, -1 / 4)
        b = values["b"]
        for name, expected in (("x", x), ("x/Shampoo_1", left), ("x/Shampoo_2", right)):
            np.testing.assert_allclose(values[name], expected, err_msg=name, **TOLERANCE)


def test_a_large_sparse_dimension_needs_sums():
    """TensorFlow 1 asserts it."""
    with pytest.raises(ValueError, match=r"needs mat_gbar_decay=1\.0"):
        train(lambda step: ShampooOptimizer(step, max_matrix_size=3, mat_gbar_decay=0.9), is_sparse=True)


@pytest.mark.parametrize("alpha", [-1.0, -0.5, -0.2])
def test_roots_by_iterations(alpha):
    """The square root, and a negative one."""
    matrix = np.array([[2.0, 0.3], [0.3, 1.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        root, power = session.run([matrix_square_root(matrix, 2, ridge_epsilon=0.0),
                                   matrix_inverse_pth_root(matrix, 2, alpha, ridge_epsilon=0.0)])
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(root @ root, matrix, rtol=1e-4)
    np.testing.assert_allclose(power, vectors * values ** alpha @ vectors.T, rtol=1e-3, atol=1e-4)


def test_a_root_by_iterations_is_a_whole_one():
    """Other powers have no such iteration."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match="-1/p for a whole number p"):
        matrix_inverse_pth_root(tf.eye(2), 2, -2.0)


@both_kinds
@pytest.mark.parametrize("eps", [0.01, 10.0])
def test_ggt(is_resource, eps):
    """All variables are one vector, in the order of their names; it keeps the last two moments of it."""
    rate, window, svd_eps, sigma_eps = RATE, 2, 0.1, 0.01
    trained = train(lambda _: GGTOptimizer(
        lambda: rate, window=window, svd_eps=svd_eps, sigma_eps=sigma_eps, eps=eps), is_resource)
    vector, moment, buffer = np.concatenate([B, X.ravel()]), np.zeros(15), np.zeros((window, 15))
    for step, (rows, values) in enumerate(zip(STEPS, trained)):
        of_x, of_b = gradients_of(vector[3:].reshape(4, 3), vector[:3], rows)
        gradient = np.concatenate([of_b, of_x.ravel()])
        moment = 0.9 * moment + 0.1 * gradient
        buffer[step % window] = moment
        m = buffer.T / np.sqrt(min(step + 1, window))
        sigma, u = np.linalg.eigh(m.T @ m + svd_eps * np.eye(window))
        share = u.T @ m.T @ moment
        change = m @ u @ (share / (np.sqrt(sigma) + sigma_eps) ** 3)
        if np.sqrt(sigma.min()) > eps:
            change += (moment - m @ u @ (share / sigma)) / np.sqrt(sigma.min())
        vector = vector - rate * change
        for name, expected in (("b", vector[:3]), ("x", vector[3:].reshape(4, 3)), ("moment1", moment),
                               ("grad_buffer", buffer), ("flat_grad", gradient), ("global_step_1", step + 1)):
            np.testing.assert_allclose(values[name], expected, err_msg=name, **TOLERANCE)


@both_kinds
def test_ggt_refuses_sparse_gradients(is_resource):
    """As in TensorFlow 1."""
    with pytest.raises(NotImplementedError, match="takes no sparse gradients"):
        train(lambda _: GGTOptimizer(), is_resource, is_sparse=True)
