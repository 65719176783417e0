"""Decoders of TensorFlow 1.0, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import decoder_functions
from tests.tensorflow_mode import tf

INPUTS = np.sin(np.arange(24, dtype=np.float32)).reshape(2, 4, 3)
STATE = np.array([[0.1, -0.2], [0.3, 0.4]], np.float32)


def expected(inputs, lengths):
    """Returns outputs and last states of a cell whose weights are 0.5, and whose bias is 0."""
    outputs, states = np.zeros((2, max(lengths), 2), np.float32), STATE.copy()
    for row, length in enumerate(lengths):
        for step in range(length):
            outputs[row, step] = states[row] = np.tanh(0.5 * (inputs[row, step].sum() + states[row].sum()))
    return outputs, states


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [2, 4], [3, 2]])
def test_inputs_are_taken_as_they_are(time_major, lengths):
    """Up to each sequence's length, behind which the outputs are 0; the batch need not be known."""
    axes = (1, 0, 2) if time_major else (0, 1, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, None, 3])
        with tf.variable_scope("decoder", initializer=tf.constant_initializer(0.5)):
            outputs, state, context = decoder_functions.dynamic_rnn_decoder(
                tf.nn.rnn_cell.BasicRNNCell(2), decoder_functions.simple_decoder_fn_train(tf.constant(STATE)), inputs,
                lengths, time_major=time_major)
        session.run(tf.global_variables_initializer())
        outputs, state = session.run([outputs, state], {inputs: INPUTS.transpose(axes)})
    known_outputs, known_state = expected(INPUTS, lengths or [4, 4])
    np.testing.assert_allclose(outputs.transpose(axes), known_outputs, atol=1e-6)
    np.testing.assert_allclose(state, known_state, atol=1e-6)
    assert context is None


def test_symbols_are_fed_until_one_ends_the_sequence():
    """The symbol of the greatest logit; at most as many as are allowed, and one."""
    embeddings = np.eye(4, dtype=np.float32)
    # From symbol 1 to 2, 2 to 3, 3 to 0, which ends.
    follows = np.zeros((4, 4), np.float32)
    follows[[1, 2, 3], [2, 3, 0]] = 9
    for limit, steps in ((10, 3), (1, 2)):
        with tf.Graph().as_default(), tf.Session() as session:
            decoder = decoder_functions.simple_decoder_fn_inference(
                lambda output: tf.matmul(output, follows), tf.zeros([2, 4]), tf.constant(embeddings), 1, 0, limit, 4)
            outputs, _, _ = decoder_functions.dynamic_rnn_decoder(_Through(), decoder)
            symbols = session.run(tf.argmax(outputs, 2))
        assert symbols.tolist() == [[2, 3, 0][:steps]] * 2


class _Through(tf.nn.rnn_cell.RNNCell):
    """A cell whose output is its input."""

    state_size = output_size = 4

    def __call__(self, inputs, state, scope=None):
        return inputs, state


def test_a_context_goes_from_step_to_step():
    """It is the third result; here the number of calls."""
    def decoder_fn(time, cell_state, cell_input, cell_output, context_state):
        context = tf.constant(1) if context_state is None else context_state + 1
        return None, tf.zeros([2, 4]) if cell_state is None else cell_state, cell_input, cell_output, context
    with tf.Graph().as_default(), tf.Session() as session:
        _, _, context = decoder_functions.dynamic_rnn_decoder(_Through(), decoder_fn, tf.ones([2, 3, 4]))
        assert session.run(context) == 4
