"""Numpy arrays as a tf.data pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.graph.arrays import from_arrays
from ps_train.graph.batches import input_feed
from tests.tensorflow_mode import tf


def read(arrays, num_batches=None, **options):
    """Returns the first batches of `from_arrays`, or all, as lists of numpy arrays, and the graph."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(from_arrays(arrays, **options))
        element = iterator.get_next()
        session.run(iterator.initializer, feed_dict=input_feed(graph))
        found = []
        while num_batches is None or len(found) < num_batches:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                break
        return found, graph


def test_without_options_the_examples_come_once_in_order_the_last_batch_short():
    """Ten examples in batches of four: 4, 4 and 2, dtypes kept."""
    found, _ = read((np.arange(10, dtype=np.uint8), np.arange(10) * 2.0), batch_size=4)
    assert [list(numbers) for numbers, _ in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    np.testing.assert_array_equal(np.concatenate([doubles for _, doubles in found]), np.arange(10) * 2.0)
    assert found[0][0].dtype == np.uint8


def test_repeated_batches_are_full_and_go_over_the_end_of_an_epoch():
    """Three batches of four from six examples are two epochs, each example twice."""
    found, _ = read((np.arange(6),), num_batches=3, batch_size=4, repeat=True)
    assert [list(numbers) for (numbers,) in found] == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]


def test_a_batch_may_be_larger_than_all_examples():
    """Five of two examples, repeated and not."""
    repeated, _ = read((np.arange(2),), num_batches=2, batch_size=5, repeat=True)
    assert [list(numbers) for (numbers,) in repeated] == [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
    once, _ = read((np.arange(2),), batch_size=5)
    assert [list(numbers) for (numbers,) in once] == [[0, 1]]


def test_each_shuffled_epoch_has_every_example_once_in_another_order():
    """Two epochs of 50 examples are two different permutations, rows of the arrays staying together."""
    found, _ = read((np.arange(50), np.arange(50) + 100), num_batches=10, batch_size=10, shuffle=True, repeat=True,
                       seed=1)
    numbers = np.concatenate([batch[0] for batch in found])
    np.testing.assert_array_equal(np.concatenate([batch[1] for batch in found]), numbers + 100)
    for epoch in (numbers[:50], numbers[50:]):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(50))
    assert list(numbers[:50]) != list(numbers[50:])


def test_a_seed_fixes_the_order_and_another_seed_changes_it():
    """The same seed twice, then another one."""
    found = [read((np.arange(40),), batch_size=8, shuffle=True, seed=seed)[0] for seed in (5, 5, 6)]
    orders = [np.concatenate([numbers for (numbers,) in epoch]) for epoch in found]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert list(orders[0]) != list(orders[2])


def test_the_arrays_are_not_in_the_graph_def():
    """A megabyte of data leaves a graph of a few kilobytes."""
    _, graph = read((np.ones([1000, 1000], np.uint8),), batch_size=10)
    assert graph.as_graph_def().ByteSize() < 20_000


def test_lists_are_arrays_as_constants_are():
    """Of numbers, rows of them, and texts; a list of arrays stays a list."""
    lists = ({"x": [[0.5, 1], [1.5, 2]], "name": ["a", "b"], "both": [np.array([1, 2]), np.array([3, 4])]},
             [7, np.int64(8)])
    [(features, labels)], _ = read(lists, batch_size=2)
    np.testing.assert_array_equal(features["x"], np.array([[0.5, 1], [1.5, 2]], np.float32))
    assert features["x"].dtype == np.float32 and features["name"].tolist() == [b"a", b"b"]
    assert [one.tolist() for one in features["both"]] == [[1, 2], [3, 4]] and labels.tolist() == [7, 8]


@pytest.mark.parametrize("arrays", [([1, 2], [3]), ([], [])], ids=["unequal", "empty"])
def test_lists_of_unequal_or_no_length_are_refused(arrays):
    """As arrays are."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"got \[\d.*\] examples"):
        from_arrays(arrays, batch_size=1)


@pytest.mark.parametrize("arrays", [(np.zeros(3), np.zeros(4)), (np.zeros(0),)], ids=["unequal", "empty"])
def test_arrays_of_unequal_or_no_length_are_refused(arrays):
    """The error says how many examples there were."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"got \[\d.*\] examples"):
        from_arrays(arrays, batch_size=1)
