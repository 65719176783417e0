"""The dataset plug-in of drawn digits, and how hard they are to learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import ps_train
from data import digits

PARAMS = {"batch_size": 50, "data_dir": "not used", "seed": 1, **digits.DEFAULT_PARAMS}


def _batches(mode, num, shard=(0, 1)):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        dataset = digits.input_fn(mode, PARAMS, shard)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        session.run(iterator.initializer, feed_dict=ps_train.input_feed(graph))
        batch = iterator.get_next()
        return [session.run(batch) for _ in range(num)]


def _gradients(weights, x, y):
    """Of the mean cross-entropy of x -> [relu layers] -> softmax, by hand."""
    layers = [x]
    for matrix, bias in weights[:-1]:
        layers.append(np.maximum(layers[-1] @ matrix + bias, 0))
    logits = layers[-1] @ weights[-1][0] + weights[-1][1]
    error = np.exp(logits - logits.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    found = []
    for (matrix, _), layer in zip(reversed(weights), reversed(layers)):
        found.append((layer.T @ error, error.sum(axis=0)))
        error = error @ matrix.T * (layer > 0)
    return found[::-1]


def _test_accuracy(num_hidden, num_epochs, batch_size, learning_rate):
    """Of a softmax model with these hidden units, trained by Adam in plain numpy."""
    (images, labels), (test_images, test_labels) = digits.load()
    x, rng = images.astype(np.float32) / 255, np.random.default_rng(0)
    sizes = [784, *num_hidden, 10]
    weights = [
        [rng.standard_normal((before, after), np.float32) * np.sqrt(1 / before, dtype=np.float32),
         np.zeros(after, np.float32)] for before, after in zip(sizes, sizes[1:])
    ]
    moments = [[(0, 0)] * 2 for _ in weights]
    step = 0
    for _ in range(num_epochs):
        for rows in rng.permutation(len(x)).reshape(-1, batch_size):
            step += 1
            rate = np.float32(learning_rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step))
            for layer, pair in enumerate(_gradients(weights, x[rows], labels[rows])):
                for part, gradient in enumerate(pair):
                    mean, square = moments[layer][part]
                    mean = 0.9 * mean + 0.1 * gradient
                    square = 0.999 * square + 0.001 * gradient**2
                    moments[layer][part] = mean, square
                    weights[layer][part] -= rate * mean / (np.sqrt(square) + 1e-8)
    outputs = test_images.astype(np.float32) / 255
    for matrix, bias in weights[:-1]:
        outputs = np.maximum(outputs @ matrix + bias, 0)
    outputs = outputs @ weights[-1][0] + weights[-1][1]
    return (outputs.argmax(axis=1) == test_labels).mean()


def test_linear_model_is_not_enough():
    """A softmax model learns most digits, but trained until it gains no more is below 93 %."""
    assert 0.85 < _test_accuracy([], num_epochs=20, batch_size=600, learning_rate=1e-2) < 0.93


def test_hidden_layer_is_better():
    """A hidden layer of 100 units is right in more than 95 %."""
    assert _test_accuracy([100], num_epochs=8, batch_size=240, learning_rate=2e-3) > 0.95


def test_form():
    """12000 and 2000 rows of pixels, with as many of each digit, mixed."""
    for examples, num in zip(digits.load(), (12000, 2000)):
        assert examples.images.shape == (num, 784) and examples.images.dtype == np.uint8
        assert examples.labels.dtype == np.int32
        assert np.bincount(examples.labels).tolist() == [num // 10] * 10
        assert len(np.unique(examples.labels[:50])) > 5


def test_drawn_alike_on_every_worker():
    """A second drawing gives the same digits for any global seeds; another seed others."""
    first = digits.load()
    np.random.seed(5)
    again, other = digits.load.__wrapped__(), digits.load.__wrapped__(seed=2)
    for mine, same, different in zip(first, again, other):
        assert np.array_equal(mine.images, same.images)
        assert np.array_equal(mine.labels, same.labels)
        assert not np.array_equal(mine.images, different.images)


def test_test_set_is_apart():
    """No image of the test set is one of the training set."""
    train, test = ({row.tobytes() for row in examples.images} for examples in digits.load())
    assert len(train) == 12000 and len(test) == 2000 and not train & test


def test_drawn_once_in_a_process():
    """The second call has nothing to draw."""
    assert digits.load() is digits.load()


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_batches(mode):
    """Batches are float32 [batch, 784] in [0, 1] and int32 labels."""
    features, labels = _batches(mode, 1)[0]
    assert features.dtype == np.float32 and labels.dtype == np.int32
    assert features.shape == (50 if mode == "train" else 1000, 784)
    assert features.min() == 0 and 0.5 < features.max() <= 1


def test_evaluation_has_the_whole_test_set():
    """Two batches of 1000 are the test set, in order."""
    features, labels = (np.concatenate(parts) for parts in zip(*_batches("eval", 2)))
    test = digits.load().test
    np.testing.assert_array_equal(labels, test.labels)
    np.testing.assert_allclose(features, test.images / 255, rtol=1e-6)


def test_worker_has_its_own_examples():
    """Worker 2 of 100 goes through its 120 images, once an epoch."""
    features, _ = (np.concatenate(parts) for parts in zip(*_batches("train", 12, (2, 100))))
    mine = digits.load().train.images[2::100]
    found = np.rint(features * 255).astype(np.uint8)
    assert sorted(row.tobytes() for row in found) == sorted(
        row.tobytes() for row in np.repeat(mine, 5, axis=0))


def test_nothing_to_prepare(tmp_path):
    """No file is fetched or written."""
    digits.prepare({**PARAMS, "data_dir": str(tmp_path / "absent")})
    assert list(tmp_path.iterdir()) == []
