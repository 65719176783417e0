"""Functions of tf.contrib.framework and tf.contrib.nn that TensorFlow 2 has not; the values are TensorFlow 1.15.5's."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow.python.ops.variable_scope import _PartitionInfo

from ps_train.parts.legacy.names import framework_functions as functions
from tests.tensorflow_mode import tf

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def checkpoint(tmp_path):
    """The prefix of a checkpoint with a matrix and biases, in whose folder four vocabularies are."""
    for name, words in (("old", "abcd"), ("new", "cxa"), ("old_columns", "pqr"), ("new_columns", "rpz")):
        (tmp_path / name).write_text("".join(word + "\n" for word in words))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("matrix", initializer=ROWS)
        tf.get_variable("bias", initializer=np.arange(1, 5, dtype=np.float32)[:, np.newaxis])
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(tmp_path / "model"))


def test_values_of_a_checkpoint_with_other_vocabularies(checkpoint, tmp_path):
    """Rows and columns by their names; new ones begin by an initializer, biases and slots with zeros."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    columns = {"old_col_vocab_file": str(tmp_path / "old_columns"), "new_col_vocab_file": str(tmp_path / "new_columns"),
               "num_row_oov_buckets": 1, "num_col_oov_buckets": 1}
    with tf.Graph().as_default(), tf.Session() as session:
        made = [
            tf.get_variable("e", [4, 3], partitioner=tf.fixed_size_partitioner(2),
                            initializer=functions.load_embedding_initializer(
                                checkpoint, "matrix", 3, 3, old, new, num_oov_buckets=1,
                                initializer=tf.ones_initializer())),
            tf.get_variable("b", [5, 1], initializer=functions.load_linear_multiclass_bias_initializer(
                checkpoint, "bias", 3, old, new, 2)),
            tf.get_variable("m", [4, 4], initializer=functions.load_and_remap_matrix_initializer(
                checkpoint, "matrix", 3, 3, old_row_vocab_file=old, new_row_vocab_file=new,
                initializer=tf.ones_initializer(), **columns)),
            tf.get_variable("slot", [2, 4], initializer=functions.load_variable_slot_initializer(
                checkpoint, "matrix", _PartitionInfo([4, 4], [2, 0]), 3, 3, old, new, **columns))]
        session.run(tf.global_variables_initializer())
        embedding, bias, matrix, slot = session.run([tf.convert_to_tensor(each) for each in made])
    np.testing.assert_array_equal(embedding, [ROWS[2], [1, 1, 1], ROWS[0], [1, 1, 1]])
    np.testing.assert_array_equal(bias[:, 0], [3, 0, 1, 0, 0])
    np.testing.assert_array_equal(matrix, [[8, 6, 1, 1], [1, 1, 1, 1], [2, 0, 1, 1], [1, 1, 1, 1]])
    np.testing.assert_array_equal(slot, [[2, 0, 0, 0], [0, 0, 0, 0]])


def test_a_python_function_with_structures():
    """Arguments by name, results in a structure, shapes that are set."""
    with tf.Graph().as_default(), tf.Session() as session:
        result = functions.contrib_py_func(
            lambda a, b, k: {"sum": a + b, "pair": (a * b, k)}, [tf.constant([1.0, 2.0]), tf.constant(3.0)],
            {"k": tf.constant(7)}, {"sum": tf.float32, "pair": (tf.float32, tf.int32)},
            {"sum": [2], "pair": ([None], [])})
        assert result["sum"].shape == [2] and result["pair"][0].shape.as_list() == [None]
        values = session.run(result)
        np.testing.assert_array_equal(values["sum"], [4, 5])
        np.testing.assert_array_equal(values["pair"][0], [3, 6])
        assert values["pair"][1] == 7
        doubled = functions.contrib_py_func(lambda a: a * 2, [tf.constant(3)], output_types=lambda a: a.dtype,
                                            output_shapes=lambda a: a.shape)
        assert session.run(doubled) == 6 and doubled.shape == []
        with pytest.raises(tf.errors.OpError, match="must return a structure as"):
            session.run(functions.contrib_py_func(lambda a: [a], [tf.constant(3)], output_types=[tf.int32, tf.int32]))
        with pytest.raises(TypeError, match="^args must be a list"):
            functions.contrib_py_func(abs, tf.constant(3), output_types=tf.int32)
        with pytest.raises(TypeError, match=r"kwargs must be a dict, got \[3\]"):
            functions.contrib_py_func(abs, [], [3], output_types=tf.int32)


def test_zeros_for_a_variable_without_a_value():
    """A second time it fails."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("x", [2])
        initialize = functions.zero_initializer(variable)
        session.run(initialize)
        np.testing.assert_array_equal(session.run(variable), [0, 0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="x has a value already"):
            session.run(initialize)


def test_the_placeholders_of_a_graph():
    """In the order in which they were made, without those that have a default."""
    with tf.Graph().as_default() as graph:
        tf.placeholder(tf.int32, name="z")
        tf.placeholder_with_default(1, [])
        tf.placeholder(tf.float32, name="a")
        assert [each.name for each in functions.get_placeholders(graph)] == ["z:0", "a:0"]
    with pytest.raises(TypeError, match="must be a tf.Graph, got 'graph'"):
        functions.get_placeholders("graph")


@pytest.mark.parametrize("temperature", [0.2, 5.0])
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_the_softmax_of_the_most_probable_samples(temperature, is_partitioned):
    """Of five samples, the three with the greatest sum over the inputs."""
    weights, biases = np.sin(np.arange(40)).reshape(10, 4).astype(np.float32), np.cos(np.arange(10)).astype(np.float32)
    inputs = np.cos(2 * np.arange(12)).reshape(3, 4).astype(np.float32)
    sampled, counts = np.array([0, 3, 5, 8, 9]), np.array([0.5, 0.4, 0.3, 0.2, 0.1], np.float32)
    logits = (weights[sampled] @ inputs.T + biases[sampled][:, None]) / temperature
    best = np.argsort(-np.log(np.exp(logits).sum(1)))[:3]
    labels, of_true = np.array([[1], [5], [7]]), np.array([[0.5], [0.6], [0.7]], np.float32)
    cut = (lambda values: [values[:4], values[4:7], values[7:]]) if is_partitioned else (lambda values: values)
    with tf.Graph().as_default(), tf.Session() as session:
        loss, expected = session.run([
            functions.rank_sampled_softmax_loss(cut(weights), cut(biases), labels, inputs, 5, 3, 10, 1,
                                                (sampled, of_true, counts), temperature, True, "div"),
            tf.nn.sampled_softmax_loss(cut(weights), cut(biases), labels, inputs, 3, 10, 1,
                                       (sampled[best], of_true, counts[best]), True, "div")])
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_numbers_of_samples_that_do_not_fit_are_refused():
    """So is a way to divide the weights that TensorFlow does not know."""
    for numbers, strategy, message in (((11, 3), "div", "only 10 classes"), ((3, 3), "div", "fewer than num_sampled=3"),
                                       ((5, 3), "other", "allowed: div, mod")):
        with pytest.raises(ValueError, match=message):
            functions.rank_sampled_softmax_loss(None, None, None, None, *numbers, 10, 1, None, 1.0, True, strategy)
