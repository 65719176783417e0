"""Cells of tf.contrib.rnn with one vector as their state, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tf_keras")

from ps_train.parts.legacy.names import gated_cells
from tests.cluster.parts.legacy.names.test_cells import X, run, sigmoid, step_of

relu = np.vectorize(lambda x: max(x, 0.0))


def of(variables, scope):
    """Returns name -> value of the variables in one scope."""
    return {name.removeprefix(f"net/{scope}/"): value for name, value in variables.items()}


def both_steps(step, size=4, inputs=X):
    """Returns the last output and state of two steps of a function (inputs, state) -> (output, state)."""
    state = np.zeros((2, size), np.float32)
    for _ in range(2):
        output, state = step(inputs, state)
    return output, state


def ugrnn(x, h, v):
    gate, new = np.split(np.concatenate([x, h], 1) @ v["kernel"] + v["bias"], 2, 1)
    h = sigmoid(gate + 1) * h + (1 - sigmoid(gate + 1)) * np.tanh(new)
    return h, h


def intersection(x, h, v):
    x = x @ v["in_projection/kernel"] + v["in_projection/bias"]
    gh, new_h, gy, new_y = np.split(np.concatenate([x, h], 1) @ v["kernel"] + v["bias"], 4, 1)
    gh, gy = sigmoid(gh + 1), sigmoid(gy + 1)
    return gy * x + (1 - gy) * relu(new_y), gh * h + (1 - gh) * np.tanh(new_h)


def sru(x, c, v):
    new, f, r, carried = np.split(x @ v["kernel"], 4, 1)
    bias_f, bias_r = np.split(v["bias"], 2)
    f, r = sigmoid(f + bias_f), sigmoid(r + bias_r)
    c = f * c + (1 - f) * new
    return r * np.tanh(c) + (1 - r) * carried, c


def indrnn(x, h, v):
    h = np.tanh(x @ v["kernel_w"] + h * v["kernel_u"] + v["bias"])
    return h, h


def indygru(x, h, v):
    gates = x @ v["gates/kernel_w"] + np.tile(h, 2) * v["gates/kernel_u"] + v["gates/bias"]
    r, u = np.split(sigmoid(gates), 2, 1)
    new = np.tanh(x @ v["candidate/kernel"] + r * h * v["candidate/kernel_u"] + v["candidate/bias"])
    h = u * h + (1 - u) * new
    return h, h


def minimal(x, h, v):
    new = np.tanh(x @ v["kernel"][:3])
    u = sigmoid(np.concatenate([new, h], 1) @ v["kernel"][3:] + v["bias"])
    h = u * h + (1 - u) * new
    return h, h


def chaos_free(x, h, v):
    theta, eta = np.split(sigmoid(h @ v["recurrent_kernel"] + x @ v["kernel"][:, :8] + v["bias"]), 2, 1)
    h = theta * np.tanh(h) + (1 - eta) * np.tanh(x @ v["kernel"][:, 8:])
    return h, h


@pytest.mark.parametrize("make, scope, step", [
    (lambda: gated_cells.UGRNNCell(4), "ugrnn_cell", ugrnn),
    (lambda: gated_cells.IntersectionRNNCell(4, num_in_proj=4), "intersection_rnn_cell", intersection),
    (lambda: gated_cells.SRUCell(4), "sru_cell", sru),
    (lambda: gated_cells.IndRNNCell(4), "ind_rnn_cell", indrnn),
    (lambda: gated_cells.IndyGRUCell(4), "indy_gru_cell", indygru),
    (lambda: gated_cells.MinimalRNNCell(4), "minimal_rnn_cell", minimal),
    (lambda: gated_cells.CFNCell(4), "cfn_cell", chaos_free),
])
def test_a_cell_gives_the_numbers_of_numpy(make, scope, step):
    """After two steps, from the variables with the names that they had."""
    result, variables = run(lambda: step_of(make()))
    expected = both_steps(lambda x, h: step(x, h, of(variables, scope)))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_an_intersection_network_needs_its_size_or_a_projection():
    """Its output is a mixture with its input."""
    with pytest.raises(ValueError, match="num_in_proj"):
        run(lambda: step_of(gated_cells.IntersectionRNNCell(4)))
