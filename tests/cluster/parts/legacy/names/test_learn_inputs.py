"""The input functions of contrib.learn, beside what TensorFlow 1.15's DataFeeder fed."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import learn_inputs
from tests.tensorflow_mode import tf

NUMBERS = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)


def batches(input_fn, steps=None):
    """Returns the batches of an input function: all, or so many."""
    found = []
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(input_fn()).get_next()
        try:
            while steps is None or len(found) < steps:
                found.append(session.run(batch))
        except tf.errors.OutOfRangeError:
            return found
    return found


@pytest.mark.parametrize(("shape", "features", "label_shape", "labels"), [
    ([5], [5, 1], [5], [5]), ([5, 1], [5, 1], [5, 1], [5]), ([5, 1, 1], [5, 1, 1], [5, 1, 1], [5, 1])])
def test_features_have_two_axes_and_labels_one(shape, features, label_shape, labels):
    """Of one number for each example; in dictionaries and from iterators, too."""
    x, y = NUMBERS.reshape(shape), NUMBERS.reshape(label_shape)
    for given in ((x, y), (x.tolist(), y.tolist()), (iter(x), iter(y))):
        (found,) = batches(learn_inputs.make_input_fn(None, *given, batch_size=5, is_named=False))
        assert [list(array.shape) for array in found] == [features, labels]
    (found,) = batches(learn_inputs.make_input_fn(None, {"a": x, "word": np.array(list("vwxyz"))}, {"b": y}))
    assert [list(array.shape) for array in (found[0]["a"], found[0]["word"], found[1]["b"])] == [
        features, [5, 1], labels]
    assert found[0]["word"].ravel().tolist() == [b"v", b"w", b"x", b"y", b"z"]
    (found,) = batches(learn_inputs.make_input_fn(None, x))
    assert found[learn_inputs.KEY].ravel().tolist() == NUMBERS.tolist()


def test_an_epoch_has_each_example_once():
    """In the order of TensorFlow 1.15; the last batch of an epoch is smaller, and without a size there is one batch."""
    order = np.random.RandomState(42)
    first, second = (NUMBERS[order.permutation(5)] for _ in range(2))
    found = batches(learn_inputs.make_input_fn(None, NUMBERS, NUMBERS, 3, is_training=True), steps=4)
    assert [labels.tolist() for _, labels in found] == [list(part) for part in (
        first[:3], first[3:], second[:3], second[3:])]
    for size in (None, 128):
        found = batches(learn_inputs.make_input_fn(None, NUMBERS, NUMBERS, size, is_training=True), steps=2)
        assert [sorted(labels) for _, labels in found] == [NUMBERS.tolist()] * 2
    assert [len(labels) for _, labels in batches(learn_inputs.make_input_fn(None, NUMBERS, NUMBERS, 3))] == [3, 2]
    assert batches(learn_inputs.make_input_fn(None, NUMBERS[:0])) == []


def test_arrays_that_do_not_fit_are_refused():
    """Labels for other examples, and a size that is none."""
    with pytest.raises(ValueError, match=r"different numbers of examples: \[4, 5\]"):
        learn_inputs.make_input_fn(None, NUMBERS, NUMBERS[:4])
    with pytest.raises(ValueError, match="Invalid batch_size 0"):
        learn_inputs.make_input_fn(None, NUMBERS, NUMBERS, 0)
