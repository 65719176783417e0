"""Negative ids: their distribution against numpy, and that they follow from seed and batch alone."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from tests.errors import raises
from tests.tensorflow_mode import tf


def drawn(positives, num_negatives, **options):
    """Returns the negatives of a batch."""
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(ps_train.negative_samples(tf.constant(positives), num_negatives, **options))


@pytest.mark.parametrize("power", [0.75, 1.0, 0.0])
def test_ids_of_a_vocabulary_come_as_often_as_numpy_says(power):
    """In proportion to count^power among the other ids; those without a count never; an unknown id excludes none."""
    counts = np.array([50.0, 0.0, 7.0, 300.0, 1.0, 20.0])
    shares = np.where(counts > 0, np.maximum(counts, 1e-9)**power, 0)
    num = 100_000
    found = drawn(np.array([3, 0, 5, 4, -1, 100]), num, counts=counts, power=power, seed=5)
    assert (found.shape, found.dtype) == ((6, num), np.int64)
    for positive, ids in zip([3, 0, 5, 4, None, None], found):
        others = np.array([0 if place == positive else share for place, share in enumerate(shares)])
        expected = others / others.sum()
        measured = np.bincount(ids, minlength=6) / num
        assert not measured[expected == 0].any()
        deviations = np.sqrt(expected * (1 - expected) / num)
        assert (np.abs(measured - expected) <= 4.5 * deviations).all()


def test_ids_of_a_batch_are_those_of_the_other_examples():
    """Each alike; strings, too; a batch of one example has only its own."""
    num = 50_000
    found = drawn(np.array([10, 11, 12, 12]), num, seed=2)
    for own, ids in zip([0, 1, 2, 3], found):
        others = np.delete([10, 11, 12, 12], own)
        for one in (10, 11, 12):
            share = (others == one).mean()
            assert abs((ids == one).mean() - share) <= 4.5 * np.sqrt(share * (1 - share) / num)
    assert {tuple(row) for row in drawn(np.array([b"a", b"b"]), 3).tolist()} == {(b"b",) * 3, (b"a",) * 3}
    assert drawn(np.array([7]), 2).tolist() == [[7, 7]]
    assert drawn(np.zeros([0], np.int64), 2).shape == (0, 2)


@pytest.mark.parametrize("options", [{}, {"counts": np.arange(1000)}], ids=["batch", "vocabulary"])
def test_they_follow_from_the_seed_and_the_batch(options):
    """The same again in another graph and in a dataset with threads; others with another seed or another batch."""
    batches = np.random.default_rng(0).permutation(960).reshape(20, 48)
    first = np.stack([drawn(batch, 5, seed=1, **options) for batch in batches])
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tf.data.Dataset.from_tensor_slices(batches).map(
            lambda ids: ps_train.negative_samples(ids, 5, seed=1, **options), num_parallel_calls=4)
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        np.testing.assert_array_equal([session.run(following) for _ in batches], first)
    assert (drawn(batches[0], 5, seed=2, **options) != first[0]).mean() > 0.5
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize(("positives", "num", "options"), [
    ([1], 0, {}), ([1], 2.0, {}), ([1.0], 2, {}), ([[1]], 2, {}), ([b"a"], 2, {"counts": [1, 2]}),
    ([1], 2, {"counts": [0, 2]}), ([1], 2, {"counts": [1, -2, 3]}), ([1], 2, {"counts": [[1, 2]]}),
    ([1], 2, {"counts": ["a", "b"]}), ([1], 2, {"counts": [1, np.nan, 3]}),
    ([1], 2, {"counts": [1, 2], "power": np.nan}), ([1], 2, {"counts": [1, 2], "power": np.inf}),
    ([1], 2, {"counts": [1, 1e200], "power": 2}), ([1], 2, {"counts": [1, 3], "power": -1e9}),
])
def test_a_wrong_argument_is_one_line(positives, num, options):
    """It says what is allowed."""
    with raises("bad_negatives"):
        drawn(np.array(positives), num, **options)
