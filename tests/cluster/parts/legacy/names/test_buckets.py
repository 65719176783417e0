"""Batches of examples of about one length."""

from __future__ import annotations

import pytest

from ps_train.parts.legacy.names import buckets
from tests.tensorflow_mode import tf


def test_each_batch_has_examples_of_one_bucket_padded_to_the_longest():
    """Lengths 1 to 7, boundaries 3 and 5: all 100 examples come out, none with one of another bucket."""
    seen: list[int] = []
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.train.range_input_producer(100, num_epochs=1, shuffle=False).dequeue()
        length = tf.mod(number, 7) + 1
        lengths, batch = buckets.bucket_by_sequence_length(
            length, {"x": tf.fill(tf.reshape(length, [1]), number)}, 4, [3, 5], dynamic_pad=True,
            allow_smaller_final_batch=True)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                found, values = session.run([lengths, batch])
                assert len({(n >= 3) + (n >= 5) for n in found}) == 1
                assert values["x"].shape == (len(found), max(found))
                seen += values["x"][:, 0].tolist()
        coordinator.request_stop()
        coordinator.join(threads)
    assert sorted(seen) == list(range(100))


def test_boundaries_must_ascend():
    """The message says what was given."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"ascending, and at least one; got \[5, 3\]"):
        buckets.bucket_by_sequence_length(tf.constant(1), [tf.constant([1])], 2, [5, 3])
