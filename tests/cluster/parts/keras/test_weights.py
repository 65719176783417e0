"""Weights and optimizer variables, whole or cut into parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")

from ps_train.errors import CheckpointError
from ps_train.parts.keras.storage import weights


class Variable:
    """As much of a variable as is needed."""

    def __init__(self, name, value):
        self.name, self.value = f"{name}:0", np.array(value)
        self.shape = _Shape(self.value.shape)

    def numpy(self):
        return self.value

    def assign(self, value):
        assert value.shape == self.value.shape
        self.value = value


class _Shape(tuple):
    def as_list(self):
        return list(self)


def _model(variables, slots):
    return SimpleNamespace(weights=variables, optimizer=SimpleNamespace(variables=slots))


def _cut():
    """A kernel of five rows in two parts, a bias of one; the optimizer has its slot as one sharded variable."""
    parts = [Variable("a/kernel/part_0", np.zeros([3, 2])), Variable("a/kernel/part_1", np.zeros([2, 2]))]
    other = [Variable("b/kernel/part_0", np.zeros([1, 2])), Variable("b/kernel/part_1", np.zeros([1, 2]))]
    slot = SimpleNamespace(variables=[Variable("m/a/kernel/part_0", np.zeros([3, 2])),
                                      Variable("m/a/kernel/part_1", np.zeros([2, 2]))])
    return _model([*parts, Variable("bias", [0.0]), *other], [Variable("iteration", 0), slot])


def _whole(rows=5):
    return _model([Variable("a/kernel", np.arange(2.0 * rows).reshape(rows, 2)), Variable("bias", [7.0]),
                   Variable("b/kernel", [[1.0, 2.0], [3.0, 4.0]])],
                  [Variable("iteration", 9), Variable("m/a/kernel", np.ones([rows, 2]))])


def test_parts_and_wholes_fill_each_other():
    """There and back, the values are the same, row by row."""
    cut, back = _cut(), _whole()
    weights.fill(cut, _whole(), "a checkpoint")
    assert cut.weights[1].value.tolist() == [[6.0, 7.0], [8.0, 9.0]]
    for variable in back.weights:
        variable.value = variable.value * 0
    weights.fill(back, cut, "what is trained")
    for found, expected in zip(back.weights, _whole().weights):
        np.testing.assert_array_equal(found.value, expected.value)
    np.testing.assert_array_equal(back.optimizer.variables[1].value, np.ones([5, 2]))


def test_another_shape_is_told():
    """With the shape of the whole variable."""
    with pytest.raises(CheckpointError, match=r"^checkpoint x is of another model: weights: a/kernel has shape "
                                              r"\[4, 2\] instead of \[5, 2\]"):
        weights.fill(_cut(), _whole(rows=4), "checkpoint x")
