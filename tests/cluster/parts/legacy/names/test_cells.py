"""Cells of tf.contrib.rnn, beside numpy and beside TensorFlow's own LSTM and GRU."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tf_keras")

from ps_train.parts.legacy.names import cells, rnn
from tests.tensorflow_mode import tf

X = np.array([[1.0, -2.0, 0.5], [0.3, 0.1, -0.7]], np.float32)
SEQUENCE = np.random.default_rng(1).normal(size=(4, 2, 3)).astype(np.float32)  # [time, batch, size]
_WEIGHTS = tf.random_normal_initializer(seed=3)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run(build):
    """Returns what a function builds, and name -> value of the variables; they begin with random numbers."""
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("net", initializer=_WEIGHTS):
        tensors = build()
        session.run(tf.global_variables_initializer())
        variables = {v.op.name: v for v in tf.global_variables()}
        return session.run([tensors, variables])


def step_of(cell, inputs=X):
    """Returns two steps' last output and state."""
    state = cell.zero_state(2, tf.float32)
    for _ in range(2):
        output, state = cell(inputs, state)
    return output, state


@pytest.mark.parametrize("is_normed", [True, False])
def test_a_layer_normalised_lstm(is_normed):
    """Each gate and the state have mean and deviation 1 of `beta` and `gamma`."""
    (output, (c, h)), variables = run(lambda: step_of(cells.LayerNormBasicLSTMCell(
        4, layer_norm=is_normed, norm_gain=0.5, norm_shift=0.2)))
    scope = "net/layer_norm_basic_lstm_cell/"

    def normalised(values, name):
        if not is_normed:
            return values
        deviation = np.sqrt(values.var(1, keepdims=True) + 1e-12)
        return (values - values.mean(1, keepdims=True)) / deviation * variables[f"{scope}{name}/gamma"] + variables[
            f"{scope}{name}/beta"]
    old_c = old_h = np.zeros((2, 4), np.float32)
    for _ in range(2):
        gates = np.concatenate([X, old_h], 1) @ variables[scope + "kernel"]
        gates = gates if is_normed else gates + variables[scope + "bias"]
        i, j, f, o = (normalised(gate, name) for gate, name in zip(
            np.split(gates, 4, 1), ("input", "transform", "forget", "output")))
        old_c = normalised(old_c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j), "state")
        old_h = np.tanh(old_c) * sigmoid(o)
    np.testing.assert_allclose([output, c, h], [old_h, old_c, old_h], rtol=1e-4, atol=1e-5)
    assert (scope + "bias" in variables) is not is_normed
    assert is_normed or variables[scope + "bias"].any()  # by the initializer of the scope
    if is_normed:
        assert variables[scope + "state/gamma"].tolist() == [0.5] * 4


def test_dropout_in_a_layer_normalised_lstm_leaves_the_state():
    """With nothing kept, the first state has nothing new."""
    (_, (c, _)), _ = run(lambda: step_of(cells.LayerNormBasicLSTMCell(
        4, layer_norm=False, dropout_keep_prob=tf.constant(1e-9))))
    assert not c.any()


@pytest.mark.parametrize("projected", [None, 3])
def test_a_nas_cell(projected):
    """The formula of the paper, with and without a projection and a bias."""
    (output, (c, m)), variables = run(lambda: step_of(cells.NASCell(4, projected, use_bias=bool(projected))))
    variables = {name.rpartition("/")[2]: value for name, value in variables.items()}
    old_c, old_m = np.zeros((2, 4)), np.zeros((2, projected or 4))
    for _ in range(2):
        x = np.split(X @ variables["kernel"], 8, 1)
        y = np.split(old_m @ variables["recurrent_kernel"] + variables.get("bias", 0), 8, 1)
        a = [left + right for left, right in zip(x, y)]
        inner = np.tanh(np.tanh(sigmoid(a[0]) * np.maximum(a[1], 0)) + old_c)
        old_c = inner * np.tanh(sigmoid(a[2]) + np.maximum(x[3] * y[3], 0))
        outer = np.tanh(np.tanh(np.tanh(a[4]) * sigmoid(a[5])) + sigmoid(np.tanh(a[6]) + sigmoid(a[7])))
        old_m = np.tanh(old_c * outer)
        if projected:
            old_m = old_m @ variables["projection_weights"]
    np.testing.assert_allclose(c, old_c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(m, old_m, rtol=1e-4, atol=1e-5)
    assert (output == m).all()


def test_a_convolutional_lstm_of_one_place_is_an_lstm():
    """A kernel of one place over rows of one place; and the shapes of the others."""
    (output, (c, _)), variables = run(lambda: step_of(
        cells.Conv1DLSTMCell(input_shape=[1, 3], output_channels=4, kernel_shape=[1]), X[:, None, :]))
    variables = {name.rpartition("/")[2]: value for name, value in variables.items()}
    old_c = old_h = np.zeros((2, 4))
    for _ in range(2):
        gates = np.concatenate([X, old_h], 1) @ variables["kernel"][0] + variables["biases"]
        i, j, f, o = np.split(gates, 4, 1)
        old_c = old_c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        old_h = np.tanh(old_c) * sigmoid(o)
    np.testing.assert_allclose(output[:, 0], old_h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c[:, 0], old_c, rtol=1e-4, atol=1e-5)
    with tf.Graph().as_default():
        cell = cells.Conv2DLSTMCell(input_shape=[5, 6, 2], output_channels=3, kernel_shape=[3, 3])
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.zeros([2, 4, 5, 6, 2]), dtype=tf.float32)
        assert outputs.shape.as_list() == [2, 4, 5, 6, 3]
        with pytest.raises(ValueError, match="Invalid input_shape"):
            cells.Conv3DLSTMCell(input_shape=[5, 6, 2], output_channels=3, kernel_shape=[3, 3])


@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_a_fused_lstm_is_an_lstm_over_the_sequence(lengths):
    """By whole sequence, by adaptor, and backwards; the variables are those of the scope around."""
    def build():
        fused = cells.LSTMBlockFusedCell(5)(tf.constant(SEQUENCE), dtype=tf.float32, sequence_length=lengths)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            cell = tf.nn.rnn_cell.LSTMCell(5, name="lstm_fused_cell", reuse=True)
            plain = tf.nn.dynamic_rnn(cell, tf.constant(SEQUENCE), lengths, dtype=tf.float32, time_major=True,
                                      scope=tf.get_variable_scope())
        with tf.variable_scope("adapted"):
            adapted = cells.FusedRNNCellAdaptor(tf.nn.rnn_cell.LSTMCell(5))
            forward = adapted(tf.unstack(SEQUENCE), dtype=tf.float32)[0][-1]
            backward = cells.TimeReversedFusedRNN(adapted)(tf.constant(SEQUENCE[::-1]), dtype=tf.float32)[0][0]
        return fused, plain, forward, backward
    (fused, plain, forward, backward), variables = run(build)
    for ours, tensorflows in zip(tf.nest.flatten(fused), tf.nest.flatten(plain)):
        np.testing.assert_allclose(ours, tensorflows, rtol=1e-5)
    np.testing.assert_allclose(forward, backward, rtol=1e-5)
    assert {"net/lstm_fused_cell/kernel", "net/lstm_fused_cell/bias"} <= set(variables)


def test_a_second_fused_lstm_has_variables_of_its_own_and_one_that_is_called_again_has_not():
    """Issue: the two directions of a tagger had the same names, which was refused."""
    def build():
        forward, backward = cells.LSTMBlockFusedCell(5), cells.LSTMBlockFusedCell(5)
        outputs = [cells.TimeReversedFusedRNN(backward)(tf.constant(SEQUENCE), dtype=tf.float32)[0]]
        outputs += [forward(tf.constant(SEQUENCE), dtype=tf.float32)[0] for _ in range(2)]
        with tf.variable_scope("other"):
            cells.LSTMBlockFusedCell(5)(tf.constant(SEQUENCE), dtype=tf.float32)
        return outputs
    (backward, first, second), variables = run(build)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(backward, first)
    assert {name for name in variables if name.endswith("kernel")} == {
        f"net/{name}/kernel" for name in ("lstm_fused_cell", "lstm_fused_cell_1", "other/lstm_fused_cell")}


@pytest.mark.parametrize("clip", [None, 0, -1, 0.05])
def test_an_lstm_in_one_block_is_clipped_by_a_number_above_0(clip):
    """-1 was the default, for none; the class is one that scripts ask `isinstance` for."""
    (output, (c, _)), _ = run(lambda: step_of(cells.LSTMBlockCell(4, cell_clip=clip)))
    (plain, (plain_c, _)), _ = run(lambda: step_of(tf.nn.rnn_cell.LSTMCell(4, name="lstm_cell")))
    if clip == 0.05:
        assert np.abs(c).max() == np.float32(0.05) < np.abs(plain_c).max()
    else:
        np.testing.assert_array_equal(c, plain_c)
        np.testing.assert_array_equal(output, plain)
    with tf.Graph().as_default():
        assert isinstance(cells.LSTMBlockCell(4), cells.LSTMBlockCell)
        assert cells.LSTMBlockFusedCell(4, cell_clip=clip)._cell._cell_clip == (0.05 if clip == 0.05 else None)


def test_sequences_are_turned_round_by_their_lengths():
    """What is behind the end stays there; lists are turned as a whole, as in TensorFlow 1."""
    with tf.Graph().as_default(), tf.Session() as session:
        turned = session.run(cells._reversed(tf.constant(SEQUENCE), [4, 2]))
    assert (turned[:, 0] == SEQUENCE[::-1, 0]).all() and (turned[:2, 1] == SEQUENCE[1::-1, 1]).all()
    assert cells._reversed([1, 2, 3], None) == cells._reversed([1, 2, 3], [4, 2]) == [3, 2, 1]


@pytest.mark.parametrize(("cell_class", "names"), [
    (cells.GRUBlockCell, ("w_ru", "b_ru", "w_c", "b_c")),
    (cells.GRUBlockCellV2, ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias"))])
def test_a_gru_in_one_block(cell_class, names):
    """The formula of the paper; each version has names of its own for the variables."""
    (output, _), variables = run(lambda: step_of(cell_class(4)))
    assert set(variables) == {f"net/gru_cell/{name}" for name in names}
    w_ru, b_ru, w_c, b_c = (variables[f"net/gru_cell/{name}"] for name in names)
    assert (b_ru == 1).all() and (b_c == 0).all()
    h = np.zeros((2, 4))
    for _ in range(2):
        r, u = np.split(sigmoid(np.concatenate([X, h], 1) @ w_ru + b_ru), 2, 1)
        h = (1 - u) * np.tanh(np.concatenate([X, r * h], 1) @ w_c + b_c) + u * h
    np.testing.assert_allclose(output, h, rtol=1e-4, atol=1e-5)


def test_a_gru_in_one_block_is_made_by_either_name_of_its_size():
    """`cell_size` until 1.3."""
    with tf.Graph().as_default():
        assert cells.GRUBlockCell(cell_size=3).state_size == cells.GRUBlockCellV2(3).output_size == 3


def test_a_fused_lstm_begins_with_a_pair():
    """c and h, as a plain tuple too."""
    def build():
        cell = cells.LSTMBlockFusedCell(3)
        state = tf.ones([2, 3]), 2 * tf.ones([2, 3])
        first = cell(tf.constant(SEQUENCE), state)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            return first, cell(tf.constant(SEQUENCE), tf.nn.rnn_cell.LSTMStateTuple(*state))
    (plain, named), _ = run(build)
    for ours, others in zip(tf.nest.flatten(plain), tf.nest.flatten(named)):
        np.testing.assert_allclose(ours, others)


@pytest.mark.parametrize(("inputs", "size"), [
    (X, 3), ((X, X), None), ([X], None), (np.float32(1), None), ("tensor", 5), ("unknown", None)])
def test_the_size_of_the_inputs_of_a_cell(inputs, size):
    """Of a tensor or an array; several have none."""
    with tf.Graph().as_default():
        tensors = {"tensor": tf.zeros([2, 5]), "unknown": tf.placeholder(tf.float32)}
        assert rnn._size_of(tensors[inputs] if isinstance(inputs, str) else inputs) == size


def test_cells_over_a_sequence_are_of_the_classes_that_code_asks_for():
    """Toolkits find the cells of contrib.rnn by them."""
    assert issubclass(cells.LSTMBlockFusedCell, cells.LSTMBlockWrapper)
    for kind in (cells.LSTMBlockWrapper, cells.FusedRNNCellAdaptor, cells.TimeReversedFusedRNN):
        assert issubclass(kind, cells.FusedRNNCell)
