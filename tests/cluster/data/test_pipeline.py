"""Images in memory as a tf.data.Dataset: which examples a mode and a shard give, and their form."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import ps_train
from data.examples import Examples, Splits
from data.pipeline import image_dataset, shard_seed
from tests.errors import raises


def _examples(num, first=0):
    """Examples whose label is their number, and whose pixels are what it leaves of 256."""
    labels = np.arange(first, first + num, dtype=np.int32)
    return Examples(np.repeat(labels[:, None], 784, axis=1).astype(np.uint8), labels)


SPLITS = Splits(train=_examples(7), test=_examples(2500, first=100))


def _batches(mode, shard=(0, 1), num=None, batch_size=4, seed=1, splits=SPLITS, **params):
    """The first `num` batches, or all."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        dataset = image_dataset(splits, mode, {"batch_size": batch_size, "seed": seed, **params}, shard)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        session.run(iterator.initializer, feed_dict=ps_train.input_feed(graph))
        batch = iterator.get_next()
        found = []
        while num is None or len(found) < num:
            try:
                found.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                break
        return found


def _labels(*arguments, **options):
    return np.concatenate([labels for _, labels in _batches(*arguments, **options)]).tolist()


@pytest.mark.parametrize("mode", ["train", "eval", "infer"])
def test_form_of_a_batch(mode):
    """Features are float32 [batch, 784] in [0, 1], 255 being exactly 1; labels int32 [batch]."""
    features, labels = _batches(mode, num=1)[0]
    assert features.dtype == np.float32 and labels.dtype == np.int32
    expected = np.repeat((labels % 256)[:, None] / 255, 784, axis=1)
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    assert features.shape == (len(labels), 784) and features.max() <= 1


def test_white_is_one():
    """The brightest pixel is 1, and not a rounding more."""
    white = Examples(np.full((2, 784), 255, np.uint8), np.zeros(2, np.int32))
    features, _ = _batches("eval", splits=Splits(white, white))[0]
    assert (features == 1).all()


def test_training_goes_on_for_ever_in_full_batches():
    """Each epoch has every example once, in another order; batches go across its end."""
    batches = _batches("train", num=7)
    assert {len(labels) for _, labels in batches} == {4}
    labels = np.concatenate([labels for _, labels in batches]).reshape(4, 7)
    assert (np.sort(labels) == np.arange(7)).all()
    assert len({tuple(epoch) for epoch in labels}) > 1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_share_out_the_training_set(count):
    """An epoch of all workers has every training example once."""
    labels = []
    for index in range(count):
        size = len(range(index, 7, count))
        labels += _labels("train", shard=(index, count), batch_size=size, num=1)
    assert sorted(labels) == list(range(7))


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_test_set_comes_once_in_order(mode):
    """The whole test set in the order of the file, the last batch short, by its own batch size."""
    batches = _batches(mode)
    assert [len(labels) for _, labels in batches] == [1000, 1000, 500]
    assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(100, 2600))


def test_sharded_evaluation():
    """A shard of the test set is honoured when it is asked for."""
    assert _labels("eval", shard=(1, 3)) == list(range(101, 2600, 3))


def test_seed_decides_the_order():
    """The same seed gives the same order, another one another."""
    first, again, other = (_labels("train", num=5, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_workers_do_not_shuffle_alike():
    """Of two workers with one seed, each takes its own places in another order."""
    splits = Splits(_examples(40), SPLITS.test)
    places = [
        [label // 2 for label in _labels("train", (index, 2), 1, 20, splits=splits)]
        for index in range(2)
    ]
    assert sorted(places[0]) == sorted(places[1]) and places[0] != places[1]


@pytest.mark.parametrize("seed, expected", [(5, 8), (0, 3), (None, None)])
def test_seed_of_a_shard(seed, expected):
    """It is the seed plus the shard's index; None stays None."""
    assert shard_seed(seed, 3) == expected


def test_no_seed():
    """Without a seed two runs differ: 40 examples have 40! orders."""
    splits = Splits(_examples(40), SPLITS.test)
    first, second = (
        _labels("train", num=1, batch_size=40, seed=None, splits=splits) for _ in range(2)
    )
    assert sorted(first) == sorted(second) and first != second


def test_more_workers_than_examples():
    """A worker without an example gets an error."""
    with raises("too_few_examples"):
        _batches("train", shard=(7, 8))


def test_images_stay_out_of_the_graph():
    """The GraphDef is small for any number of images."""
    with tf.Graph().as_default() as graph:
        image_dataset(SPLITS, "eval", {"batch_size": 4, "seed": None}, (0, 1))
        assert graph.as_graph_def().ByteSize() < 20000


def test_a_validation_set_is_taken_from_the_end_of_the_training_examples():
    """Training has the others, and the test set stays what it is."""
    assert sorted(_labels("train", num=1, batch_size=5, validation_size=2)) == [0, 1, 2, 3, 4]
    assert _labels("validation", validation_size=2) == [5, 6]
    assert _labels("eval", validation_size=2) == _labels("eval")


@pytest.mark.parametrize("size", [-1, 7])
def test_a_validation_set_leaves_something_to_train_on(size):
    """Else one line that says how many there may be."""
    with raises("parameter_out_of_range"):
        _batches("train", validation_size=size)
