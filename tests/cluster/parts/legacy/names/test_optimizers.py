"""Optimizers of tf.contrib.opt, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import optimizers
from tests.tensorflow_mode import tf

RATE, BETA1, BETA2, EPSILON = 0.1, 0.9, 0.999, 1e-8
# TensorFlow multiplies the powers of the betas in float32.
TOLERANCE = {"rtol": 2e-4, "atol": 1e-5}
INITIAL = np.arange(8, dtype=np.float32).reshape(4, 2) / 10
# The rows that each step looks up, one of them twice.
STEPS = ([0, 2, 2], [2, 3, 0], [1, 2, 1])


def _gradient(values, rows):
    """Returns the gradient of the sum of (value + 1)**2 over the rows that are looked up, [4, 2]."""
    gradient = np.zeros_like(values)
    np.add.at(gradient, rows, 2 * (values[rows] + 1))
    return gradient


def _adam_step(values, m, v, gradient, step, rows=slice(None), is_nesterov=False):
    """Changes some rows as Adam (arXiv 1412.6980, end of section 2) does."""
    m[rows] = BETA1 * m[rows] + (1 - BETA1) * gradient[rows]
    v[rows] = BETA2 * v[rows] + (1 - BETA2) * gradient[rows] ** 2
    rate = RATE * np.sqrt(1 - BETA2 ** step) / (1 - BETA1 ** step)
    moment = BETA1 * m[rows] + (1 - BETA1) * gradient[rows] if is_nesterov else m[rows]
    values[rows] -= rate * moment / (np.sqrt(v[rows]) + EPSILON)


def _train(optimizer, is_resource, is_sparse, **arguments):
    """Returns the variable and its slots m and v, [4, 2] each, after each of STEPS."""
    values = []
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("x", initializer=INITIAL, use_resource=is_resource)
        rows = tf.placeholder(tf.int32, [None])
        picked = tf.gather(variable, rows) if is_sparse else tf.matmul(tf.one_hot(rows, 4), variable)
        train_op = optimizer.minimize(tf.reduce_sum((picked + 1) ** 2), var_list=[variable], **arguments)
        slots = [optimizer.get_slot(variable, name) for name in ("m", "v") if name in optimizer.get_slot_names()]
        session.run(tf.global_variables_initializer())
        for step in STEPS:
            session.run(train_op, {rows: step})
            values.append(session.run([variable, *slots]))
    return values


@pytest.mark.parametrize("is_resource", [True, False])
def test_lazy_adam_updates_the_rows_with_a_gradient_only(is_resource):
    """They, and their moments, as Adam does; the other rows and their moments stay, which Adam itself would move."""
    values, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    for step, (rows, trained) in enumerate(zip(STEPS, _train(
            optimizers.LazyAdamOptimizer(RATE), is_resource, is_sparse=True)), start=1):
        touched = np.unique(rows)
        _adam_step(values, m, v, _gradient(values, rows), step, touched)
        np.testing.assert_allclose(trained, [values, m, v], **TOLERANCE)
    adam = _train(tf.train.AdamOptimizer(RATE), is_resource, is_sparse=True)[-1][0]
    assert np.abs(adam - values).max() > 0.01


@pytest.mark.parametrize("is_resource", [True, False])
def test_lazy_adam_is_adam_for_dense_gradients(is_resource):
    """Every row has a gradient then, of zero for some."""
    lazy, adam = (_train(optimizer(RATE), is_resource, is_sparse=False)
                  for optimizer in (optimizers.LazyAdamOptimizer, tf.train.AdamOptimizer))
    np.testing.assert_array_equal(lazy[-1], adam[-1])


@pytest.mark.parametrize("is_resource", [True, False])
def test_nadam_looks_ahead(is_resource):
    """Adam, whose first moment is taken one gradient further."""
    values, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    for step, (rows, trained) in enumerate(zip(STEPS, _train(
            optimizers.NadamOptimizer(RATE), is_resource, is_sparse=False)), start=1):
        _adam_step(values, m, v, _gradient(values, rows), step, is_nesterov=True)
        np.testing.assert_allclose(trained, [values, m, v], **TOLERANCE)


@pytest.mark.parametrize("is_resource", [True, False])
def test_nadam_looks_ahead_in_rows(is_resource):
    """Those with a gradient change; the moments of all rows decay."""
    values, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    for step, (rows, trained) in enumerate(zip(STEPS, _train(
            optimizers.NadamOptimizer(RATE), is_resource, is_sparse=True)), start=1):
        touched, old = np.unique(rows), values.copy()
        _adam_step(values, m, v, _gradient(values, rows), step, is_nesterov=True)
        others = np.setdiff1d(np.arange(4), touched)
        values[others] = old[others]
        np.testing.assert_allclose(trained, [values, m, v], **TOLERANCE)


@pytest.mark.parametrize("is_resource", [True, False])
def test_adam_w_also_takes_a_share_of_the_variable_away(is_resource):
    """The gradient is that of the variable before."""
    values, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    for step, (rows, trained) in enumerate(zip(STEPS, _train(
            optimizers.AdamWOptimizer(0.01, RATE), is_resource, is_sparse=False)), start=1):
        gradient = _gradient(values, rows)
        values *= 1 - 0.01
        _adam_step(values, m, v, gradient, step)
        np.testing.assert_allclose(trained, [values, m, v], **TOLERANCE)


@pytest.mark.parametrize("is_resource", [True, False])
def test_rows_with_a_gradient_decay_alone(is_resource):
    """As in TensorFlow 1, where the others stay as they are: here with an optimizer that leaves them, too."""
    lazy = optimizers.extend_with_decoupled_weight_decay(optimizers.LazyAdamOptimizer)
    values, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    for step, (rows, trained) in enumerate(zip(STEPS, _train(
            lazy(0.01, learning_rate=RATE), is_resource, is_sparse=True)), start=1):
        gradient, touched = _gradient(values, rows), np.unique(rows)
        values[touched] *= 1 - 0.01
        _adam_step(values, m, v, gradient, step, touched)
        np.testing.assert_allclose(trained, [values, m, v], **TOLERANCE)


def test_a_variable_decays_where_it_is():
    """Its values do not go to the worker and back."""
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:1"):
        with tf.device("/job:ps/task:0"):
            variable = tf.get_variable("x", initializer=INITIAL, use_resource=True)
        before = {op.name for op in graph.get_operations()}
        gradients = [(tf.ones([4, 2]), variable)]
        optimizers.AdamWOptimizer(0.01, RATE).apply_gradients(gradients)
        muls = [op for op in graph.get_operations() if op.name not in before and op.type == "Mul"
                and op.outputs[0].shape == (4, 2)]
        assert [op.device for op in muls] == ["/job:ps/task:0"]


def test_momentum_w_decays_the_listed_variables_only():
    """decay_var_list says which; the others are updated by momentum alone."""
    plain = _train(tf.train.MomentumOptimizer(RATE, 0.9), True, is_sparse=False)[-1][0]
    none = _train(optimizers.MomentumWOptimizer(0.01, RATE, 0.9), True, is_sparse=False, decay_var_list=[])[-1][0]
    every = _train(optimizers.MomentumWOptimizer(0.01, RATE, 0.9), True, is_sparse=False)[-1][0]
    np.testing.assert_array_equal(plain, none)
    assert not np.allclose(plain, every)


class Steps(tf.train.GradientDescentOptimizer):
    """Makes an optimizer of a global step, which it raises."""

    def __init__(self, kind):
        super().__init__(RATE)
        self._kind, self._made = kind, None

    def minimize(self, loss, **kwargs):
        """Adds the global step."""
        step = tf.train.get_or_create_global_step()
        self._made = self._kind(step, RATE)
        return self._made.minimize(loss, step, **kwargs)

    def get_slot_names(self):
        """As the other one."""
        return self._made.get_slot_names()

    def get_slot(self, var, name):
        """As the other one."""
        return self._made.get_slot(var, name)


@pytest.mark.parametrize("is_resource", [True, False])
@pytest.mark.parametrize("kind", [optimizers.AdamGSOptimizer, optimizers.LazyAdamGSOptimizer])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_adam_by_the_global_step(kind, is_resource, is_sparse):
    """It is Adam, and the lazy one lazy Adam, as long as each step of the training is a step of it."""
    other = optimizers.LazyAdamOptimizer if kind is optimizers.LazyAdamGSOptimizer else tf.train.AdamOptimizer
    for trained, expected in zip(_train(Steps(kind), is_resource, is_sparse),
                                 _train(other(RATE), is_resource, is_sparse)):
        np.testing.assert_allclose(trained, expected, **TOLERANCE)


@pytest.mark.parametrize("kind", [optimizers.AdamGSOptimizer, optimizers.LazyAdamGSOptimizer])
def test_adam_by_the_global_step_has_no_step_of_its_own(kind):
    """Without a global step every step is the first one; its slots have the names that Adam's have."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=1.0)
        train_op = kind(learning_rate=RATE).minimize(2 * x)
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        assert sorted(each.op.name for each in tf.global_variables()) == ["x", "x/Adam", "x/Adam_1"]
        session.run(train_op)
        m, v = 2 * (1 - BETA1 ** 2), 4 * (1 - BETA2 ** 2)
        second = RATE * np.sqrt(1 - BETA2) / (1 - BETA1) * m / np.sqrt(v)
        assert session.run(x) == pytest.approx(1 - RATE - second, rel=1e-4)


@pytest.mark.parametrize("is_resource", [True, False])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_reg_adagrad_leaves_its_accumulators_as_they_are(is_resource, is_sparse):
    """In the updates that are made inside `avoid_updating_slots`, which use them."""
    x, accumulator = INITIAL.copy(), np.full_like(INITIAL, 0.1)
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("x", initializer=INITIAL, use_resource=is_resource)
        picked = tf.gather(variable, [0, 2, 2]) if is_sparse else tf.matmul(tf.one_hot([0, 2, 2], 4), variable)
        optimizer = optimizers.RegAdagradOptimizer(RATE)
        loss = tf.reduce_sum((picked + 1) ** 2)
        with optimizer.avoid_updating_slots():
            regularize = optimizer.minimize(loss)
        train_op, slot = optimizer.minimize(loss), optimizer.get_slot(variable, "accumulator")
        assert slot.op.name == "x/RegAdagrad"
        session.run(tf.global_variables_initializer())
        for updates in (False, True, True, False):
            session.run(train_op if updates else regularize)
            gradient = _gradient(x, [0, 2, 2])
            accumulator += updates * gradient ** 2
            x -= RATE * gradient / np.sqrt(accumulator)
            np.testing.assert_allclose(session.run([variable, slot]), [x, accumulator], rtol=1e-5)
