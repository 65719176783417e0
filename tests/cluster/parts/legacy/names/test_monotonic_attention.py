"""Monotonic attention of tf.contrib.seq2seq, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import attention, monotonic_attention
from tests.tensorflow_mode import tf

RANDOM = np.random.default_rng(0)
CHOOSE = RANDOM.uniform(0.1, 0.9, (2, 5)).astype(np.float32)
PREVIOUS = np.array([[1, 0, 0, 0, 0], [0.1, 0.5, 0.4, 0, 0]], np.float32)


def by_numpy(choose, previous):
    """Returns how probable it is to stop at each step: to arrive there, from before or from the step before."""
    result = np.zeros_like(choose)
    for row in range(len(choose)):
        arrived = 0.0
        for step in range(choose.shape[1]):
            arrived = arrived * (1 - choose[row, step - 1] if step else 0.0) + previous[row, step]
            result[row, step] = arrived * choose[row, step]
    return result


def run(tensors):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run([tensors, {variable.op.name: variable for variable in tf.global_variables()}])


@pytest.mark.parametrize("mode", ["recursive", "parallel"])
def test_it_stops_where_it_has_come_to(mode):
    """By both ways to compute it."""
    with tf.Graph().as_default():
        found, _ = run(monotonic_attention.monotonic_attention(CHOOSE, PREVIOUS, mode))
    np.testing.assert_allclose(found, by_numpy(CHOOSE, PREVIOUS), rtol=1e-4, atol=1e-6)


def test_a_hard_attention_is_at_one_place():
    """The first that is chosen from the last place on; none if there is none."""
    choose = np.array([[0, 1, 0, 1], [1, 1, 0, 0]], np.float32)
    previous = np.array([[0, 0, 1, 0], [0, 0, 1, 0]], np.float32)
    with tf.Graph().as_default():
        found, _ = run(monotonic_attention.monotonic_attention(choose, previous, "hard"))
        with pytest.raises(ValueError, match="got mode='soft'; allowed: recursive, parallel, hard"):
            monotonic_attention.monotonic_attention(choose, previous, "soft")
    assert found.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]


def test_a_product_does_not_underflow():
    """Of 0.001, a thousand times."""
    with tf.Graph().as_default():
        found, _ = run(tf.log(monotonic_attention.safe_cumprod(tf.fill([5], 0.1))))
        _, last = run(monotonic_attention.safe_cumprod([0.0, 0.5]))[0]
    np.testing.assert_allclose(found, np.log(0.1) * np.arange(1, 6), rtol=1e-5)
    assert last >= 0


MEMORY = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)
QUERY = RANDOM.normal(size=(2, 4)).astype(np.float32)
LENGTHS = [5, 3]


@pytest.mark.parametrize(("kind", "scope"), [
    (monotonic_attention.LuongMonotonicAttention, "luong_monotonic_attention"),
    (monotonic_attention.BahdanauMonotonicAttention, "bahdanau_monotonic_attention")])
def test_a_mechanism_begins_at_the_first_step_of_the_memory(kind, scope):
    """With the names of TensorFlow 1's variables, and nothing behind the length of the memory."""
    with tf.Graph().as_default():
        mechanism = kind(4, tf.constant(MEMORY), LENGTHS, score_bias_init=-1.5, mode="recursive")
        first = mechanism.initial_state(2, tf.float32)
        (alignments, state, first, score), variables = run([
            *mechanism(tf.constant(QUERY), first), first, mechanism._keys])
    keys = score
    if scope.startswith("luong"):
        score = np.einsum("bu,btu->bt", QUERY, keys)
        names = {"attention_score_bias"}
    else:
        query = QUERY @ variables[f"{scope}/query_layer/kernel"]
        score = np.tanh(keys + query[:, None]) @ variables[f"{scope}/attention_v"]
        names = {"attention_score_bias", "attention_v", "query_layer/kernel"}
    assert set(variables) == {"memory_layer/kernel", *(f"{scope}/{name}" for name in names)}
    assert variables[f"{scope}/attention_score_bias"] == -1.5 and first.tolist() == [[1, 0, 0, 0, 0]] * 2
    choose = np.where(np.arange(5) < np.array(LENGTHS)[:, None], 1 / (1 + np.exp(1.5 - score)), 0)
    np.testing.assert_allclose(alignments, by_numpy(choose, first), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(alignments, state)


def test_noise_makes_other_alignments():
    """It is drawn anew in each run; without it they are the same."""
    with tf.Graph().as_default(), tf.Session() as session:
        kind = monotonic_attention.LuongMonotonicAttention
        noisy, plain = (kind(4, tf.constant(MEMORY), sigmoid_noise=noise) for noise in (1.0, 0.0))
        cells = [attention.AttentionWrapper(tf.nn.rnn_cell.GRUCell(4), one) for one in (noisy, plain)]
        outputs = [cell(tf.ones([2, 2]), cell.zero_state(2, tf.float32))[0] for cell in cells]
        session.run(tf.global_variables_initializer())
        first, second = session.run(outputs), session.run(outputs)
        assert not np.allclose(first[0], second[0]) and (first[1] == second[1]).all()
