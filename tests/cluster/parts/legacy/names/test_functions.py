"""Functions and placement strategies of tf.contrib, and the tutorials' model and data."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import examples, functions
from tests.tensorflow_mode import tf

LOGITS = np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 5
TARGETS = np.array([[0, 1, 2], [3, 0, 1]], np.int32)
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]], np.float32)


@pytest.mark.parametrize(("over_time", "over_batch", "axes"), [
    (True, True, (0, 1)), (True, False, (1,)), (False, True, (0,)), (False, False, ())])
def test_sequence_loss_is_the_weighted_cross_entropy(over_time, over_batch, axes):
    """Averaged over the weights along the chosen axes; padding, with weight 0, has no part."""
    log_softmax = LOGITS - np.log(np.exp(LOGITS).sum(axis=2, keepdims=True))
    losses = -np.take_along_axis(log_softmax, TARGETS[..., None], axis=2)[..., 0] * WEIGHTS
    with tf.Graph().as_default(), tf.Session() as session:
        loss = functions.sequence_loss(tf.constant(LOGITS), tf.constant(TARGETS), tf.constant(WEIGHTS), over_time,
                                       over_batch)
        expected = losses.sum(axis=axes) / np.maximum(WEIGHTS.sum(axis=axes), 1e-12) if axes else losses
        np.testing.assert_allclose(session.run(loss), expected, rtol=1e-5)


@pytest.mark.parametrize(("over_time", "over_batch", "axes"), [
    (True, True, (0, 1)), (True, False, (1,)), (False, True, (0,))])
def test_sequence_loss_may_be_divided_by_the_number_of_its_terms(over_time, over_batch, axes):
    """Since 1.14: sum_over_timesteps and sum_over_batch, by name and by place; weights of 2 count once."""
    weights = WEIGHTS * 2
    log_softmax = LOGITS - np.log(np.exp(LOGITS).sum(axis=2, keepdims=True))
    losses = -np.take_along_axis(log_softmax, TARGETS[..., None], axis=2)[..., 0] * weights
    expected = losses.sum(axis=axes) / np.maximum((weights != 0).sum(axis=axes), 1)
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = tf.constant(LOGITS), tf.constant(TARGETS), tf.constant(weights)
        by_name = functions.sequence_loss(*tensors, False, False, sum_over_timesteps=over_time,
                                          sum_over_batch=over_batch)
        by_place = functions.sequence_loss(*tensors, False, False, over_time, over_batch, None, "loss")
        for loss in session.run([by_name, by_place]):
            np.testing.assert_allclose(loss, expected, rtol=1e-5)
        assert by_place.op.name.startswith("loss/")
        with pytest.raises(ValueError, match="not both, for an axis"):
            functions.sequence_loss(*tensors, sum_over_timesteps=True)


def test_sequence_loss_takes_a_function_by_place_as_before_1_14():
    """The sixth argument; here the loss of each step is 3."""
    with tf.Graph().as_default(), tf.Session() as session:
        loss = functions.sequence_loss(
            tf.constant(LOGITS), tf.constant(TARGETS), tf.constant(WEIGHTS), True, True,
            lambda labels, logits: tf.fill(tf.shape(labels), 3.0))
        assert session.run(loss) == 3.0


def test_embed_sequence_looks_up_rows_of_a_variable():
    """[batch, time] of numbers become [batch, time, dimensions]; `reuse` takes the same variable."""
    with tf.Graph().as_default(), tf.Session() as session:
        initializer = tf.constant_initializer(np.arange(6).reshape(3, 2))
        one = functions.embed_sequence(tf.constant([[2, 0]]), 3, 2, initializer=initializer, scope="words")
        other = functions.embed_sequence(tf.constant([[2, 0]]), scope="words", reuse=True)
        session.run(tf.global_variables_initializer())
        assert session.run([one, other])[0].tolist() == [[[4, 5], [0, 1]]]
        assert session.run(other).tolist() == [[[4, 5], [0, 1]]] and len(tf.global_variables()) == 1


def test_embed_sequence_may_reuse_what_there_is():
    """With AUTO_REUSE the first call makes the variable, which is one of the model's."""
    with tf.Graph().as_default():
        for _ in range(2):
            functions.embed_sequence(tf.constant([[2, 0]]), 3, 2, scope="words", reuse=tf.AUTO_REUSE)
        assert [variable.op.name for variable in tf.model_variables()] == ["words/embeddings"]


@pytest.mark.parametrize(("is_sparse", "expected"), [(True, [[4, 5], [1, 2]]), (False, [[2, 3], [1, 2]])])
def test_bow_encoder_is_the_mean_of_the_rows(is_sparse, expected):
    """Without the zeros if it looks up sparsely; an example without any other has the row 0."""
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.constant_initializer(np.arange(6).reshape(3, 2))
        encoded = functions.bow_encoder(tf.constant([[2, 0], [0, 1]]), 3, 2, is_sparse, rows)
        empty = functions.bow_encoder(tf.constant([[0, 0]]), 3, 2, initializer=rows)
        session.run(tf.global_variables_initializer())
        values = session.run(encoded)
        assert values[0].tolist() == expected[0]
        assert values[1].tolist() == ([2, 3] if is_sparse else expected[1]) and session.run(empty).tolist() == [[0, 1]]


def test_transpose_batch_time_swaps_the_first_two_axes():
    """Whatever comes after them."""
    with tf.Graph().as_default(), tf.Session() as session:
        np.testing.assert_array_equal(session.run(functions.transpose_batch_time(LOGITS)), LOGITS.transpose(1, 0, 2))


def test_the_model_of_the_tutorial_learns():
    """Its four functions: the loss falls, and evaluation counts what is right."""
    images = np.random.RandomState(0).uniform(size=(20, examples.IMAGE_PIXELS)).astype(np.float32)
    labels = np.arange(20) % examples.NUM_CLASSES
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(0)
        logits = examples.mnist_inference(tf.constant(images), 32, 16)
        loss = examples.mnist_loss(logits, tf.constant(labels))
        train_op = examples.mnist_training(loss, 0.1)
        num_right = examples.mnist_evaluation(logits, tf.constant(labels))
        session.run(tf.global_variables_initializer())
        first, right_at_first = session.run([loss, num_right])
        for _ in range(200):
            session.run(train_op)
        last, right_at_last = session.run([loss, num_right])
        step = session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)[-1]
        assert (step.op.name, session.run(step)) == ("global_step", 200)
    assert last < first / 2 and right_at_last > right_at_first


def test_a_table_in_a_file_is_read(tmp_path):
    """The first line of one with a header is left out; the target's column may be any."""
    path = tmp_path / "table.csv"
    path.write_text("2,2,a,b\n1.5,2,0\n3,4,1\n")
    with_header = examples.load_csv_with_header(str(path), target_dtype=np.int64, features_dtype=np.float32)
    assert (with_header.data.tolist(), with_header.target.tolist()) == ([[1.5, 2], [3, 4]], [0, 1])
    path.write_text("1.0,5\n0.0,6\n")
    without = examples.load_csv_without_header(str(path), np.int64, np.float32, target_column=0)
    assert (without.data.tolist(), without.target.tolist()) == ([[5], [6]], [1, 0])


SHAPES = ((100, 10), (10,), (50, 10), (40, 10), (2,), ())


def devices_of(strategy, use_resource=True):
    """Returns the index of the ps of each variable of SHAPES."""
    setter = tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)
    with tf.Graph().as_default(), tf.device(setter):
        return [int(tf.get_variable(f"v{index}", shape, use_resource=use_resource).device[-1])
                for index, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("use_resource", [True, False])
def test_each_variable_goes_to_the_ps_with_the_fewest_bytes(use_resource):
    """4000 bytes to ps 0; 40, 2000 and 1600 to ps 1, then still the lighter; 8; 4."""
    strategy = functions.GreedyLoadBalancingStrategy(2, functions.byte_size_load_fn)
    assert devices_of(strategy, use_resource) == [0, 1, 1, 1, 1, 1]


def test_the_first_ps_is_taken_if_loads_are_equal():
    """A load of 1 each goes round."""
    assert devices_of(functions.GreedyLoadBalancingStrategy(2, lambda op: 1)) == [0, 1, 0, 1, 0, 1]


def test_random_is_the_same_in_every_worker():
    """The same seed, the same places; both ps get some."""
    devices = devices_of(functions.RandomStrategy(2, seed=3))
    assert devices == devices_of(functions.RandomStrategy(2, seed=3))
    assert set(devices) == {0, 1}


def test_the_bytes_of_other_operations_are_those_of_their_output():
    """[3, 4] of float64."""
    with tf.Graph().as_default():
        assert functions.byte_size_load_fn(tf.zeros([3, 4], tf.float64).op) == 96
        with pytest.raises(ValueError, match="fully defined"):
            functions.byte_size_load_fn(tf.placeholder(tf.float32, [None]).op)
