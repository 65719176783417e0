"""The fence around the preparation of parameters, on real servers."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from ps_train.coordination import blackboard, sessions
from ps_train.training.opening import Fence, FencedSaver
from tests.tensorflow_mode import tf


def test_a_chief_that_was_replaced_prepares_nothing(start_servers, tmp_path):
    """Neither with first values nor from a checkpoint, on any ps; the later one does."""
    cluster = start_servers(2, 1)
    view = cluster.view("worker", 0)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), view)) as board:
        board.claim(0, 17)
        terms = [board.begin_term(0, 17) and board.term for _ in range(2)]
    with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
        values, tables, key = [], [], tf.constant(7, tf.int64)
        for ps in view.ps:
            with tf.device(ps.device):
                values.append(tf.get_variable(f"value_{ps.index}", [], initializer=tf.ones_initializer()))
                tables.append(tf.lookup.experimental.MutableHashTable(
                    tf.int64, tf.float32, 0.0, name=f"table_{ps.index}"))
        entries = [table.lookup(key) for table in tables]
        with tf.device(view.task.device):
            saver = tf.train.Saver()
        init_op = tf.global_variables_initializer()
        fence = Fence([init_op, tf.get_default_graph().get_operation_by_name(saver.saver_def.restore_op_name)])
        with tf.Session(cluster.target("worker", 0)) as session:
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                session.run(init_op, {fence.term: terms[0]})
            assert sessions.is_lost(refused.value)
            assert not any(session.run([tf.is_variable_initialized(value) for value in values]))
            session.run(init_op, {fence.term: terms[1]})
            session.run([table.insert(key, 1.0) for table in tables])
            path = saver.save(session, str(tmp_path / "model"))
            session.run([[value.assign(2.0) for value in values], [table.insert(key, 2.0) for table in tables]])
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                FencedSaver(saver, {fence.term: terms[0]}).restore(session, path)
            assert sessions.is_lost(refused.value)
            np.testing.assert_array_equal(session.run([*values, *entries]), [2, 2, 2, 2])
            FencedSaver(saver, {fence.term: terms[1]}).restore(session, path)
            np.testing.assert_array_equal(session.run([*values, *entries]), [1, 1, 1, 1])
