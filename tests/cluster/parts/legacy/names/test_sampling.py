"""Examples that are chosen by chance; TensorFlow 1.15.5's own tests of these functions pass, too."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from ps_train.parts.legacy.names import sampling
from tests.tensorflow_mode import tf


@contextlib.contextmanager
def running(make):
    """Gives a session in which the queues of `make()` are filled, and what it returns."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        made = make()
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            yield session, made
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=10)


@pytest.mark.parametrize("enqueue_many", [False, True])
def test_only_accepted_examples_are_in_a_batch(enqueue_many):
    """All tensors of an example stay together."""
    def make():
        number = tf.random_uniform([3] if enqueue_many else [], 0, 10, tf.int32)
        return sampling.rejection_sample(
            [number, 2 * number], lambda example: tf.cast(tf.equal(example[0] % 2, 0), tf.float32), 20,
            enqueue_many=enqueue_many, runtime_checks=True)
    with running(make) as (session, batch):
        numbers, doubled = session.run(batch)
    assert numbers.shape == (20,) and not (numbers % 2).any() and (doubled == 2 * numbers).all()


@pytest.mark.parametrize("shares", [None, [0.5, 0.3, 0.2]])
def test_classes_have_the_wanted_shares(shares):
    """The shares in the data are given, or counted. A class that is not wanted never comes."""
    def make():
        chance = tf.random_uniform([])
        label = tf.cast(chance > 0.5, tf.int32) + tf.cast(chance > 0.8, tf.int32)
        return sampling.stratified_sample([tf.cast(label, tf.float32) * 3], label, [0.3, 0.0, 0.7], 400, shares)
    with running(make) as (session, ([values], labels)):
        batches = [session.run([values, labels]) for _ in range(5)]
    labels = np.concatenate([batch[1] for batch in batches[1:]])  # those of the first were counted from few
    assert all((batch[0] == 3 * batch[1]).all() for batch in batches)
    np.testing.assert_allclose(np.bincount(labels, minlength=3) / len(labels), [0.3, 0, 0.7], atol=0.06)


def test_shares_that_cannot_be_are_refused():
    """When the graph is made, where they are known; otherwise in the step."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match="add up to 1"):
        sampling.stratified_sample([tf.zeros([])], tf.zeros([], tf.int32), [0.5, 0.6], 2)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="not compatible"):
        sampling.stratified_sample([tf.zeros([3])], tf.zeros([2], tf.int32), [0.5, 0.5], 2, enqueue_many=True)


def test_rows_are_repeated_at_their_rates():
    """By weights, at the overall rate; no gradients go back unless they are wanted."""
    values = np.arange(3, dtype=np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(2)
        rows = tf.tile(tf.constant(values), [1000])
        rates = tf.tile(tf.constant([0.0, 0.5, 2.0]), [1000])
        (taken,) = sampling.resample_at_rate([rows], rates)
        (learned,) = sampling.resample_at_rate([rows], rates, back_prop=True)
        assert tf.gradients(taken, rows) == [None] and tf.gradients(learned, rows) != [None]
        counts = np.bincount(session.run(taken).astype(int), minlength=3)
        np.testing.assert_allclose(counts / 1000, [0, 0.5, 2], atol=0.1)
        (weighted,), of_rows = sampling.weighted_resample([rows], tf.tile(tf.constant([1.0, 1.0, 4.0]), [1000]), 0.5)
        session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        weighted, of_rows = session.run([weighted, of_rows])
    counts = np.bincount(weighted.astype(int), minlength=3)
    np.testing.assert_allclose(counts / 1000, [0.25, 0.25, 1], atol=0.1)
    np.testing.assert_allclose(of_rows, np.where(weighted == 2, 1, 0.25), rtol=1e-4)
