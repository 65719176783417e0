"""Names of `horovod.tensorflow` in a script that runs alone."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.horovod import module as hvd
from ps_train.parts.legacy.horovod import ranks
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
