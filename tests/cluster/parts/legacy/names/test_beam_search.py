"""BeamSearchDecoder of tf.contrib.seq2seq against a search in Python, and against all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps_train.parts.legacy.names import attention, beam_search, decoding
from tests.tensorflow_mode import tf

CLASSES, END = 4, 3
TABLE = np.random.default_rng(2).normal(size=(CLASSES, CLASSES)).astype(np.float32) * 2


class Walk(tf.nn.rnn_cell.RNNCell):
    """The logits depend on the last symbol, and on a sum over all symbols so far, its state."""

    state_size, output_size = 1, CLASSES

    def __call__(self, inputs, state, scope=None):
        state = state + tf.cast(tf.argmax(inputs, 1), tf.float32)[:, tf.newaxis]
        return tf.matmul(inputs, tf.constant(TABLE)) * tf.cos(state), state


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum())


def steps_of(start, symbols):
    """Returns the log probability of each symbol of a sequence."""
    total, found = 0.0, []
    for before, symbol in zip([start, *symbols], symbols):
        total += before
        found.append(log_softmax(TABLE[before] * np.cos(total))[symbol])
    return found


def search(start, width, most, weight):
    """Returns the best sequences, with their log probabilities and lengths, as the paper's search finds them."""
    beams = [((), 0.0)]
    for _ in range(most):
        following = []
        for symbols, total in beams:
            if END in symbols:
                following.append(((*symbols, END), total))
            else:
                following += [((*symbols, symbol), total + steps_of(start, (*symbols, symbol))[-1])
                              for symbol in range(CLASSES)]
        beams = sorted(following, key=lambda beam: -score_of(*beam, weight))[:width]
        if all(END in symbols for symbols, _ in beams):
            break
    return beams


def score_of(symbols, total, weight):
    """Returns the score in the last step; TensorFlow counts the end symbol from the step after it on."""
    length = len(symbols)
    if END in symbols:
        length = min(symbols.index(END) + 1, length - 1)
    return total / ((5 + length) / 6) ** weight


def decode(starts, width, most, *, is_static=True, output_layer=None, **options):
    """Returns final outputs, state and lengths."""
    with tf.Graph().as_default(), tf.Session() as session:
        start = tf.constant(starts) if is_static else tf.placeholder(tf.int32, [None])
        decoder = beam_search.BeamSearchDecoder(
            Walk(), tf.eye(CLASSES), start, END, tf.zeros([tf.size(start) * width, 1]), width, output_layer, **options)
        found = decoding.dynamic_decode(decoder, maximum_iterations=most)
        return session.run(found, {} if is_static else {start: starts})


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.8])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_beams_are_those_of_a_search_in_python(width, weight, is_static):
    """For two examples; the sequences are filled up with the end symbol."""
    starts = [0, 1]
    outputs, state, _ = decode(starts, width, 6, length_penalty_weight=weight, is_static=is_static)
    num_steps = outputs.predicted_ids.shape[1]
    assert outputs.predicted_ids.shape == (2, num_steps, width)
    for example, start in enumerate(starts):
        for beam, (symbols, total) in enumerate(search(start, width, 6, weight)):
            expected = (*symbols, *[END] * 6)[:num_steps]
            assert tuple(outputs.predicted_ids[example, :, beam]) == expected
            assert state.log_probs[example, beam] == pytest.approx(total, rel=1e-4)
            length = symbols.index(END) + 1 if END in symbols else len(symbols)
            assert state.lengths[example, beam] == length
            scores = outputs.beam_search_decoder_output.scores
            assert scores[example, -1, beam] == pytest.approx(score_of(symbols, total, weight), rel=1e-4)


def test_a_beam_of_all_sequences_finds_the_best():
    """Of those that end within 3 steps, and those that do not."""
    outputs, state, _ = decode([2], CLASSES ** 3, 3)
    sequences = {symbols if END not in symbols else symbols[:symbols.index(END) + 1]
                 for symbols in itertools.product(range(CLASSES), repeat=3)}
    ordered = sorted(sequences, key=lambda symbols: -sum(steps_of(2, symbols)))
    for beam, symbols in enumerate(ordered[:10]):
        assert tuple(outputs.predicted_ids[0, :, beam]) == (*symbols, *[END] * (3 - len(symbols)))
        assert state.log_probs[0, beam] == pytest.approx(sum(steps_of(2, symbols)), rel=1e-4)


def test_the_sequences_are_put_together_from_their_parents():
    """The example of TensorFlow's own documentation of the operation: 2, 6, 7 is the parent of 7 in step 2, 6 in 1."""
    step_ids = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [-1, -1, -1]])[:, None]
    parent_ids = np.array([[0, 0, 0], [0, 1, 1], [2, 1, 2], [-1, -1, -1]])[:, None]
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(beam_search.gather_tree(
            step_ids.astype(np.int32), parent_ids.astype(np.int32), [3], end_token=10))
    assert found[:, 0].tolist() == [[2, 2, 2], [6, 5, 6], [7, 8, 9], [10, 10, 10]]


MEMORY = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)
MEMORY_LENGTHS = [5, 3]


def attentive(batch_times):
    """Returns a cell of 6 units that looks at the memory, each example `batch_times` times."""
    memory, lengths = attention.tile_batch((tf.constant(MEMORY), tf.constant(MEMORY_LENGTHS)), batch_times)
    return attention.AttentionWrapper(
        tf.nn.rnn_cell.LSTMCell(6), attention.BahdanauAttention(4, memory, lengths), attention_layer_size=6,
        alignment_history=True)


@pytest.mark.parametrize("coverage", [0.0, 0.5])
def test_the_history_of_alignments_follows_the_sequences(coverage):
    """By the beam of each step, as in TensorFlow 1; the score is that of the cell that is given the sequence."""
    width, most = 3, 5
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope(
            "model", initializer=tf.random_normal_initializer(stddev=2.0, seed=4)):
        layer = tf.layers.Dense(CLASSES, name="logits")
        cell = attentive(width)
        (outputs, final, _), (_, unsorted, _) = (decoding.dynamic_decode(beam_search.BeamSearchDecoder(
            cell, tf.eye(CLASSES), [0, 1], END, cell.zero_state(2 * width, tf.float32), width, layer, 0.6, coverage,
            is_sorted), maximum_iterations=most, scope=scope) for is_sorted, scope in (
                (True, "decoder"), (False, "again")))
        given = tf.placeholder(tf.int32, [None, 2 * width])
        states, logits = cell.zero_state(2 * width, tf.float32), []
        for time in range(most):
            with tf.variable_scope("decoder"):
                output, states = cell(tf.one_hot(given[time], CLASSES), states)
            logits.append(tf.nn.log_softmax(layer(output)))
        session.run(tf.global_variables_initializer())
        outputs, final, written = session.run([outputs, final, unsorted.cell_state.alignment_history.stack()])
        symbols = outputs.predicted_ids.transpose(1, 0, 2).reshape(-1, 2 * width)  # [time, batch * beam]
        assert len(symbols) == most
        starts = np.repeat([0, 1], width)[None]
        history, log_probs = session.run([states.alignment_history.stack(), tf.stack(logits)],
                                         {given: np.concatenate([starts, symbols[:-1]])})
    lengths = final.lengths.reshape(-1)
    assert len(set(lengths)) > 1
    scores = outputs.beam_search_decoder_output.scores[:, -1].reshape(-1)
    for beam, length in enumerate(lengths):
        example, at = divmod(beam, width)
        for time in reversed(range(most)):
            np.testing.assert_allclose(
                final.cell_state.alignment_history[time, beam],
                written[time, example * width + at if time < length else beam], atol=1e-5)
            at = outputs.beam_search_decoder_output.parent_ids[example, time, at]
        chosen = symbols[:length, beam]
        total = log_probs[np.arange(length), beam, chosen].sum()
        assert final.log_probs.reshape(-1)[beam] == pytest.approx(total, rel=1e-4)
        seen = history[:length, beam].sum(0)
        penalty = np.log(np.minimum(seen, 1), where=seen > 0, out=np.zeros_like(seen)).sum() if length < most else 0.0
        counted = min(length, most - 1) if chosen[-1] == END else length
        expected = total / ((5 + counted) / 6) ** 0.6 + coverage * penalty
        assert scores[beam] == pytest.approx(expected, rel=1e-4)


def test_what_is_no_beam_search():
    """A penalty of attentions that there are not, and a start that is no vector."""
    with tf.Graph().as_default():
        zeros = tf.zeros([4, 1])
        decoder = beam_search.BeamSearchDecoder(Walk(), tf.eye(CLASSES), [0, 1], END, zeros, 2,
                                                coverage_penalty_weight=0.1)
        with pytest.raises(ValueError, match=r"coverage_penalty_weight must be 0\.0 for a cell without an attention"):
            decoder.initialize()
        with pytest.raises(ValueError, match=r"start_tokens must be a vector \[batch\], and end_token a number"):
            beam_search.BeamSearchDecoder(Walk(), tf.eye(CLASSES), 0, END, zeros, 2)
