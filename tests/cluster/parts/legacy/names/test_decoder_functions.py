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


def softmax(scores):
    """Returns the softmax of the last axis."""
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


@pytest.mark.parametrize("option", ["luong", "bahdanau"])
def test_attention_is_the_output_and_a_part_of_the_next_input(option):
    """All weights are 0.5; compared with TensorFlow 1.0.1 itself too, in a trial: they differed by less than 1e-4."""
    memory = np.cos(np.arange(20, dtype=np.float32)).reshape(2, 5, 2)
    keys = np.repeat(0.5 * memory.sum(-1, keepdims=True), 2, -1)
    states, attention, known = STATE.copy(), np.zeros([2, 2], np.float32), []
    for step in range(4):
        inputs = np.concatenate([INPUTS[:, step], attention], 1)
        states = np.tanh(0.5 * (inputs.sum(-1) + states.sum(-1)))[:, np.newaxis].repeat(2, 1)
        query = states if option == "luong" else np.repeat(0.5 * states.sum(-1, keepdims=True), 2, -1)
        scores = (keys * query[:, np.newaxis]).sum(-1) if option == "luong" else (
            0.5 * np.tanh(keys + query[:, np.newaxis]).sum(-1))
        context = (softmax(scores)[:, :, np.newaxis] * memory).sum(1)
        attention = np.repeat(0.5 * (states.sum(-1) + context.sum(-1))[:, np.newaxis], 2, 1)
        known.append(attention)
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("decoder", initializer=tf.constant_initializer(0.5)):
            prepared = decoder_functions.prepare_attention(tf.constant(memory), option, 2)
            decoder = decoder_functions.attention_decoder_fn_train(tf.constant(STATE), *prepared)
            outputs, _, _ = decoder_functions.dynamic_rnn_decoder(
                tf.nn.rnn_cell.BasicRNNCell(2), decoder, tf.constant(INPUTS))
        session.run(tf.global_variables_initializer())
        session.run([variable.assign(tf.fill(variable.shape, 0.5)) for variable in tf.trainable_variables()
                     if "attention" in variable.name])  # their initializer is their own
        np.testing.assert_allclose(session.run(outputs), np.stack(known, 1), atol=1e-5)
        assert [variable.name for variable in tf.trainable_variables() if "attention" in variable.name] == [
            f"decoder/attention_{name}:0" for name in (
                ("keys/weights", "score/attnW", "score/attnV", "construct/weights") if option == "bahdanau" else (
                    "keys/weights", "construct/weights"))]


def test_attention_follows_the_symbols_of_an_inference():
    """The first symbol with the first attention, which is 0."""
    seen = []

    def construct(query, keys, values):
        return query[:, :4] + values

    class Noting(_Through):
        def __call__(self, inputs, state, scope=None):
            seen.append(inputs)
            return inputs[:, :4], state
    follows = np.zeros((4, 4), np.float32)
    follows[[1, 2, 3], [2, 3, 0]] = 9
    with tf.Graph().as_default(), tf.Session() as session:
        decoder = decoder_functions.attention_decoder_fn_inference(
            lambda output: tf.matmul(output, follows), tf.zeros([2, 4]), None, tf.zeros([2, 4]), None, construct,
            tf.constant(np.eye(4, dtype=np.float32)), 1, 0, 10, 4)
        outputs, _, _ = decoder_functions.dynamic_rnn_decoder(Noting(), decoder)
        assert session.run(tf.argmax(outputs, 2)).tolist() == [[2, 3, 0]] * 2
    assert seen[0].shape.as_list() == [2, 8]


def test_other_kinds_of_attention_are_refused():
    """There were two."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match="luong, bahdanau"):
        decoder_functions.prepare_attention(tf.zeros([1, 2, 3]), "dot", 3)
