"""Further optimizers of tf.contrib.opt, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import more_optimizers
from tests.tensorflow_mode import tf

INITIAL = np.arange(8, dtype=np.float32).reshape(4, 2) / 10 - 0.2
STEPS = ([0, 2, 2], [2, 3, 0], [1, 2, 1])  # the rows that each step looks up
TOLERANCE = {"rtol": 2e-4, "atol": 1e-5}


def gradient_of(values, rows):
    """Returns the gradient of the sum of (value + 0.1)**2 over the rows that are looked up, [4, 2]."""
    gradient = np.zeros_like(values)
    np.add.at(gradient, rows, 2 * (values[rows] + 0.1))
    return gradient


def train(optimizer, is_resource, is_sparse, slots, global_step=None):
    """Returns the variable and its slots after each of STEPS."""
    values = []
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step() if global_step else None
        variable = tf.get_variable("x", initializer=INITIAL, use_resource=is_resource)
        rows = tf.placeholder(tf.int32, [None])
        picked = tf.gather(variable, rows) if is_sparse else tf.matmul(tf.one_hot(rows, 4), variable)
        train_op = optimizer.minimize(tf.reduce_sum((picked + 0.1) ** 2), step, var_list=[variable])
        kept = [optimizer.get_slot(variable, name) for name in slots]
        session.run(tf.global_variables_initializer())
        for picked_rows in STEPS:
            session.run(train_op, {rows: picked_rows})
            values.append(session.run([variable, *kept]))
    return values


both_kinds = pytest.mark.parametrize("is_resource", [True, False])
both_forms = pytest.mark.parametrize("is_sparse", [True, False])


@both_kinds
@both_forms
def test_the_rms_of_optimizer_v2_begins_with_zeros(is_resource, is_sparse):
    """tf.train's begins with ones, so its first steps are smaller."""
    x, rms, momentum = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    trained = train(more_optimizers.RMSPropOptimizer(0.1, momentum=0.5), is_resource, is_sparse, ("rms", "momentum"))
    for rows, values in zip(STEPS, trained):
        g, at = gradient_of(x, rows), np.unique(rows) if is_sparse else slice(None)
        rms[at] = 0.9 * rms[at] + 0.1 * g[at] ** 2
        momentum[at] = 0.5 * momentum[at] + 0.1 * g[at] / np.sqrt(rms[at] + 1e-10)
        x[at] -= momentum[at]
        np.testing.assert_allclose(values, [x, rms, momentum], **TOLERANCE)


@both_kinds
@both_forms
def test_adamax(is_resource, is_sparse):
    """The second moment is the greatest gradient; a sparse gradient changes its rows only."""
    x, m, v = INITIAL.copy(), np.zeros_like(INITIAL), np.zeros_like(INITIAL)
    trained = train(more_optimizers.AdaMaxOptimizer(0.1), is_resource, is_sparse, ("m", "v"))
    for step, (rows, values) in enumerate(zip(STEPS, trained), 1):
        g, at = gradient_of(x, rows), np.unique(rows) if is_sparse else slice(None)
        m[at] = 0.9 * m[at] + 0.1 * g[at]
        v[at] = np.maximum(0.999 * v[at], np.abs(g[at]))
        x[at] -= 0.1 / (1 - 0.9 ** step) * m[at] / (v[at] + 1e-8)
        np.testing.assert_allclose(values, [x, m, v], **TOLERANCE)


@both_kinds
@both_forms
@pytest.mark.parametrize("kind, factor", [
    (more_optimizers.AddSignOptimizer, lambda signs: 1 + signs),
    (more_optimizers.PowerSignOptimizer, np.exp)])
def test_steps_are_longer_where_the_signs_agree(kind, factor, is_resource, is_sparse):
    """Of the gradient and of its moving average, whose influence goes down with the steps."""
    x, m = INITIAL.copy(), np.zeros_like(INITIAL)
    decay = more_optimizers.get_linear_decay_fn(4)
    trained = train(kind(0.1, sign_decay_fn=decay), is_resource, is_sparse, ("m",), global_step=True)
    for step, (rows, values) in enumerate(zip(STEPS, trained)):
        g = gradient_of(x, rows)
        m = 0.9 * m + 0.1 * g
        x = x - 0.1 * factor((1 - step / 4) * np.sign(g) * np.sign(m)) * g
        np.testing.assert_allclose(values, [x, m], **TOLERANCE)


@both_kinds
@pytest.mark.parametrize("is_skipped", [True, False])
def test_lars_has_a_rate_for_each_layer(is_resource, is_skipped):
    """By the norms of weights and gradient, for all variables but those that are skipped."""
    x, velocity = INITIAL.copy(), np.zeros_like(INITIAL)
    trained = train(more_optimizers.LARSOptimizer(2.0, weight_decay=0.1, skip_list=["x"] if is_skipped else None),
                    is_resource, False, ("momentum",))
    for rows, values in zip(STEPS, trained):
        g, ratio = gradient_of(x, rows), 1.0
        if not is_skipped:
            of_weights, of_gradient = np.linalg.norm(x), np.linalg.norm(g)
            ratio, g = 0.001 * of_weights / (of_gradient + 0.1 * of_weights), g + 0.1 * x
        velocity = 0.9 * velocity + 2.0 * ratio * g
        x = x - velocity
        np.testing.assert_allclose(values, [x, velocity], **TOLERANCE)


def test_a_sparse_gradient_of_lars_gets_the_rate_itself():
    """As in TensorFlow 1."""
    values = train(more_optimizers.LARSOptimizer(0.5), True, True, ())[0][0]
    np.testing.assert_allclose(values, INITIAL - 0.5 * gradient_of(INITIAL, STEPS[0]), **TOLERANCE)
    with pytest.raises(ValueError, match="momentum should be positive"):
        more_optimizers.LARSOptimizer(0.5, momentum=-1.0)


def test_moving_averages_are_saved_by_the_names_of_the_variables(tmp_path):
    """The checkpoint has the average as `x`; restored by the same saver, each is where it was."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=[1.0, 2.0])
        optimizer = more_optimizers.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 0.5)
        with pytest.raises(RuntimeError, match="before creating"):
            optimizer.swapping_saver()
        train_op = optimizer.minimize(tf.reduce_sum(x))
        saver = optimizer.swapping_saver()
        session.run(tf.global_variables_initializer())
        session.run(train_op)  # x: 0, 1; averages: (1 + 0) / 2 and (2 + 1) / 2
        path = saver.save(session, str(tmp_path / "model"))
        assert tf.train.load_checkpoint(path).get_tensor("x").tolist() == [0.5, 1.5]
        session.run(x.assign([7.0, 7.0]))
        saver.restore(session, path)
        assert session.run(x).tolist() == [0, 1]
        with pytest.raises(ValueError, match="Variable to swap"):
            optimizer.swapping_saver([x])


@both_forms
def test_variables_are_clipped_after_an_update(is_sparse):
    """Each row to a norm of 0.3; with a sparse gradient the rows that it has, also one that comes twice."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("x", initializer=INITIAL * 10)
        optimizer = more_optimizers.VariableClippingOptimizer(
            tf.train.GradientDescentOptimizer(0.1), {variable: [1]}, 0.3)
        picked = tf.gather(variable, [0, 2, 2]) if is_sparse else variable
        train_op = optimizer.minimize(tf.reduce_sum(picked))
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        values = session.run(variable)
    expected = INITIAL * 10 - 0.1 * (np.array([[1], [0], [2], [0]]) if is_sparse else 1)
    rows = [0, 2] if is_sparse else [0, 1, 2, 3]
    norms = np.linalg.norm(expected[rows], axis=1, keepdims=True)
    expected[rows] *= np.minimum(1, 0.3 / norms)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_a_variable_without_a_gradient_in_a_step_keeps_its_slots():
    """The momentum of the other task does not move it; the norm of all gradients is that of those that are not 0."""
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.get_variable("x", initializer=1.0), tf.get_variable("y", initializer=1.0)
        of_x = tf.placeholder(tf.float32, [])
        optimizer = more_optimizers.MultitaskOptimizerWrapper(tf.train.MomentumOptimizer(0.1, 0.9))
        pairs = optimizer.compute_gradients(of_x * 3 * x + (1 - of_x) * 4 * y)
        clipped, norm = more_optimizers.clip_gradients_by_global_norm(pairs, 1.0)
        train_op = optimizer.apply_gradients(clipped)
        session.run(tf.global_variables_initializer())
        assert session.run([train_op, norm], {of_x: 1.0})[1] == 3
        assert session.run([train_op, norm], {of_x: 0.0})[1] == 4
        np.testing.assert_allclose(session.run([x, y]), [0.9, 0.9], rtol=1e-6)
    with pytest.raises(TypeError, match="tf.train.Optimizer"):
        more_optimizers.MultitaskOptimizerWrapper(object())


def test_decays_of_signs():
    """Linear, along a cosine, and with restarts; 0 after the end."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        decays = [more_optimizers.get_linear_decay_fn(10)(step), more_optimizers.get_cosine_decay_fn(10)(step),
                  more_optimizers.get_cosine_decay_fn(10, 1, zero_after=0.4)(step),
                  more_optimizers.get_restart_decay_fn(10, 2)(step),
                  more_optimizers.get_restart_decay_fn(10, 2, zero_after=1)(step)]
        found = [session.run(decays, {step: value}) for value in (0, 3, 8, 12)]

    def cosine(share):
        return (1 + np.cos(np.pi * share)) / 2
    expected = [[1, 1, 1, 1, 1], [0.7, cosine(0.3), cosine(0.6), cosine(0.6), cosine(0.6)],
                [0.2, cosine(0.8), 0, cosine(0.6), 0], [0, cosine(1), 0, 1, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="global_step is required"):
        more_optimizers.get_linear_decay_fn(10)(None)


def test_an_optimizer_clips_all_gradients_together():
    """The given one stays as it is; a variable without a gradient is left out."""
    with tf.Graph().as_default(), tf.Session() as session:
        x, y, unused = (tf.get_variable(name, [], initializer=tf.zeros_initializer()) for name in ("x", "y", "unused"))
        plain = tf.train.MomentumOptimizer(1.0, 0.5)
        clipping = more_optimizers.clip_gradients_by_norm(plain, 1.0)
        steps = [optimizer.minimize(3 * x + 4 * y, var_list=[x, y, unused]) for optimizer in (clipping, plain)]
        session.run(tf.global_variables_initializer())
        session.run(steps[0])
        np.testing.assert_allclose(session.run([x, y]), [-0.6, -0.8], rtol=1e-6)
        assert clipping.get_slot(x, "momentum") is plain.get_slot(x, "momentum") is not None
        session.run(steps[1])
        np.testing.assert_allclose(session.run([x, y]), [-0.6 - 3.3, -0.8 - 4.4], rtol=1e-6)
