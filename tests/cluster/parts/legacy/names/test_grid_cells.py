"""Grid LSTMs of tf.contrib.rnn, against numpy.

With the same variables, TensorFlow 1.15.5 had the same outputs and states, and the same names.
"""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names.grid_cells import BidirectionalGridLSTMCell, GridLSTMCell
from tests.tensorflow_mode import tf

UNITS, WIDTH, SKIP, CLIP = 2, 3, 2, 0.4
INPUTS = np.cos(np.arange(3 * 2 * 7)).reshape(3, 2, 7).astype(np.float32)  # [batch, time, size]: 3 windows


def run(cell, **values):
    """Returns the last output and state of `tf.nn.static_rnn`, and name -> value of the variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        outputs, state = tf.nn.static_rnn(cell, tf.unstack(INPUTS, axis=1), dtype=tf.float32)
        variables = tf.trainable_variables()
        for number, each in enumerate(variables):
            size = each.shape.num_elements()
            values[each.op.name] = (np.sin(np.arange(size) + number) / 2).reshape(each.shape.as_list())
            session.run(each.assign(values[each.op.name]))
        output, state = session.run([outputs[-1], state])
    return output, state, values


def sigmoid(x):
    """Returns 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


class Oracle:
    """A direction of a grid LSTM by numpy, with the variables below a scope."""

    clip = CLIP

    def __init__(self, values, scope, has_peepholes, is_shared, is_coupled):
        self._values, self._scope, self._is_coupled, self._has_peepholes = values, scope, is_coupled, has_peepholes
        self._kinds = [("f", "freq")] * 2 if is_shared else [("f", "freq"), ("t", "time")]

    def _of(self, name):
        return self._values[f"{self._scope}/{name}"]

    def _kernel(self, name):
        """Returns a matrix whose parts are variables."""
        parts = [key for key in self._values if key.startswith(f"{self._scope}/{name}_")]
        return np.concatenate([self._values[key] for key in sorted(parts)])

    def _seen(self, gate, kind, c_freq, c_time):
        if not self._has_peepholes:
            return 0
        return self._of(f"W_{gate}_diag_{kind}f_0") * c_freq + self._of(f"W_{gate}_diag_{kind}t_0") * c_time

    def step(self, windows, states, block=0):
        """Returns the outputs of a time, and changes states [(c, m)] in place."""
        beside, outputs = [np.zeros((len(windows[0]), UNITS))] * 2, []
        for number, window in enumerate(windows):
            old, cells, gates = (beside[0], states[number][0]), [], []
            joined = np.concatenate([window, states[number][1], beside[1]], 1)
            for (letter, kind), c in zip(self._kinds, old):
                parts = np.split(joined @ self._kernel(f"W_{letter}_{block}") + self._of(f"B_{letter}_{block}"),
                                 3 if self._is_coupled else 4, 1)
                i = sigmoid(parts[0] + self._seen("I", kind, *old))
                f = 1 - i if self._is_coupled else sigmoid(parts[2] + 1 + self._seen("F", kind, *old))
                cells.append(np.clip(f * c + i * np.tanh(parts[1]), -self.clip, self.clip))
                gates.append(parts[-1])
            m_freq, m_time = (sigmoid(o + self._seen("O", kind, *cells)) * np.tanh(c)
                              for o, (_, kind), c in zip(gates, self._kinds, cells))
            beside, states[number] = [cells[0], m_freq], (cells[1], m_time)
            outputs += [m_time, m_freq]
        return outputs


def windows_of(inputs, offset=0):
    """Returns the three windows of inputs [batch, size] that are moved by an offset."""
    moved = np.pad(inputs, [(0, 0), (max(-offset, 0), max(offset, 0))])
    return [moved[:, start:start + WIDTH] for start in range(max(offset, 0), max(offset, 0) + 3 * SKIP, SKIP)]


ARGUMENTS = {"cell_clip": CLIP, "feature_size": WIDTH, "frequency_skip": SKIP, "num_frequency_blocks": [3]}
KINDS = [(False, False, False), (True, False, False), (True, True, False), (True, False, True)]


@pytest.mark.parametrize("has_peepholes, is_shared, is_coupled", KINDS)
def test_a_grid_lstm(has_peepholes, is_shared, is_coupled):
    """It runs over time, and in each time over the windows."""
    output, state, values = run(GridLSTMCell(
        UNITS, use_peepholes=has_peepholes, share_time_frequency_weights=is_shared,
        couple_input_forget_gates=is_coupled, **ARGUMENTS))
    oracle = Oracle(values, "rnn/grid_lstm_cell", has_peepholes, is_shared, is_coupled)
    states = [(np.zeros((3, UNITS)), np.zeros((3, UNITS)))] * 3
    for time in range(2):
        expected = oracle.step(windows_of(INPUTS[:, time]), states)
    np.testing.assert_allclose(output, np.concatenate(expected, 1), rtol=1e-4, atol=1e-6)
    assert state._fields[:3] == ("state_f00_b00_c", "state_f00_b00_m", "state_f01_b00_c")
    np.testing.assert_allclose(np.stack(state), np.concatenate(states), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_a_bidirectional_grid_lstm(offset):
    """The windows in reverse have weights of their own, and may begin elsewhere."""
    cell = BidirectionalGridLSTMCell(UNITS, backward_slice_offset=offset, **ARGUMENTS)
    output, state, values = run(cell)
    assert cell.output_size == output.shape[1] == 24
    expected, kept = [], []
    for scope in ("fwd", "bwd"):
        oracle = Oracle(values, f"rnn/bidirectional_grid_lstm_cell/{scope}", False, False, False)
        states = [(np.zeros((3, UNITS)), np.zeros((3, UNITS)))] * 3
        for time in range(2):
            windows = windows_of(INPUTS[:, time], offset if scope == "bwd" else 0)
            outputs = oracle.step(windows[::-1] if scope == "bwd" else windows, states)
        expected += outputs
        kept += states
    np.testing.assert_allclose(output, np.concatenate(expected, 1), rtol=1e-4, atol=1e-6)
    assert state._fields[6] == "bwd_state_f00_b00_c"
    np.testing.assert_allclose(np.stack(state), np.concatenate(kept), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("is_tuple", [True, False])
def test_blocks_have_weights_of_their_own(is_tuple):
    """And parts of their kernels; all blocks read the begin of a state that is one tensor, as in TensorFlow 1."""
    cell = GridLSTMCell(UNITS, feature_size=2, frequency_skip=1, num_frequency_blocks=[2, 3],
                        start_freqindex_list=[0, 3], end_freqindex_list=[3, 7], num_unit_shards=2,
                        state_is_tuple=is_tuple)
    output, state, values = run(cell)
    assert output.shape == (3, 20) and (is_tuple or cell.state_size == 20)
    assert [name.removeprefix("rnn/grid_lstm_cell/") for name in values] == [
        f"{name}_{block}{part}" for block in (0, 1) for name, parts in (
            ("W_f", ("_0", "_1")), ("B_f", ("",)), ("W_t", ("_0", "_1")), ("B_t", ("",))) for part in parts]
    oracle, states = Oracle(values, "rnn/grid_lstm_cell", False, False, False), [(np.zeros((3, UNITS)),) * 2] * 5
    oracle.clip = np.inf
    for time in range(2):
        before, states, outputs = states, [], []
        for block, starts in enumerate([(0, 1), (3, 4, 5)]):
            own = before[len(states):][:len(starts)] if is_tuple else before[:len(starts)]
            outputs += oracle.step([INPUTS[:, time, start:start + 2] for start in starts], own, block)
            states += own
    np.testing.assert_allclose(output, np.concatenate(outputs, 1), rtol=1e-4, atol=1e-6)
    found = np.concatenate(state, 1) if is_tuple else state
    np.testing.assert_allclose(found, np.concatenate([np.concatenate(pair, 1) for pair in states], 1), rtol=1e-4,
                               atol=1e-6)


@pytest.mark.parametrize("arguments, message", [
    ({}, "needs num_frequency_blocks"),
    ({"num_frequency_blocks": [2]}, r"block 0 of num_frequency_blocks=\[2\] has room for 3 windows"),
    ({"num_frequency_blocks": [2, 1]}, "2 blocks, start_freqindex_list 1")])
def test_windows_that_do_not_fit_are_refused(arguments, message):
    """With what fits."""
    with pytest.raises(ValueError, match=message):
        run(GridLSTMCell(UNITS, feature_size=WIDTH, frequency_skip=SKIP, **arguments))
