"""Optimizers that scripts wrote for reference variables, on resource variables; in a child, as TensorFlow changes."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import REPO

DEADLINE_SECS = 200
CHILD = """\
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_training_ops as training_ops
from tensorflow.python.training import slot_creator
from ps_train.parts.legacy.names.reference_code import repair_reference_code

tf.disable_v2_behavior()
tf.enable_resource_variables()
repair_reference_code()
START, RATE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), 0.5


class Momentum(tf.train.Optimizer):  # written for reference variables
    def __init__(self):
        super().__init__(False, "Own")

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "velocity", "Own")

    def _apply_dense(self, grad, var):
        return training_ops.apply_momentum(var, self.get_slot(var, "velocity"), RATE, grad, 0.9).op

    def _apply_sparse(self, grad, var):
        return training_ops.sparse_apply_momentum(
            var, self.get_slot(var, "velocity"), RATE, grad.values, grad.indices, 0.9).op


class Later(Momentum):
    pass


class Adam(tf.train.AdamOptimizer):  # overrides what TensorFlow has for reference variables only
    def _apply_dense(self, grad, var):
        return tf.assign_sub(var, RATE * grad)


def trained(optimizer, loss_of, steps=2, use_resource=True):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=START, use_resource=use_resource)
        train_op = optimizer.minimize(loss_of(x))
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        return session.run(x)


def dense(x):
    return tf.reduce_sum(2 * x)


def sparse(x):  # row 1 twice
    return tf.reduce_sum(2 * tf.nn.embedding_lookup(x, [1, 1]))


for kind in (Momentum, Later):
    for is_resource in (True, False):
        # velocities 2 and 3.8: 0.5 * 5.8 = 2.9; of a row that is looked up twice, twice that
        np.testing.assert_allclose(trained(kind(), dense, use_resource=is_resource), START - 2.9, rtol=1e-5)
        np.testing.assert_allclose(trained(kind(), sparse, use_resource=is_resource), START - [[0.0], [5.8]], rtol=1e-5)
np.testing.assert_allclose(trained(Adam(), dense), START - 2.0)

with tf.Graph().as_default(), tf.Session() as session:  # A3C code: no tf.train.Optimizer
    x = tf.Variable(START)
    rms = slot_creator.create_slot(x, tf.ones_like(START), "rms")
    momentum = slot_creator.create_zeros_slot(x, "momentum")
    gradient, = tf.gradients(tf.reduce_sum(x * x), [x._ref()], gate_gradients=False)
    update = training_ops.apply_rms_prop(x, rms, momentum, 0.1, 0.99, 0.0, 0.1, gradient, use_locking=False).op
    session.run(tf.global_variables_initializer())
    session.run(tf.group(update))
    square = 0.99 + 0.01 * (2 * START) ** 2
    np.testing.assert_allclose(session.run(x), START - 0.1 * 2 * START / np.sqrt(square + 0.1), rtol=1e-5)
    np.testing.assert_allclose(session.run(rms), square, rtol=1e-5)
print("all fit")
"""


def test_optimizers_for_reference_variables_update_resource_variables():
    """Own classes and their subclasses, dense and sparse; overridden ones of TensorFlow; operations and `_ref`."""
    ended = subprocess.run([sys.executable, "-c", CHILD], cwd=REPO, capture_output=True, text=True,
                           timeout=DEADLINE_SECS)
    assert ended.stdout.endswith("all fit\n"), ended.stdout + ended.stderr
