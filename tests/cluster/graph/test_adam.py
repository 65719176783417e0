"""Row-sparse Adam against numpy, and with several sessions at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train.graph.adam import RowSparseAdam, make_row_sparse
from tests.tensorflow_mode import tf

RATE, BETA1, BETA2, EPSILON = 0.1, 0.9, 0.999, 1e-8


def reference(values, batches):
    """Returns the table after updates by (indices, gradients), as LazyAdamOptimizer defines them."""
    values, mean, square = values.astype(np.float64), np.zeros(values.shape), np.zeros(values.shape)
    for number, (indices, gradients) in enumerate(batches, 1):
        for row in set(indices):
            gradient = sum(one for index, one in zip(indices, gradients) if index == row)
            mean[row] = BETA1 * mean[row] + (1 - BETA1) * gradient
            square[row] = BETA2 * square[row] + (1 - BETA2) * gradient ** 2
            rate = RATE * np.sqrt(1 - BETA2 ** number) / (1 - BETA1 ** number)
            values[row] -= rate * mean[row] / (np.sqrt(square[row]) + EPSILON)
    return values


@pytest.mark.parametrize("make", [
    lambda: RowSparseAdam(RATE),
    lambda: make_row_sparse(own := tf.train.AdamOptimizer(RATE)) and own,
], ids=["ps_train's", "the user's"])
def test_it_updates_the_rows_with_a_gradient_and_no_others(make):
    """An index that is twice in a batch counts with the sum of its gradients."""
    random = np.random.default_rng(0)
    start = random.normal(size=(7, 3)).astype(np.float32)
    batches = [(indices, random.normal(size=(len(indices), 3)).astype(np.float32))
               for indices in ([1, 4, 1], [4], [0, 6, 4], [1, 1, 1])]
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=start)
        indices, gradients = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 3])
        train_op = make().apply_gradients([(tf.IndexedSlices(gradients, indices, [7, 3]), table)])
        session.run(tf.global_variables_initializer())
        for batch in batches:
            session.run(train_op, dict(zip((indices, gradients), batch)))
        trained = session.run(table)
    np.testing.assert_allclose(trained, reference(start, batches), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(trained[[2, 3, 5]], start[[2, 3, 5]])


def test_no_update_of_several_sessions_is_lost_or_half_made(start_servers):
    """The moments after n equal gradients do not depend on who applied them: m = 1 - beta1^n, v = 1 - beta2^n."""
    cluster = start_servers(1, 2)
    num_rows, num_each = 50, 60

    def build():
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("table", [num_rows, 4], initializer=tf.zeros_initializer())
            optimizer = RowSparseAdam(RATE)
            indices = tf.range(num_rows)
            gradient = tf.IndexedSlices(tf.ones([num_rows, 4]), indices, [num_rows, 4])
            train_op = optimizer.apply_gradients([(gradient, table)])
        return train_op, [optimizer.get_slot(table, name) for name in ("m", "v")]

    def train(session, train_op):
        for _ in range(num_each):
            session.run(train_op)

    sessions = []
    for worker in range(2):
        with tf.Graph().as_default():
            train_op, slots = build()
            init_op = tf.global_variables_initializer()
            sessions.append((tf.Session(cluster.target("worker", worker)), train_op))
            if worker == 0:
                sessions[0][0].run(init_op)
                read = slots
    threads = [threading.Thread(target=train, args=one) for one in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    mean, square = sessions[0][0].run(read)
    for session, _ in sessions:
        session.close()
    np.testing.assert_allclose(mean, 1 - BETA1 ** (2 * num_each), rtol=1e-4)
    np.testing.assert_allclose(square, 1 - BETA2 ** (2 * num_each), rtol=1e-3)


def test_other_rules_are_left_as_they_are():
    """So is an Adam with another sparse rule."""
    class Own(tf.train.AdamOptimizer):
        def _resource_apply_sparse(self, grad, var, indices):
            raise NotImplementedError

    for optimizer in (tf.train.AdagradOptimizer(RATE), Own(RATE)):
        assert not make_row_sparse(optimizer)
        assert "_resource_apply_sparse" not in vars(optimizer)
