"""Attention, decoders and helpers of tf.contrib.seq2seq."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import attention, decoding
from tests.tensorflow_mode import tf

BATCH, TIME, DEPTH, UNITS = 2, 4, 3, 5
LENGTHS = [4, 2]
MEMORY = np.linspace(-1.0, 1.0, BATCH * TIME * DEPTH).reshape(BATCH, TIME, DEPTH).astype(np.float32)
REAL_MEMORY = np.where(np.arange(TIME)[:, None] < np.array(LENGTHS)[:, None, None], MEMORY, 0.0)
QUERY = np.linspace(0.5, -0.5, BATCH * UNITS).reshape(BATCH, UNITS).astype(np.float32)


def softmax(scores):
    """Of each row, beyond whose length there is nothing."""
    real = np.arange(TIME) < np.array(LENGTHS)[:, None]
    powers = np.where(real, np.exp(scores), 0.0)
    return powers / powers.sum(1, keepdims=True)


def run(fetches):
    """Returns the values, and variable -> value."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run([fetches, {variable.op.name: variable for variable in tf.global_variables()}])


@pytest.mark.parametrize("scale", [False, True])
def test_luong_attention_is_the_product_of_query_and_key(scale):
    """The variable of `scale` begins with 1."""
    with tf.Graph().as_default():
        mechanism = attention.LuongAttention(UNITS, tf.constant(MEMORY), LENGTHS, scale=scale)
        (alignments, state), variables = run(mechanism(tf.constant(QUERY), None))
    keys = REAL_MEMORY @ variables["memory_layer/kernel"]
    np.testing.assert_allclose(alignments, softmax(np.einsum("bu,btu->bt", QUERY, keys)), rtol=1e-5)
    np.testing.assert_array_equal(alignments, state)
    assert sorted(variables) == [*["luong_attention/attention_g"] * scale, "memory_layer/kernel"]


@pytest.mark.parametrize("normalize", [False, True])
def test_bahdanau_attention_adds_query_and_key(normalize):
    """With a norm, v is a direction times g, which begins with sqrt(1 / units)."""
    with tf.Graph().as_default():
        mechanism = attention.BahdanauAttention(UNITS, tf.constant(MEMORY), LENGTHS, normalize=normalize)
        (alignments, _), variables = run(mechanism(tf.constant(QUERY), None))
    keys = REAL_MEMORY @ variables["memory_layer/kernel"]
    v = variables["bahdanau_attention/attention_v"]
    v = v / np.linalg.norm(v) * UNITS ** -0.5 if normalize else v
    added = keys + (QUERY @ variables["bahdanau_attention/query_layer/kernel"])[:, None]
    np.testing.assert_allclose(alignments, softmax(np.tanh(added) @ v), rtol=1e-5)


def wrapped(mechanisms=1, **kwargs):
    """Returns a cell of 5 units that looks at the memory, and its first state."""
    made = [attention.LuongAttention(UNITS, tf.constant(MEMORY), LENGTHS) for _ in range(mechanisms)]
    cell = attention.AttentionWrapper(tf.nn.rnn_cell.GRUCell(UNITS), made if mechanisms > 1 else made[0], **kwargs)
    return cell, cell.zero_state(BATCH, tf.float32)


def test_a_wrapped_cell_has_the_attention_as_its_output_and_next_input():
    """And the names of TensorFlow 1."""
    with tf.Graph().as_default():
        cell, state = wrapped(attention_layer_size=7, alignment_history=True)
        first, state = cell(tf.ones([BATCH, 2]), state)
        second, state = cell(tf.ones([BATCH, 2]), state)
        (outputs, history, time), variables = run([[first, second], state.alignment_history.stack(), state.time])
        assert cell.output_size == 7 and np.shape(outputs) == (2, BATCH, 7) and time == 2
        np.testing.assert_allclose(history.sum(2), 1.0, rtol=1e-5)
        assert variables["attention_wrapper/gru_cell/gates/kernel"].shape == (2 + 7 + UNITS, 2 * UNITS)
        assert variables["attention_wrapper/attention_layer/kernel"].shape == (UNITS + DEPTH, 7)
        np.testing.assert_array_equal(state.clone(time=3).time, 3)
        with pytest.raises(TypeError, match=r"zero_state\(batch_size, dtype\).clone"):
            cell(tf.ones([BATCH, 2]), tf.ones([BATCH, UNITS]))


def test_a_wrapped_cell_that_is_called_again_has_the_same_variables():
    """In another scope, too, as when one decoder trains and another one infers; a second cell has its own."""
    with tf.Graph().as_default():
        mechanism = attention.BahdanauAttention(UNITS, tf.constant(MEMORY), LENGTHS, normalize=True)
        for number in range(2):
            cell = attention.AttentionWrapper(tf.nn.rnn_cell.GRUCell(UNITS), mechanism)
            for scope in ("training", "inference"):
                with tf.variable_scope(scope):
                    cell(tf.ones([BATCH, 2]), cell.zero_state(BATCH, tf.float32))
            wrapper = "training/attention_wrapper" + "_1" * number
            own = {variable.op.name for variable in tf.global_variables()} - {
                f"{wrapper}/{name}" for name in ("gru_cell/gates/kernel", "gru_cell/gates/bias")}
            assert f"{wrapper}/bahdanau_attention/attention_v" in own
            assert not [name for name in own if "inference" in name]


def test_several_mechanisms_have_their_attentions_side_by_side():
    """Without layers an attention is the context, as wide as the memory is deep."""
    with tf.Graph().as_default():
        cell, state = wrapped(2, output_attention=False)
        output, state = cell(tf.ones([BATCH, 2]), state)
        assert output.shape.as_list() == [BATCH, UNITS] and state.attention.shape.as_list() == [BATCH, 2 * DEPTH]
        assert len(state.alignments) == 2
        with pytest.raises(ValueError, match="2 attention mechanisms need as many attention layers, got 1"):
            wrapped(2, attention_layer_size=[7])


@pytest.mark.parametrize("impute", [False, True])
def test_training_decodes_each_sequence_to_its_length(impute):
    """`impute_finished`: outputs of 0 and the state of the last step behind the end."""
    with tf.Graph().as_default():
        inputs = np.arange(BATCH * TIME * 2, dtype=np.float32).reshape(BATCH, TIME, 2)
        cell = tf.nn.rnn_cell.GRUCell(UNITS)
        decoder = decoding.BasicDecoder(cell, decoding.TrainingHelper(inputs, LENGTHS), tf.zeros([BATCH, UNITS]),
                                        tf.layers.Dense(6))
        outputs, state, lengths = decoding.dynamic_decode(decoder, impute_finished=impute)
        plain, plain_state = tf.nn.dynamic_rnn(cell, inputs, LENGTHS, tf.zeros([BATCH, UNITS]))
        (outputs, state, lengths, plain_state), variables = run([outputs, state, lengths, plain_state])
    assert outputs.rnn_output.shape == (BATCH, TIME, 6) and lengths.tolist() == LENGTHS
    np.testing.assert_array_equal(outputs.sample_id[0], outputs.rnn_output[0].argmax(-1))
    assert (not outputs.rnn_output[1, 2:].any()) == impute
    np.testing.assert_allclose(state[0], plain_state[0], rtol=1e-5)
    assert np.allclose(state[1], plain_state[1]) == impute
    assert "decoder/gru_cell/gates/kernel" in variables


class Successors(tf.nn.rnn_cell.RNNCell):
    """After symbol n comes n + 1: its output is the input, a row of the identity, moved by one."""

    state_size, output_size = 1, 6

    def __call__(self, inputs, state, scope=None):
        return tf.roll(inputs, 1, axis=1), state


@pytest.mark.parametrize("helper", [decoding.GreedyEmbeddingHelper, decoding.SampleEmbeddingHelper])
@pytest.mark.parametrize("most", [None, 2])
def test_inference_goes_on_with_what_it_has_said_until_the_end_symbol(helper, most):
    """From 0 and 2 on, to 4, or for at most 2 steps."""
    with tf.Graph().as_default():
        identity = tf.eye(6) * 100.0  # so that a drawn symbol is the likeliest
        decoder = decoding.BasicDecoder(Successors(), helper(identity, [0, 2], 4), tf.zeros([2, 1]))
        outputs, _, lengths = decoding.dynamic_decode(decoder, maximum_iterations=most)
        (symbols, lengths), _ = run([outputs.sample_id, lengths])
    assert symbols[0].tolist() == [1, 2, 3, 4][:most] and symbols[1, :2].tolist() == [3, 4]
    assert lengths.tolist() == [most or 4, 2]


@pytest.mark.parametrize(("probability", "expected"), [(0.0, [1, 1, 1, 1]), (1.0, [1, 2, 3, 4])])
def test_scheduled_sampling_takes_its_own_word_with_a_probability(probability, expected):
    """The given symbol is always 0, upon which 1 follows."""
    with tf.Graph().as_default():
        identity = tf.eye(6) * 100.0
        given = tf.nn.embedding_lookup(identity, tf.zeros([2, TIME], tf.int32))
        helper = decoding.ScheduledEmbeddingTrainingHelper(given, [TIME, TIME], identity, probability)
        outputs, _, _ = decoding.dynamic_decode(decoding.BasicDecoder(Successors(), helper, tf.zeros([2, 1])))
        (logits, _), _ = run(outputs)
    assert logits[0].argmax(-1).tolist() == expected


def test_a_helper_of_three_functions():
    """It ends after the second step."""
    with tf.Graph().as_default():
        helper = decoding.CustomHelper(
            lambda: (tf.fill([2], False), tf.eye(6)[:2]), lambda time, outputs, state: tf.argmax(outputs, -1),
            lambda time, outputs, state, sample_ids: (tf.fill([2], time >= 1), outputs, state),
            sample_ids_dtype=tf.int64)
        outputs, _, lengths = decoding.dynamic_decode(decoding.BasicDecoder(Successors(), helper, tf.zeros([2, 1])),
                                                      output_time_major=True)
        (symbols, lengths), _ = run([outputs.sample_id, lengths])
    assert symbols.tolist() == [[1, 2], [2, 3]] and lengths.tolist() == [2, 2]


def test_an_attention_decoder_learns_to_copy():
    """Encoder, attention and decoder train by gradient, and then say the memory again."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        symbols = np.random.default_rng(0).integers(2, 6, (32, TIME)).astype(np.int32)
        shifted = np.concatenate([np.ones((32, 1), np.int32), symbols[:, :-1]], 1)
        embedding = tf.get_variable("embedding", [6, 8])
        memory, last = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(16), tf.nn.embedding_lookup(embedding, symbols),
                                         dtype=tf.float32)
        mechanism = attention.BahdanauAttention(16, memory, [TIME] * 32)
        cell = attention.AttentionWrapper(tf.nn.rnn_cell.GRUCell(16), mechanism, attention_layer_size=16)
        state = cell.zero_state(32, tf.float32).clone(cell_state=last)
        helper = decoding.TrainingHelper(tf.nn.embedding_lookup(embedding, shifted), [TIME] * 32)
        outputs, _, _ = decoding.dynamic_decode(
            decoding.BasicDecoder(cell, helper, state, tf.layers.Dense(6)), impute_finished=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=symbols, logits=outputs.rnn_output))
        train = tf.train.AdamOptimizer(0.02).minimize(loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            before = session.run(loss)
            for _ in range(100):
                session.run(train)
            assert before > 1.0 and session.run(loss) < 0.2


def test_tile_batch_and_hardmax():
    """Rows in a row, and one for each row's largest."""
    with tf.Graph().as_default():
        (tiled, hard), _ = run([attention.tile_batch((tf.constant([[1], [2]]),), 2),
                                attention.hardmax(tf.constant([[0.1, 0.3], [0.2, 0.1]]))])
    assert tiled[0].tolist() == [[1], [1], [2], [2]] and hard.tolist() == [[0.0, 1.0], [1.0, 0.0]]
