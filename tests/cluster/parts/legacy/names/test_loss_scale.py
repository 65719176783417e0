"""tf.contrib.mixed_precision: a loss that is multiplied, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import loss_scale
from tests import bare_training
from tests.tensorflow_mode import tf


def test_a_fixed_factor_changes_neither_gradients_nor_updates():
    """The loss is multiplied, and the gradient divided; a factor below 1 is refused."""
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.get_variable("x", initializer=[1.0, 2.0]), tf.get_variable("y", initializer=1.0)
        optimizer = loss_scale.LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.5), loss_scale.FixedLossScaleManager(8.0))
        pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(x * x), var_list=[x, y])
        train_op = optimizer.apply_gradients(pairs)
        session.run(tf.global_variables_initializer())
        assert session.run(pairs[0][0]).tolist() == [2, 4] and pairs[1][0] is None
        session.run(train_op)
        assert session.run(x).tolist() == [0, 0]
    with pytest.raises(ValueError, match="at least 1"):
        loss_scale.FixedLossScaleManager(0.5)


def expected_scales(is_good, scale, good_steps, bad_steps):
    """Returns the factor after each step: times 2 after good ones in a row, times 0.5 after bad ones, 1 at least."""
    good = bad = 0
    for finite in is_good:
        good, bad = (good + 1, bad) if finite else (0, bad + 1)
        if finite and good >= good_steps:
            scale, good, bad = scale * 2, 0, 0
        elif not finite and bad >= bad_steps:
            scale, good, bad = max(1.0, scale * 0.5), 0, 0
        yield scale


def test_a_factor_grows_after_good_steps_and_shrinks_after_bad_ones():
    """A bad step changes no variable, neither dense nor sparse."""
    is_good = [1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0]
    with tf.Graph().as_default(), tf.Session() as session:
        x, table = tf.get_variable("x", initializer=1.0), tf.get_variable("table", initializer=[[1.0], [2.0]])
        manager = loss_scale.ExponentialUpdateLossScaleManager(2.0, 2, 2, 2, 0.5)
        optimizer = loss_scale.LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
        factor = tf.placeholder(tf.float32, [])
        step = tf.train.create_global_step()
        loss = factor * (x + tf.reduce_sum(tf.nn.embedding_lookup(table, [1])))
        train_op = optimizer.minimize(loss, step, var_list=[x, table])
        session.run(tf.global_variables_initializer())
        scales = []
        for finite in is_good:
            session.run(train_op, {factor: 1.0 if finite else np.inf})
            scales.append(float(session.run(manager.get_loss_scale())))
        assert scales == list(expected_scales(is_good, 2.0, 2, 2))
        np.testing.assert_allclose(session.run(x), 1 - 0.1 * sum(is_good), rtol=1e-5)
        np.testing.assert_allclose(session.run(table), [[1], [2 - 0.1 * sum(is_good)]], rtol=1e-5)
        assert session.run(step) == sum(is_good)


def test_a_scale_that_overflows_at_first_adapts(start_servers, tmp_path):
    """Issue: ps_train ended the training at the first gradient that is not finite."""
    def make_optimizer(_):
        return loss_scale.LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.05), loss_scale.ExponentialUpdateLossScaleManager(1e38, 99, 1, 2, 0.5))

    saved = bare_training.checkpoint_of(start_servers(1, 1), tmp_path, 20, make_model_optimizer=make_optimizer)
    assert saved["global_step"] == 20 and 0 < saved["loss_scale"] < 1e38
    assert np.isfinite(saved["weights"]).all() and saved["weights"].any()
