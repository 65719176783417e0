"""LSTMs of tf.contrib.rnn, beside numpy and beside TensorFlow's own."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tf_keras")

from ps_train.parts.legacy.names import lstm_cells
from tests.cluster.parts.legacy.names.test_cells import SEQUENCE, X, run, sigmoid, step_of
from tests.cluster.parts.legacy.names.test_gated_cells import of
from tests.tensorflow_mode import tf


def two_steps(step, size=4, width=4):
    """Returns output, c and h of two steps of a function (x, c, h) -> (c, h)."""
    c, h = np.zeros((2, size), np.float32), np.zeros((2, width), np.float32)
    for _ in range(2):
        c, h = step(X, c, h)
    return h, c, h


def flat(result):
    """Returns output, c and h of (output, (c, h))."""
    output, (c, h) = result
    return output, c, h


def normed(values, v, name):
    deviation = np.sqrt(values.var(1, keepdims=True) + 1e-12)
    return (values - values.mean(1, keepdims=True)) / deviation * v[f"{name}/gamma"] + v[f"{name}/beta"]


@pytest.mark.parametrize("is_normed", [False, True])
def test_input_and_forget_gate_are_coupled(is_normed):
    """With peepholes, a projection that is cut, and a kernel in two shards; if normalised, the bias is not added."""
    (output, state), variables = run(lambda: step_of(lstm_cells.CoupledInputForgetGateLSTMCell(
        4, use_peepholes=True, num_proj=3, proj_clip=0.1, num_unit_shards=2, layer_norm=is_normed, norm_gain=0.5)))
    v = of(variables, "coupled_input_forget_gate_lstm_cell")
    kernel = np.concatenate([v["W_0"], v["W_1"]])

    def step(x, c, h):
        gates = np.split(np.concatenate([x, h], 1) @ kernel + (0 if is_normed else v["B"]), 3, 1)
        if is_normed:
            gates = [normed(gate, v, name) for gate, name in zip(gates, ("transform", "forget", "output"))]
        j, f, o = gates
        f = sigmoid(f + 1 + v["W_F_diag"] * c)
        c = f * c + (1 - f) * np.tanh(j)
        c = normed(c, v, "state") if is_normed else c
        h = sigmoid(o + v["W_O_diag"] * c) * np.tanh(c)
        return c, np.clip(h @ v["W_P_0"], -0.1, 0.1)
    np.testing.assert_allclose(output, two_steps(step, width=3)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(state, 1), np.concatenate(two_steps(step, width=3)[1:], 1), rtol=1e-4,
                               atol=1e-5)
    assert v["B"].shape == (12,)


def test_a_state_may_be_one_tensor():
    """c and h beside each other, as before TensorFlow 1.0."""
    def cell(is_tuple):
        return lstm_cells.CoupledInputForgetGateLSTMCell(4, state_is_tuple=is_tuple)
    with tf.Graph().as_default():
        assert cell(False).state_size == 8
    (output, state), _ = run(lambda: step_of(cell(False)))
    (same, parts), _ = run(lambda: step_of(cell(True)))
    np.testing.assert_allclose(output, same, rtol=1e-6)
    np.testing.assert_allclose(state, np.concatenate(parts, 1), rtol=1e-6)


def test_time_and_frequency_lstm():
    """Each window of two features reads the output of the window before."""
    def build():
        cell = lstm_cells.TimeFreqLSTMCell(4, use_peepholes=True, feature_size=2, cell_clip=0.5)
        state = tf.zeros([2, 16])
        for _ in range(2):
            output, state = cell(tf.constant(X), state)
        return output, state
    (output, state), variables = run(build)
    v = of(variables, "time_freq_lstm_cell")
    states = np.zeros((2, 16), np.float32)
    for _ in range(2):
        beside, outputs, new = np.zeros((2, 4)), [], []
        for window in range(2):
            c, h = np.split(states[:, window * 8:window * 8 + 8], 2, 1)
            gates = np.concatenate([X[:, window:window + 2], h, beside], 1) @ v["W_0"] + v["B"]
            i, j, f, o = np.split(gates, 4, 1)
            c = sigmoid(f + 1 + v["W_F_diag"] * c) * c + sigmoid(i + v["W_I_diag"] * c) * np.tanh(j)
            c = np.clip(c, -0.5, 0.5)
            beside = sigmoid(o + v["W_O_diag"] * c) * np.tanh(c)
            outputs.append(beside)
            new += [c, beside]
        states = np.concatenate(new, 1)
    np.testing.assert_allclose(output, np.concatenate(outputs, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, states, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [
    {}, {"use_peepholes": True, "cell_clip": 0.3}, {"num_proj": 3, "proj_clip": 0.2}])
def test_without_normalisation_it_is_tensorflows_lstm(options):
    """With the same numbers, from the same variables: peepholes, projection and bounds."""
    def both():
        states = []
        for kind in (lstm_cells.LayerNormLSTMCell, tf.nn.rnn_cell.LSTMCell):
            with tf.variable_scope(kind.__name__, initializer=tf.constant_initializer(0.3)):
                states.append(step_of(kind(4, **options)))
        return states
    (ours, theirs), _ = run(both)
    np.testing.assert_allclose(flat(ours)[0], flat(theirs)[0], rtol=1e-5)
    np.testing.assert_allclose(flat(ours)[1], flat(theirs)[1], rtol=1e-5)


def test_a_normalised_lstm():
    """Each gate and the state are normalised; the bias is a variable that is not added."""
    result, variables = run(lambda: step_of(lstm_cells.LayerNormLSTMCell(4, layer_norm=True, norm_shift=0.2)))
    v = of(variables, "layer_norm_lstm_cell")

    def step(x, c, h):
        i, j, f, o = (normed(gate, v, name) for gate, name in zip(
            np.split(np.concatenate([x, h], 1) @ v["kernel"], 4, 1), ("input", "transform", "forget", "output")))
        c = normed(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), v, "state")
        return c, sigmoid(o) * np.tanh(c)
    np.testing.assert_allclose(flat(result), two_steps(step), rtol=1e-4, atol=1e-5)
    assert v["bias"].shape == (16,)


def test_an_lstm_with_normalised_weights():
    """Each column of the kernel, for the inputs and for the state, has the length that a variable says."""
    result, variables = run(lambda: step_of(lstm_cells.WeightNormLSTMCell(4)))
    v = of(variables, "wn_lstm_cell/wn_lstm_cell")
    kernel = np.concatenate([part / np.sqrt((part ** 2).sum(0)) * v[f"norm_{index}"]
                             for index, part in enumerate((v["kernel"][:3], v["kernel"][3:]))])

    def step(x, c, h):
        i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + v["bias"], 4, 1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        return c, sigmoid(o) * np.tanh(c)
    np.testing.assert_allclose(flat(result), two_steps(step), rtol=1e-4, atol=1e-5)


def test_groups_of_an_lstm_read_their_share():
    """Two groups of four units and of four inputs."""
    inputs = np.concatenate([X, X[:, :1]], 1)
    (output, (c, h)), variables = run(lambda: step_of(lstm_cells.GLSTMCell(4, number_of_groups=2, num_proj=2), inputs))
    v = of(variables, "glstm_cell")
    old_c, old_h = np.zeros((2, 4)), np.zeros((2, 2))
    for _ in range(2):
        parts = [np.split(np.concatenate([inputs[:, 2 * g:2 * g + 2], old_h[:, g:g + 1]], 1) @ v[f"group{g}/kernel"],
                          4, 1) for g in range(2)]
        i, j, f, o = (np.concatenate(gate, 1) + v[f"bias_{name}"] for gate, name in zip(zip(*parts), "ijfo"))
        old_c = sigmoid(f + 1) * old_c + sigmoid(i) * np.tanh(j)
        old_h = sigmoid(o) * np.tanh(old_c) @ v["projection/kernel"]
    for ours, expected in ((output, old_h), (c, old_c), (h, old_h)):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="divisible"):
        lstm_cells.GLSTMCell(5, number_of_groups=2)


def test_an_lstm_of_independent_units():
    """Each unit of the state has a weight of its own."""
    result, variables = run(lambda: step_of(lstm_cells.IndyLSTMCell(4)))
    v = of(variables, "indy_lstm_cell")

    def step(x, c, h):
        i, j, f, o = np.split(x @ v["kernel_w"] + np.tile(h, 4) * v["kernel_u"] + v["bias"], 4, 1)
        c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        return c, np.tanh(c) * sigmoid(o)
    np.testing.assert_allclose(flat(result), two_steps(step), rtol=1e-4, atol=1e-5)


def test_a_phased_lstm_is_open_for_a_part_of_each_period():
    """At the times 3 and 50, by periods between 1 and 1000 and phases within them; in dynamic_rnn as well."""
    times = np.array([[3.0], [50.0]], np.float32)

    def build():
        cell = lstm_cells.PhasedLSTMCell(4, use_peepholes=True, ratio_on=0.4)
        sequence = (tf.constant(np.stack([times] * 4)), tf.constant(SEQUENCE))
        with tf.variable_scope("over"):
            outputs, _ = tf.nn.dynamic_rnn(lstm_cells.PhasedLSTMCell(4), sequence, time_major=True, dtype=tf.float32)
        return step_of(cell, (tf.constant(times), tf.constant(X))), outputs
    (result, outputs), variables = run(build)
    v = of(variables, "phased_lstm_cell")
    assert ((v["period"] > 1) & (v["period"] < 1000) & (v["phase"] >= 0) & (v["phase"] < v["period"])).all()
    cycle = np.mod(times - v["phase"], v["period"]) / v["period"]
    up = 2 * cycle / v["ratio_on"]
    k = np.where(cycle < 0.2, up, np.where(cycle < 0.4, 2 - up, 0.001 * cycle))

    def product(values, name):
        return np.concatenate(values, 1) @ v[f"{name}/kernel"] + v[f"{name}/bias"]

    def step(x, c, h):
        i, f = np.split(sigmoid(product([x, h, c], "mask_gates")), 2, 1)
        new_c = c * f + i * np.tanh(product([x, h], "new_input"))
        new_h = np.tanh(new_c) * sigmoid(product([x, h, new_c], "output_gate"))
        return k * new_c + (1 - k) * c, k * new_h + (1 - k) * h
    np.testing.assert_allclose(flat(result), two_steps(step), rtol=1e-3, atol=1e-4)
    assert outputs.shape == (4, 2, 4)
