"""Further functions of tf.contrib, beside numpy and beside TensorFlow's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps_train.parts.legacy.names import more_functions
from tests.tensorflow_mode import tf


def evaluate(build):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build())


def elements(dataset):
    """Returns all elements of a dataset."""
    get_next = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with tf.Session() as session:
        try:
            while True:
                found.append(session.run(get_next))
        except tf.errors.OutOfRangeError:
            return found


def test_a_shape_is_asserted_when_it_is_known():
    """Before the session runs, in it, for the shape of another tensor; one number may be in a vector."""
    with tf.Graph().as_default(), tf.Session() as session:
        vague = tf.placeholder(tf.float32, [None, 2])
        known = tf.zeros([3, 2])
        assert more_functions.with_shape([3, 2], known) is known
        assert more_functions.with_shape([3, 2], vague).shape.as_list() == [3, 2]
        assert more_functions.with_same_shape(known, vague).shape.as_list() == [3, 2]
        assert more_functions.with_shape([], tf.zeros([1])).shape.rank == 0
        with pytest.raises(ValueError, match="Invalid shape"):
            more_functions.with_shape([2, 2], known)
        for checked in (more_functions.with_shape([3, 2], vague), more_functions.with_same_shape(vague + 1, known),
                        more_functions.with_shape(tf.constant([3, 2]), vague)):
            session.run(checked, {vague: np.zeros([3, 2])})
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(checked, {vague: np.zeros([1, 2])})
        assert session.run(more_functions.reduce_sum_n([known + 1, tf.constant(4.0)])) == 10
        assert session.run(more_functions.assert_scalar_int(7)) == 7
        with pytest.raises(ValueError, match="integer"):
            more_functions.assert_scalar_int(7.0)


def test_alpha_dropout_keeps_mean_and_variance():
    """Of 10^5 normal numbers; what is dropped has one value; nothing is dropped at 1."""
    numbers = np.random.default_rng(5).normal(size=100_000).astype(np.float32)
    kept, same = evaluate(lambda: (more_functions.alpha_dropout(numbers, 0.7, seed=1),
                                   more_functions.alpha_dropout(numbers, 1.0)))
    assert abs(kept.mean()) < 0.02 and abs(kept.var() - 1) < 0.02 and (same == numbers).all()
    values, counts = np.unique(kept, return_counts=True)
    scale = (0.7 + 0.7 * 0.3 * 1.7580993408473766 ** 2) ** -0.5
    assert abs(counts.max() / 100_000 - 0.3) < 0.01
    np.testing.assert_allclose(values[counts.argmax()], scale * -1.7580993408473766 * (1 - 0.3), rtol=1e-4)
    with pytest.raises(ValueError, match="keep_prob"):
        more_functions.alpha_dropout(numbers, 0.0)


def test_scaled_softplus_and_its_gradient():
    """At most the bound, where nothing flows back."""
    x = np.array([-1.0, 0.5, 4.0], np.float32)
    def build():
        numbers = tf.constant(x)
        y = more_functions.scaled_softplus(numbers, 2.0, clip=3.0)
        return y, tf.gradients(y, numbers)[0]
    y, gradient = evaluate(build)
    np.testing.assert_allclose(y, np.minimum(2 * np.log1p(np.exp(x / 2)), 3), rtol=1e-5)
    np.testing.assert_allclose(gradient, np.where(y < 3, 1 / (1 + np.exp(-x / 2)), 0), rtol=1e-5)


def test_a_sampled_loss_of_one_label_is_that_of_sampled_softmax_loss():
    """With the same sampled classes."""
    rng = np.random.default_rng(6)
    weights, biases, inputs = (rng.normal(size=size).astype(np.float32) for size in ((9, 4), (9,), (3, 4)))
    labels = np.array([[1], [8], [0]])
    def build():
        sampled = tf.nn.learned_unigram_candidate_sampler(tf.constant(labels), 1, 5, True, 9)
        arguments = (weights, biases, tf.constant(labels), inputs, 5, 9)
        return (more_functions.sampled_sparse_softmax_loss(*arguments, sampled_values=sampled),
                tf.nn.sampled_softmax_loss(*arguments, sampled_values=sampled))
    ours, theirs = evaluate(build)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def projection(z):
    """Returns the point of the simplex that is nearest to z, by bisection on the threshold."""
    low, high = z.min() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(z - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(z - low, 0)


def test_sparsemax_is_the_nearest_point_of_the_simplex():
    """And the gradient of its loss is the difference to the labels; a row with a nan is all nan."""
    z = np.random.default_rng(7).normal(size=(4, 5)).astype(np.float32) * 2
    q = np.eye(5, dtype=np.float32)[[0, 1, 2, 3]]
    def build():
        logits = tf.constant(z)
        p = more_functions.sparsemax(logits)
        loss = more_functions.sparsemax_loss(logits, tf.stop_gradient(p), q)
        return p, loss, tf.gradients(loss, logits)[0], more_functions.sparsemax(tf.constant([[float("nan"), 1.0]]))
    p, loss, gradient, of_nan = evaluate(build)
    np.testing.assert_allclose(p, [projection(row) for row in z], atol=1e-5)
    np.testing.assert_allclose(gradient, p - q, atol=1e-5)
    np.testing.assert_allclose(loss, (p * (z - p / 2)).sum(1) + (q * (q / 2 - z)).sum(1), rtol=1e-4, atol=1e-5)
    assert np.isnan(of_nan).all()


def test_windows_slide_over_a_dataset():
    """Of numbers, and of structures; each batch is whole."""
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.range(7)
        slide = more_functions.sliding_window_batch
        assert [batch.tolist() for batch in elements(numbers.apply(slide(3)))] == [
            [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
        found = elements(numbers.map(lambda x: {"x": x, "y": (x + 1, -x)}).apply(slide(2, stride=3, window_stride=2)))
        assert [(batch["x"].tolist(), batch["y"][1].tolist()) for batch in found] == [
            ([0, 2], [0, -2]), ([3, 5], [-3, -5])]
        pairs = elements(tf.data.Dataset.zip((numbers, numbers)).apply(slide(2, window_shift=5)))
        assert [batch[1].tolist() for batch in pairs] == [[0, 1], [5, 6]]
        with pytest.raises(ValueError, match="both"):
            slide(2, stride=1, window_shift=1)


def test_the_shapes_of_elements_are_asserted():
    """Those of a structure; an element of another one is an error where it comes."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tf.data.Dataset.from_generator(
            lambda: iter([(1, [1, 2]), (2, [1])]), (tf.int32, tf.int32), ([], [None]))
        checked = dataset.apply(more_functions.assert_element_shape((tf.TensorShape([]), tf.TensorShape([2]))))
        assert tf.data.get_output_shapes(checked)[1].as_list() == [2]
        get_next = tf.data.make_one_shot_iterator(checked).get_next()
        assert session.run(get_next)[1].tolist() == [1, 2]
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(get_next)


def test_examples_are_read_in_batches(tmp_path):
    """In their order, if they are not shuffled."""
    path = str(tmp_path / "examples")
    with tf.python_io.TFRecordWriter(path) as writer:
        for number in range(4):
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))})).SerializeToString())
    with tf.Graph().as_default(), tf.Session() as session:
        batch = more_functions.contrib_data_read_batch_features(
            path, 2, {"x": tf.FixedLenFeature([], tf.int64)}, randomize_input=False, num_epochs=1)
        assert [session.run(batch)["x"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]


def test_a_transposed_convolution_takes_its_older_names():
    """value, filter and stride."""
    ones = np.ones((1, 2, 1), np.float32)
    result = evaluate(lambda: more_functions.conv1d_transpose(
        value=ones, filter=np.ones((2, 1, 1), np.float32), output_shape=[1, 4, 1], stride=2))
    assert result.ravel().tolist() == [1, 1, 1, 1]


def test_a_model_for_several_towers_is_the_model():
    """Its optimizer, too, or what a function returns."""
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    assert more_functions.replicate_model_fn(test_examples_are_read_in_batches) is test_examples_are_read_in_batches
    assert more_functions.tower_optimizer(optimizer) is optimizer
    assert more_functions.tower_optimizer(lambda: optimizer) is optimizer


def test_a_standard_server_is_that_of_tf_config(monkeypatch):
    """The arguments go to `tf.train.Server`; a TF_CONFIG without a task is refused."""
    made = []
    monkeypatch.setattr(tf.train, "Server", lambda *args: made.append(args))
    monkeypatch.setattr(more_functions.tf.train, "Server", tf.train.Server)
    cluster = {"worker": ["a:1", "b:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": "1"}}))
    more_functions.run_standard_tensorflow_server()
    assert made == [(cluster, "worker", 1, "grpc", None)]
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))
    with pytest.raises(ValueError, match='"task" is not found'):
        more_functions.run_standard_tensorflow_server()


def test_a_lookup_that_takes_each_row_once():
    """Ids of any shape, from rows in several parts; the gradient of a row has it once, with the sum."""
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    ids = np.array([[4, 1, 4], [0, 5, 1]])

    def build():
        parts = [tf.constant(table[:3]), tf.constant(table[3:])]
        rows = more_functions.embedding_lookup_unique(parts, ids, "div")
        return [rows, tf.gradients(rows, parts[1])[0].indices, tf.gradients(rows, parts[1])[0].values]
    rows, indices, values = evaluate(build)
    np.testing.assert_array_equal(rows, table[ids])
    assert dict(zip(indices.tolist(), values.tolist())) == {1: [2, 2], 2: [1, 1]}
