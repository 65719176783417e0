"""tf.contrib.crf against all sequences of tags, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps_train.parts.legacy.names import crf
from tests.tensorflow_mode import tf

BATCH, TIME, TAGS = 4, 4, 3
LENGTHS = np.array([4, 2, 1, 0])
_RANDOM = np.random.default_rng(0)
INPUTS = _RANDOM.normal(size=(BATCH, TIME, TAGS)).astype(np.float32)
TRANSITIONS = _RANDOM.normal(size=(TAGS, TAGS)).astype(np.float32)
GIVEN = _RANDOM.integers(0, TAGS, (BATCH, TIME)).astype(np.int32)


def score_of(inputs, tags):
    """Of one sequence, whose length is that of the tags."""
    return sum(inputs[time, tag] for time, tag in enumerate(tags)) + sum(
        TRANSITIONS[pair] for pair in zip(tags, tags[1:]))


def all_scores(inputs, length):
    """Returns tags -> score."""
    return {tags: score_of(inputs, tags) for tags in itertools.product(range(TAGS), repeat=length)}


def log_sum(scores):
    return float(np.log(np.sum(np.exp(list(scores))))) if scores else 0.0


def run(tensors, feed=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensors, feed)


@pytest.fixture(autouse=True)
def graph():
    """A default graph for this test only."""
    with tf.Graph().as_default():
        yield


@pytest.fixture(params=["static", "dynamic"])
def inputs(request):
    """The inputs, of known sizes or not, and what is fed."""
    if request.param == "static":
        return tf.constant(INPUTS), None
    placeholder = tf.placeholder(tf.float32, [None, None, TAGS])
    return placeholder, {placeholder: INPUTS}


def test_the_score_of_a_sequence(inputs):
    """Inputs and transitions as far as the sequence goes; padding may have a tag that is none."""
    tensor, feed = inputs
    tags = np.where(np.arange(TIME) < LENGTHS[:, None], GIVEN, -7)
    found = run(crf.crf_sequence_score(tensor, tf.constant(tags), tf.constant(LENGTHS), tf.constant(TRANSITIONS)), feed)
    expected = [score_of(each, row[:length].tolist()) for each, row, length in zip(INPUTS, GIVEN, LENGTHS)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_norm_is_the_sum_over_all_sequences(inputs):
    """Its logarithm; 0 for an empty sequence."""
    tensor, feed = inputs
    found = run(crf.crf_log_norm(tensor, tf.constant(LENGTHS), tf.constant(TRANSITIONS)), feed)
    expected = [log_sum(all_scores(each, length).values()) if length else 0.0
                for each, length in zip(INPUTS, LENGTHS)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_probabilities_of_all_sequences_add_up_to_1():
    """Of each sequence of two steps; the transitions are a new variable by default."""
    pairs = np.array(list(itertools.product(range(TAGS), repeat=2)), np.int64)
    two = tf.constant(np.broadcast_to(INPUTS[0, :2], (len(pairs), 2, TAGS)).copy())
    with tf.variable_scope("crf", initializer=tf.constant_initializer(TRANSITIONS)):
        likelihood, transitions = crf.crf_log_likelihood(two, pairs, [2] * len(pairs))
    found, used = run([likelihood, transitions])
    np.testing.assert_array_equal(used, TRANSITIONS)
    assert transitions.op.name == "crf/transitions" and np.exp(found).sum() == pytest.approx(1.0, rel=1e-5)


def test_the_gradient_is_what_the_model_expects_minus_what_it_saw():
    """Of the log likelihood, by the transitions: the counts of the tags minus the expected counts."""
    transitions = tf.constant(TRANSITIONS)
    likelihood, _ = crf.crf_log_likelihood(tf.constant(INPUTS), tf.constant(GIVEN), tf.constant(LENGTHS), transitions)
    found = run(tf.gradients(tf.reduce_sum(likelihood), transitions)[0])
    expected = np.zeros((TAGS, TAGS))
    for each, row, length in zip(INPUTS, GIVEN, LENGTHS):
        scores = all_scores(each, length)
        for pair in zip(row[:length - 1].tolist(), row[1:length].tolist()):
            expected[pair] += 1
        for tags, score in scores.items():
            for pair in zip(tags, tags[1:]):
                expected[pair] -= np.exp(score - log_sum(scores.values()))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_best_tags(inputs):
    """The same by TensorFlow and by numpy; 0 behind the end."""
    tensor, feed = inputs
    tags, scores = crf.crf_decode(tensor, tf.constant(TRANSITIONS), tf.constant(LENGTHS))
    assert tags.dtype == tf.int32
    tags, scores = run([tags, scores], feed)
    for found, score, each, length in zip(tags, scores, INPUTS, np.maximum(LENGTHS, 1)):
        best = max(all_scores(each, length).items(), key=lambda item: item[1])
        assert tuple(found) == (*best[0], *[0] * (TIME - length)) and score == pytest.approx(best[1], rel=1e-5)
        by_numpy, same = crf.viterbi_decode(each[:length], TRANSITIONS)
        assert tuple(by_numpy) == best[0] and same == pytest.approx(best[1], rel=1e-5)


def test_several_tags_may_be_right():
    """The sum over the sequences that the bitmap allows; with one tag each, the score of that sequence."""
    bitmap = np.zeros((BATCH, TIME, TAGS), bool)
    np.put_along_axis(bitmap, GIVEN[:, :, None], True, 2)
    arguments = tf.constant(LENGTHS), tf.constant(TRANSITIONS)
    one = crf.crf_multitag_sequence_score(tf.constant(INPUTS), tf.constant(bitmap), *arguments)
    bitmap[0, 1] = True
    several = crf.crf_multitag_sequence_score(tf.constant(INPUTS), tf.constant(bitmap), *arguments)
    one, several, score = run([one, several, crf.crf_sequence_score(INPUTS, GIVEN, *arguments)])
    np.testing.assert_allclose(one, score, rtol=1e-4, atol=1e-5)
    allowed = [score_of(INPUTS[0], [*GIVEN[0, :1], tag, *GIVEN[0, 2:]]) for tag in range(TAGS)]
    assert several[0] == pytest.approx(log_sum(allowed), rel=1e-5)


def test_the_cells_are_single_steps():
    """For scripts that run them by dynamic_rnn."""
    state = INPUTS[:, 0]
    forward = crf.CrfForwardRnnCell(tf.constant(TRANSITIONS))
    decoding = crf.CrfDecodeForwardRnnCell(tf.constant(TRANSITIONS))
    back = crf.CrfDecodeBackwardRnnCell(TAGS)
    assert (forward.state_size, decoding.output_size, back.state_size) == (TAGS, TAGS, 1)
    alphas, (before, best), (tags, _) = run([
        forward(INPUTS[:, 1], state)[0], decoding(INPUTS[:, 1], state),
        back(tf.constant([[0, 2, 1]] * BATCH), tf.constant([[1]] * BATCH))])
    ways = state[:, :, None] + TRANSITIONS
    np.testing.assert_allclose(alphas, INPUTS[:, 1] + np.log(np.exp(ways).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(best, INPUTS[:, 1] + ways.max(1), rtol=1e-5)
    assert (before == ways.argmax(1)).all() and tags.tolist() == [[2]] * BATCH
