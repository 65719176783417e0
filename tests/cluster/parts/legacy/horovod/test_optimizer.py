"""What Horovod's optimizer makes of the gradients of all workers."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.horovod import optimizer
from tests.tensorflow_mode import tf


@pytest.mark.parametrize(("op", "factor"), [(optimizer.AVERAGE, 0.5), (optimizer.SUM, 1.0)])
def test_a_sparse_gradient_can_become_dense(op, factor):
    """Optimizers that know of no rows multiply it; what an accumulator gives has -1 for the number of rows."""
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", [4, 2])
        accumulator = tf.SparseConditionalAccumulator(tf.float32, shape=())
        push = accumulator.apply_grad([3, 1], [[2.0, 4.0], [6.0, 8.0]], [4, 2])
        taken = accumulator.take_indexed_slices_grad(1)
        session.run(push)
        gradient = optimizer._Combining(None, op)._combined(taken, table, tf.constant(2.0))
        dense, shape = session.run([1.0 * tf.convert_to_tensor(gradient), taken.dense_shape])
    assert shape[0] == -1
    np.testing.assert_array_equal(dense, np.array([[0, 0], [6, 8], [0, 0], [2, 4]]) * factor)
