"""Optimizers outside the graph; SciPy is not needed here, as `_minimize` and `scipy.optimize` are the tests' own."""

from __future__ import annotations

import functools
import sys
import types

import numpy as np
import pytest
from tensorflow.python.client.session import BaseSession  # what is wrapped has no public name

from ps_train.parts.legacy.names import external_optimizers, fed_variables
from tests.tensorflow_mode import tf


@pytest.fixture(autouse=True)
def session(monkeypatch):
    """A session of a graph for this test only, in which variables are fed as under `ps_train run`."""
    monkeypatch.setattr(BaseSession, "_run", functools.partialmethod(_run, BaseSession._run))
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def _run(session, original, *args):
    return fed_variables.feed_variables(original, session, *args)


def two_variables(session):
    """Returns a matrix [2, 2] and a vector [3], initialized, and a loss whose minimum is at 1 and at 2."""
    matrix = tf.get_variable("matrix", initializer=tf.constant([[0.0, 1.0], [2.0, 3.0]]))
    vector = tf.get_variable("vector", initializer=tf.constant([4.0, 5.0, 6.0]))
    session.run(tf.global_variables_initializer())
    return matrix, vector, tf.reduce_sum(tf.square(matrix - 1)) + tf.reduce_sum(tf.square(vector - 2))


class Descent(external_optimizers.ExternalOptimizerInterface):
    """Gradient descent by numpy; it keeps what it got."""

    def _minimize(self, *, initial_val, loss_grad_func, step_callback, optimizer_kwargs, **others):
        self.initial, self.others, packed = initial_val, others, initial_val
        for _ in range(optimizer_kwargs["num_steps"]):
            _, gradient = loss_grad_func(packed)
            packed = packed - 0.25 * gradient
            step_callback(packed)
        return packed


def test_variables_get_the_values_of_the_minimum(session):
    """They are packed in their order; callbacks see each step, and each loss with what is fetched and fed."""
    matrix, vector, loss = two_variables(session)
    scale, steps, losses = tf.placeholder(tf.float32, []), [], []
    optimizer = Descent(loss * scale, num_steps=30)
    optimizer.minimize(session, {scale: 1.0}, [loss, scale], steps.append, lambda *values: losses.append(values))
    np.testing.assert_array_equal(optimizer.initial, [0, 1, 2, 3, 4, 5, 6])
    values = session.run([matrix, vector])
    np.testing.assert_allclose(values[0], np.ones([2, 2]), atol=1e-6)
    np.testing.assert_allclose(values[1], 2 * np.ones(3), atol=1e-6)
    assert len(steps) == len(losses) == 30 and steps[0].shape == (7,)
    assert losses[0] == (1 + 0 + 1 + 4 + 4 + 9 + 16, 1.0)


def test_a_variable_that_the_loss_does_not_use_stays(session):
    """Its gradient is 0; one that is not given is not changed at all."""
    matrix, vector, _ = two_variables(session)
    Descent(tf.reduce_sum(matrix), [matrix, vector], num_steps=1).minimize(session)
    values = session.run([matrix, vector])
    np.testing.assert_allclose(values[0], [[-0.25, 0.75], [1.75, 2.75]])
    np.testing.assert_array_equal(values[1], [4, 5, 6])


def test_bounds_and_constraints_are_packed_as_the_values_are(session):
    """A bound is a number or an array of the variable's shape; a constraint may have several elements."""
    matrix, vector, loss = two_variables(session)
    optimizer = Descent(
        loss, equalities=[tf.reduce_sum(matrix)], inequalities=[vector - 1], num_steps=0,
        var_to_bounds={vector: (0, [7.0, 8.0, 9.0]), matrix: (None, np.full([2, 2], 3.0))})
    optimizer.minimize(session)
    assert optimizer.others["packed_bounds"] == [(-np.inf, 3)] * 4 + [(0, 7), (0, 8), (0, 9)]
    (equality,), (slope,) = optimizer.others["equality_funcs"], optimizer.others["equality_grad_funcs"]
    (inequality,), (jacobian,) = optimizer.others["inequality_funcs"], optimizer.others["inequality_grad_funcs"]
    packed = np.arange(7.0)
    assert equality(packed) == 6 and slope(packed).tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert inequality(packed).tolist() == [3, 4, 5]
    np.testing.assert_array_equal(jacobian(packed), np.eye(7)[4:])


@pytest.mark.parametrize(("constraints", "given", "method"), [
    ({}, {}, "L-BFGS-B"), ({"equalities": True}, {}, "SLSQP"), ({}, {"method": "CG", "options": {"maxiter": 3}}, "CG")])
def test_scipy_gets_the_loss_with_its_gradient(session, monkeypatch, constraints, given, method):
    """And the arguments of the script."""
    calls = {}

    def minimize(function, initial, **arguments):
        calls.update(arguments, loss=function(initial))
        return types.SimpleNamespace(x=initial + 1, fun=0.0, message="done")

    monkeypatch.setitem(sys.modules, "scipy", types.SimpleNamespace(optimize=types.SimpleNamespace(minimize=minimize)))
    matrix, vector, loss = two_variables(session)
    constraints = {name: [tf.reduce_sum(vector)] for name in constraints}
    external_optimizers.ScipyOptimizerInterface(loss, **constraints, **given).minimize(session)
    value, gradient = calls["loss"]
    assert value == 35 and gradient.tolist() == [-2, 0, 2, 4, 4, 6, 8] and calls["jac"] is True
    assert calls["method"] == method and calls.get("options") == given.get("options")
    assert [constraint["type"] for constraint in calls.get("constraints", [])] == ["eq"] * len(constraints)
    np.testing.assert_array_equal(session.run(vector), [5, 6, 7])


def test_scipy_gets_its_function_from_here(session):
    """As TensorFlow 1 said."""
    _, _, loss = two_variables(session)
    with pytest.raises(ValueError, match="jac"):
        external_optimizers.ScipyOptimizerInterface(loss, jac=False).minimize(session)
