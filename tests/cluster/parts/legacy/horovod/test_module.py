"""Names of `horovod.tensorflow` in a script that runs alone."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.horovod import graphs, ranks
from ps_train.parts.legacy.horovod import module as hvd
from tests import clusters
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(hvd._State, "ranks", ranks.ALONE)


def test_lists_are_reduced_one_by_one():
    """`grouped_allreduce`, and the function of mpi_ops that makes the sum."""
    with tf.Graph().as_default(), tf.Session() as session:
        reduced = hvd.grouped_allreduce([tf.constant([1.0, 2.0]), tf.constant(3.0)], op=hvd.Sum, name="both")
        np.testing.assert_equal(session.run(reduced), [np.array([1.0, 2.0], np.float32), np.float32(3)])
        assert session.run(hvd._allreduce(tf.constant(4), name="total")) == 4


def test_the_submodules_have_the_same_names():
    """`hvd.mpi_ops._allreduce` without an import of it; other names fail by one line."""
    assert hvd.mpi_ops is hvd.compression is hvd
    tensor, context = hvd.Compression.fp16.compress("tensor")
    assert hvd.Compression.fp16.decompress(tensor, context) == "tensor"
    assert issubclass(hvd.Compression.none, hvd.compression.Compressor)
    with raises("horovod_name_missing"):
        hvd.no_such_name("x")


def test_what_a_session_with_hooks_fetches_is_looked_through():
    """Its keys are a text and the hooks, which have no order; the operations that train are found in any place."""
    with tf.Graph().as_default() as graph:
        state = graphs.GraphState(graph, clusters.GraphCluster(1, 1).view("worker", 0), is_home=False)
        start, other = tf.no_op(), tf.constant(1.0)
        state.add_start(start)
        with tf.control_dependencies([start]):
            train_op = tf.no_op()
        hooks = [tf.train.StopAtStepHook(last_step=1), tf.train.SessionRunHook()]
        for fetches, expected in ((train_op, True), ({"caller": [other, {"x": train_op}], hooks[0]: other}, True),
                                  ({"caller": other, hooks[0]: (other,), hooks[1]: None}, False)):
            assert state.needs_start(fetches) is expected
