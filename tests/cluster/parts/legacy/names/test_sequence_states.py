"""Segments of sequences with states of tf.contrib.training.

The values, shapes and names of the summary and of the queue runner are those of TensorFlow 1.15.5.
"""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names.sequence_states import SequenceQueueingStateSaver, batch_sequences_with_states
from tests.tensorflow_mode import tf

LENGTHS = (4, 6, 2, 7)
UNROLL = 3


def read_all(session, batch, fetches):
    """Returns the rows of all batches, by the keys of the segments, and the sizes of the batches."""
    rows, sizes = {}, []
    while True:
        try:
            values = session.run({"key": batch.key, **fetches}, options=tf.RunOptions(timeout_in_ms=30000))
        except tf.errors.OutOfRangeError:
            return rows, sizes
        sizes.append(len(values["key"]))
        for number, key in enumerate(values["key"]):
            rows[key.decode()] = {name: value[number] for name, value in values.items() if value is not None}


def make_inputs(is_padded):
    """Returns key, sequences, context and number of steps of the next sequence."""
    steps = LENGTHS if is_padded else [-(-length // UNROLL) * UNROLL for length in LENGTHS]
    number, length, own = tf.train.slice_input_producer(
        [np.arange(len(LENGTHS), dtype=np.int32), np.int32(steps), np.int32(LENGTHS)], num_epochs=1, shuffle=False)
    range_ = tf.range(length)
    every_step = tf.SparseTensor(tf.cast(tf.stack([range_, range_ % 4], 1), tf.int64), range_ * 7,
                                 tf.cast(tf.stack([length, 4]), tf.int64))
    ids = tf.SparseTensor(tf.cast(tf.range(number + 1)[:, tf.newaxis], tf.int64), tf.range(number + 1) + 10 * number,
                          tf.constant([5], tf.int64))
    sequences = {"x": tf.cast(range_ + 10 * number, tf.float32)[:, tf.newaxis], "words": tf.as_string(range_),
                 "sparse": every_step}
    return tf.strings.join(["k", tf.as_string(number)]), sequences, {"number": number, "ids": ids}, own


@pytest.mark.parametrize("is_padded", [True, False])
def test_segments_with_their_states(is_padded):
    """A state is what the segment before has saved; sparse sequences and context come back as such."""
    with tf.Graph().as_default(), tf.Session() as session:
        key, sequences, context, length = make_inputs(is_padded)
        batch = batch_sequences_with_states(
            key, sequences, context, None if is_padded else length, {"sum": tf.zeros([1])}, UNROLL, batch_size=2,
            num_threads=1, capacity=10, pad=is_padded)
        total = batch.state("sum") + tf.reduce_sum(batch.sequences["x"], 1)
        fetches = {
            "next_key": batch.next_key, "length": batch.length, "total_length": batch.total_length,
            "sum": batch.state("sum"), "number": batch.context["number"], "x": batch.sequences["x"],
            "words": batch.sequences["words"], "sparse": tf.sparse.to_dense(batch.sequences["sparse"]),
            "ids": tf.sparse.to_dense(batch.context["ids"]), "saved": batch.save_state("sum", total),
            "count": batch.sequence_count, "index": batch.insertion_index}
        assert batch.sequences["x"].shape.as_list() == [None, UNROLL, 1]
        assert [each.queue.name for each in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)][-1] == \
            "batch_sequences_with_states/InputQueueingStateSaver/"
        assert any(each.name.endswith("queue/batch_sequences_with_states/InputQueueingStateSaver/barrier/"
                                      "ready_segment_batches_") for each in tf.get_default_graph().get_operations())
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        tf.train.Coordinator().join(tf.train.start_queue_runners(session), stop_grace_period_secs=60)
        rows, sizes = read_all(session, batch, fetches)
    assert sizes == [2, 2, 2, 1, 1]
    for number, length in enumerate(LENGTHS):
        count, total = -(-length // UNROLL), 0
        for segment in range(count):
            row = rows[f"{segment:05d}_of_{count:05d}:k{number}"]
            steps = np.arange(segment * UNROLL, (segment + 1) * UNROLL)
            is_there = steps < (length if is_padded else 100)
            x = np.where(is_there, steps + 10 * number, 0)
            following = f"STOP:k{number}" if segment + 1 == count else f"{segment + 1:05d}_of_{count:05d}:k{number}"
            assert row["next_key"].decode() == following and row["index"] == number - 2 ** 63
            assert (row["length"], row["total_length"], row["count"], row["number"]) == (
                min(UNROLL, length - segment * UNROLL), length, count, number)
            assert row["sum"] == [total]
            np.testing.assert_array_equal(row["x"][:, 0], x)
            assert row["words"].tolist() == [b"%d" % step if there else b"" for step, there in zip(steps, is_there)]
            sparse = np.eye(4, dtype=int)[steps % 4] * (7 * steps * is_there)[:, None]
            np.testing.assert_array_equal(row["sparse"], sparse)
            ids = [10 * number + each if each <= number else 0 for each in range(5)]
            np.testing.assert_array_equal(row["ids"], ids)
            total += x.sum()


def make_saver(**arguments):
    """Returns a saver of sequences that are fed, and the placeholders."""
    key, length = tf.placeholder(tf.string, []), tf.placeholder(tf.int32, [])
    x = tf.placeholder(tf.float32, [None])
    saver = SequenceQueueingStateSaver(2, 2, length, key, {"x": x}, {}, {"last": [0.0]}, **arguments)
    return saver, {"key": key, "length": length, "x": x}


def feed(places, key, values, length=None):
    """Returns what feeds a sequence."""
    return {places["key"]: key, places["x"]: values, places["length"]: len(values) if length is None else length}


def test_the_state_saver_with_a_recurrent_network():
    """`tf.nn.static_state_saving_rnn` reads and saves the states."""
    with tf.Graph().as_default(), tf.Session() as session:
        saver, places = make_saver(capacity=4)
        batch = saver.next_batch
        assert batch is saver.next_batch and saver.num_unroll == 2

        class Sum(tf.nn.rnn_cell.RNNCell):
            """Adds up."""

            state_size = output_size = 1

            def call(self, inputs, state):
                """Returns the sum as output and state."""
                return inputs + state, inputs + state

        outputs, _ = tf.nn.static_state_saving_rnn(
            Sum(), tf.unstack(batch.sequences["x"][:, :, tf.newaxis], axis=1), batch, "last")
        for key, values in (("a", [1, 2, 3, 4]), ("b", [5, 6, 7, 8])):
            session.run(saver.prefetch_op, feed(places, key, values))
        for expected in ([[1, 5], [3, 11]], [[6, 18], [10, 26]]):
            np.testing.assert_array_equal(np.squeeze(session.run(outputs), -1), expected)
        session.run(saver.close())
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(batch.key)


def test_lengths_are_checked():
    """Of a sequence without whole segments, and of one that is shorter than its length."""
    with tf.Graph().as_default(), tf.Session() as session:
        saver, places = make_saver()
        with pytest.raises(tf.errors.InvalidArgumentError, match="of x must fill whole segments of num_unroll=2"):
            session.run(saver.prefetch_op, feed(places, "a", [1, 2, 3]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="input_length is greater"):
            session.run(saver.prefetch_op, feed(places, "a", [1, 2], length=3))


@pytest.mark.parametrize("changes, error, message", [
    ({"capacity": 1}, ValueError, "got capacity=1, batch_size=2"),
    ({"initial_states": {}}, ValueError, "one initial state"),
    ({"initial_states": {"a:b": 0}}, ValueError, "state must have no colon, got 'a:b'"),
    ({"input_context": []}, TypeError, "must be a dict"),
    ({"input_context": {1: 0}}, TypeError, "context must be text, got 1"),
    ({"input_length": np.int64(2)}, TypeError, "must be int32"),
    ({"input_sequences": {"x": tf.TensorSpec([None, None])}}, ValueError, "not fully defined behind the first")])
def test_arguments_are_checked(changes, error, message):
    """Names, types and shapes."""
    with tf.Graph().as_default():
        arguments = {"input_length": 2, "input_key": "a", "input_sequences": {"x": [1, 2]}, "input_context": {},
                     "initial_states": {"state": 0}, **changes}
        for name, value in arguments["input_sequences"].items():
            if isinstance(value, tf.TensorSpec):
                arguments["input_sequences"] = {name: tf.placeholder(tf.float32, value.shape)}
        with pytest.raises(error, match=message):
            SequenceQueueingStateSaver(2, 2, **arguments)


def test_states_are_known_by_name_and_shape():
    """Others are refused."""
    with tf.Graph().as_default():
        batch = make_saver()[0].next_batch
        with pytest.raises(KeyError, match="not declared: other"):
            batch.save_state("other", batch.state("last"))
        with pytest.raises(ValueError):
            batch.save_state("last", tf.zeros([2, 3]))


def test_keys_are_made_unique():
    """By a random number behind them."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = batch_sequences_with_states(
            tf.constant("a"), {"x": tf.ones([1])}, {}, None, {"state": 0}, 1, batch_size=2, num_threads=1,
            capacity=2, make_keys_unique=True, make_keys_unique_seed=3)
        saved = batch.save_state("state", batch.state("state"))
        coordinator = tf.train.Coordinator()
        tf.train.start_queue_runners(session, coordinator)
        keys = session.run([batch.key, saved], options=tf.RunOptions(timeout_in_ms=30000))[0]
        coordinator.request_stop()
    assert len(set(keys)) == 2 and all(key.startswith(b"00000_of_00001:a") for key in keys)
