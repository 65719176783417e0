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


def test_the_decoding_of_1_1_has_two_results():
    """The outputs and the state, without the lengths; a script of that time takes them apart so."""
    with tf.Graph().as_default():
        decoder = decoding.BasicDecoder(
            Successors(), decoding.GreedyEmbeddingHelper(tf.eye(6) * 100.0, [0, 2], 4), tf.zeros([2, 1]))
        outputs, state = decoding.dynamic_decode(decoder)
        (symbols, state), _ = run([outputs.sample_id, state])
    assert symbols[0].tolist() == [1, 2, 3, 4] and state.shape == (2, 1)


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


class Sharpened(attention.BahdanauAttention):
    """As scripts write their own: by the attributes of TensorFlow 1, and the alignments before."""

    def __call__(self, query, state):
        with tf.variable_scope("own", reuse=tf.AUTO_REUSE):
            query = tf.expand_dims(self.query_layer(query) if self.query_layer else query, 1)
            v = tf.get_variable("v", [self._num_units])
            energy = tf.reduce_sum(v * tf.tanh(self._keys + query), 2) + state
        alignments = self._probability_fn(energy, state)
        return alignments, state + alignments


def test_a_mechanism_of_a_script_reads_the_attributes_of_tensorflow_1():
    """Keys, units, sizes, and a probability function of the energy and what was before, behind whose length is 0."""
    with tf.Graph().as_default():
        mechanism = Sharpened(UNITS, tf.constant(MEMORY), LENGTHS)
        state = mechanism.initial_state(BATCH, tf.float32)
        for _ in range(2):
            alignments, state = mechanism(tf.constant(QUERY), state)
        (found, total), _ = run([alignments, state])
        assert (mechanism._alignments_size, mechanism._batch_size, mechanism.dtype) == (TIME, BATCH, tf.float32)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(total.sum(1), 2.0, rtol=1e-5)
    assert not found[1, 2:].any()


def test_a_base_mechanism_has_a_probability_function_of_score_and_state():
    """`_BaseAttentionMechanism`, which scripts import; here it returns the state."""
    with tf.Graph().as_default():
        mechanism = attention._BaseAttentionMechanism(None, tf.constant(MEMORY), lambda score, state: state)
        mechanism.score = lambda query: tf.zeros([BATCH, TIME])
        state = tf.one_hot([1, 2], TIME)
        (alignments, _), _ = run(mechanism(tf.constant(QUERY), state))
    assert alignments.argmax(1).tolist() == [1, 2]


def test_keys_and_values_may_be_made_by_a_function():
    """It gets both, and returns both."""
    with tf.Graph().as_default():
        mechanism = attention.LuongAttention(
            UNITS, tf.constant(MEMORY), custom_key_value_fn=lambda keys, values: (keys * 2, values[:, :, :1]))
        plain = attention.LuongAttention(UNITS, tf.constant(MEMORY))
        assert mechanism.values.shape.as_list() == [BATCH, TIME, 1]
        (keys, twice), variables = run([plain.keys, mechanism.keys])
    kernels = [value for _, value in sorted(variables.items())]
    np.testing.assert_allclose(twice, 2 * MEMORY @ kernels[0], rtol=1e-5)
    np.testing.assert_allclose(keys, MEMORY @ kernels[1], rtol=1e-5)


def test_the_attention_may_be_a_function():
    """Of mechanism, output, state and layer; here it doubles what is seen."""
    def double(mechanism, output, state, layer):
        seen, alignments, state = attention._compute_attention(mechanism, output, state, layer)
        return 2 * seen, alignments, state

    with tf.Graph().as_default():
        plain, state = wrapped()
        doubled, _ = wrapped(attention_fn=double, dtype=tf.float32)
        with tf.variable_scope("a", initializer=tf.constant_initializer(0.1)):
            outputs = [cell(tf.ones([BATCH, 2]), state)[0] for cell in (plain, doubled)]
        # The memory layers have different variables, of the same values only where they are constant.
        for mechanism in (plain._mechanisms[0], doubled._mechanisms[0]):
            assert mechanism.keys.shape.as_list() == [BATCH, TIME, UNITS]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for variable in tf.global_variables():
                session.run(tf.assign(variable, tf.fill(variable.shape, 0.1)))
            one, two = session.run(outputs)
        np.testing.assert_allclose(two, 2 * one, rtol=1e-5)
        with pytest.raises(ValueError, match="give attention_layer_size or attention_layer, not both"):
            wrapped(attention_layer_size=3, attention_layer=tf.layers.Dense(3))


def test_a_memory_without_a_step_is_an_error():
    """TensorFlow 1 stopped, too: its softmax is not a number."""
    with tf.Graph().as_default():
        lengths = tf.placeholder_with_default([4, 0], [BATCH])
        mechanism = attention.LuongAttention(UNITS, tf.constant(MEMORY), lengths)
        with pytest.raises(tf.errors.InvalidArgumentError, match="memory_sequence_length must be at least 1"):
            run(mechanism(tf.constant(QUERY), None))


def test_variables_are_read_once_and_not_in_each_step():
    """They are on a ps: reads in the loop would ask it for each step, and see other workers' updates between them."""
    with tf.Graph().as_default() as graph:
        inputs = tf.ones([BATCH, TIME, 2])
        decoder = decoding.BasicDecoder(
            tf.nn.rnn_cell.GRUCell(UNITS), decoding.TrainingHelper(inputs, LENGTHS), tf.zeros([BATCH, UNITS]),
            tf.layers.Dense(6))
        outputs, _, _ = decoding.dynamic_decode(decoder)
        reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp"]
        assert reads and not [op.name for op in reads if op._get_control_flow_context() is not None]
        loss = tf.reduce_sum(outputs.rnn_output)
        assert all(gradient is not None for gradient in tf.gradients(loss, tf.trainable_variables()))


def test_an_embedding_that_is_a_function_makes_its_variables_outside_of_the_decoder():
    """It is called when the helper is made, as in TensorFlow 1."""
    def embedding(ids):
        with tf.variable_scope("words", reuse=tf.AUTO_REUSE):
            return tf.nn.embedding_lookup(tf.get_variable("table", [6, 6]), ids)

    with tf.Graph().as_default():
        helper = decoding.GreedyEmbeddingHelper(embedding, [0, 2], 4)
        decoding.dynamic_decode(decoding.BasicDecoder(tf.nn.rnn_cell.GRUCell(6), helper, tf.zeros([2, 6])),
                                maximum_iterations=2)
        assert "words/table" in {variable.op.name for variable in tf.global_variables()}


@pytest.mark.parametrize(("probability", "expected"), [(0.0, [1, 1, 1, 1]), (1.0, [1, 3, 5, 1])])
@pytest.mark.parametrize("has_more", [False, True])
def test_scheduled_outputs_are_the_next_inputs_with_a_probability(probability, expected, has_more):
    """Here by a function that moves them by one more; auxiliary inputs stand behind either."""
    with tf.Graph().as_default():
        identity = tf.eye(6) * 100.0
        given = tf.nn.embedding_lookup(identity, tf.zeros([2, TIME], tf.int32))
        more = {"auxiliary_inputs": tf.ones([2, TIME, 1])} if has_more else {}
        helper = decoding.ScheduledOutputTrainingHelper(
            given, [TIME, TIME], probability, next_inputs_fn=lambda outputs: tf.roll(outputs, 1, axis=1), **more)

        class Cell(Successors):
            def __call__(self, inputs, state, scope=None):
                assert inputs.shape[1] == 6 + has_more
                return super().__call__(inputs[:, :6], state)

        outputs, _, _ = decoding.dynamic_decode(decoding.BasicDecoder(Cell(), helper, tf.zeros([2, 1])))
        (logits, samples), _ = run(outputs)
    assert logits[0].argmax(-1).tolist() == expected and set(samples.ravel()) == {int(probability)}


def test_inference_by_the_functions_of_a_script():
    """The samples are the next inputs; it ends at symbol 3."""
    with tf.Graph().as_default():
        helper = decoding.InferenceHelper(
            lambda outputs: outputs, [6], tf.float32, tf.eye(6)[:2], lambda samples: tf.equal(tf.argmax(samples, 1), 3))
        outputs, _, lengths = decoding.dynamic_decode(decoding.BasicDecoder(Successors(), helper, tf.zeros([2, 1])))
        (samples, lengths), _ = run([outputs.sample_id, lengths])
    assert samples[0].argmax(-1).tolist() == [1, 2, 3] and lengths.tolist() == [3, 2]


def test_a_helper_that_extends_the_trainings():
    """By the names that TensorFlow 1 gave its attributes."""
    class Own(decoding.TrainingHelper):
        def sample(self, time, outputs, name=None, **unused_kwargs):
            return tf.fill([self._batch_size], time)

        def next_inputs(self, time, outputs, state, name=None, **unused_kwargs):
            finished = time + 1 >= self._sequence_length
            return finished, tf.cond(tf.reduce_all(finished), lambda: self._zero_inputs,
                                     lambda: self._input_tas.read(time + 1)), state

    with tf.Graph().as_default():
        helper = Own(tf.ones([BATCH, TIME, 6]), tf.constant(LENGTHS))
        outputs, _, lengths = decoding.dynamic_decode(decoding.BasicDecoder(Successors(), helper, tf.zeros([2, 1])))
        (samples, lengths), _ = run([outputs.sample_id, lengths])
    assert samples.tolist() == [[0, 1, 2, 3]] * BATCH and lengths.tolist() == LENGTHS


def test_the_private_scores_of_scripts_are_those_of_the_mechanisms():
    """The functions of 1.2 to 1.13, and a state without attention_state, as before 1.5."""
    keys = np.linspace(-1.0, 1.0, BATCH * TIME * UNITS).reshape(BATCH, TIME, UNITS).astype(np.float32)
    with tf.Graph().as_default():
        (luong, bahdanau), variables = run([
            attention._luong_score(tf.constant(QUERY), keys, False),
            attention._bahdanau_score(tf.constant(QUERY), tf.constant(keys), False)])
    np.testing.assert_allclose(luong, np.einsum("bu,btu->bt", QUERY, keys), rtol=1e-5)
    np.testing.assert_allclose(
        bahdanau, np.tanh(keys + QUERY[:, None]) @ variables["attention_v"], rtol=1e-4, atol=1e-6)
    state = attention.AttentionWrapperState(
        cell_state=1, attention=2, time=3, alignments=4, alignment_history=())
    assert state.clone(time=5).time == 5 and state.attention_state == ()
