"""Feature columns of tf.contrib.layers, by those of today."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow.python.feature_column import feature_column_v2, sequence_feature_column

from ps_train.parts.legacy.deeprec import columns as deeprec_columns
from ps_train.parts.legacy.names import feature_columns
from tests.tensorflow_mode import tf


def test_columns_of_contrib_give_the_inputs_of_those_of_today():
    """A number, a bucket, a key, an embedding."""
    features = {"age": np.array([[1.0], [5.0]], np.float32), "job": np.array([["a"], ["z"]])}
    age = feature_columns.real_valued_column("age")
    job = feature_columns.sparse_column_with_keys("job", ["a", "b"])
    columns = [age, feature_columns.bucketized_column(age, boundaries=[4.0, 2.0]),
               tf.feature_column.indicator_column(job), feature_columns.embedding_column(
                   job, 1, initializer=tf.constant_initializer(7.0))]
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = feature_columns.input_from_feature_columns(
            {name: tf.constant(value) for name, value in features.items()}, columns)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        # In the order of their names: age, its buckets, the embedding, the indicator.
        assert session.run(inputs).tolist() == [[1, 1, 0, 0, 7, 1, 0], [5, 0, 0, 1, 0, 0, 0]]


@pytest.mark.parametrize(("make", "ids", "dtype"), [
    (lambda: feature_columns.sparse_column_with_integerized_feature("id", 6), [96810, 2871, 58043], tf.int64),
    (lambda: feature_columns.sparse_column_with_hash_bucket("id", 6.0, dtype=tf.int64), [96810, 2871, 58043], tf.int64),
    (lambda: feature_columns.sparse_column_with_keys("id", [1, 7], dtype=tf.int64), [96810, 2871, 58043], tf.int64),
    (lambda: feature_columns.bucketized_column(feature_columns.real_valued_column("number"), [1.0, 5.0]),
     [44595, 66822, 11131], tf.float32),
    (lambda: feature_columns.crossed_column([
        feature_columns.bucketized_column(feature_columns.real_valued_column("number"), [1.0, 5.0]),
        feature_columns.sparse_column_with_keys("letter", ["x"])], 77), [38448, 45012, 52608], tf.float32)])
def test_a_cross_has_the_ids_of_tensorflow_1(make, ids, dtype):
    """Of raw values, in the order of the names: 7 is beyond the ids of a column, "q" no key. By both interfaces."""
    features = {"town": np.array([["a"], ["b"], ["zz"]]), "id": np.array([[1], [7], [5]]),
                "number": np.array([[0.5], [2.0], [7.0]], np.float32), "letter": np.array([["x"], ["x"], ["q"]])}
    town = feature_columns.sparse_column_with_hash_bucket("town", 100)
    crossed = feature_columns.crossed_column([town, make()], 1e5, hash_key=7)
    spec = tf.feature_column.make_parse_example_spec([crossed])
    assert (spec["town"].dtype, spec.get("id", spec.get("number")).dtype) == (tf.string, dtype)
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = {name: tf.constant(value) for name, value in features.items()}
        logits, variables, _ = feature_columns.weighted_sum_from_feature_columns(tensors, [crossed], num_outputs=1)
        newer = crossed.get_sparse_tensors(feature_column_v2.FeatureTransformationCache(tensors), None).id_tensor
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        variables[crossed][0].load(np.arange(1e5)[:, np.newaxis], session)
        found, newer = session.run([logits, newer])
    assert found[:, 0].tolist() == newer.values.tolist() == ids


def test_a_cross_has_an_integer_number_of_buckets_and_a_combiner():
    """Scripts give 1e5; a key of a feature may stand for its column."""
    crossed = feature_columns.crossed_column(["town", "job"], hash_bucket_size=1e4, combiner="mean")
    assert (crossed.hash_bucket_size, crossed.keys, crossed.combiner) == (10_000, ("job", "town"), "mean")


def test_weighted_sum_has_the_bias_beside_the_columns():
    """The logits of a linear model with initial zeros, [2, 3]."""
    with tf.Graph().as_default(), tf.Session() as session:
        logits, variables, bias = feature_columns.weighted_sum_from_feature_columns(
            {"age": tf.constant([[1.0], [5.0]])}, [feature_columns.real_valued_column("age")], num_outputs=3)
        session.run(tf.global_variables_initializer())
        assert session.run(logits).tolist() == [[0] * 3] * 2
        assert (bias.shape.as_list(), len(variables)) == ([3], 1)


@pytest.mark.parametrize(("combiner", "expected", "weighted"), [
    ("sum", [1, 3, 0, 2], [0.5, 8, 0, 2]), ("mean", [1, 1.5, 0, 2], [1, 1.6, 0, 2]),
    (None, [1, 1.5, 0, 2], [1, 1.6, 0, 2]),
    ("sqrtn", [1, 3 / np.sqrt(2), 0, 2], [1, 8 / np.sqrt(13), 0, 2])])
def test_a_linear_model_combines_the_ids_of_an_example(combiner, expected, weighted):
    """By the combiner of the column, and by its weights; "q" is no key, and the third example has no other."""
    job = feature_columns.sparse_column_with_keys("job", ["x", "y"], combiner=combiner)
    columns = [job, feature_columns.weighted_sparse_column(job, "weight")]
    assert [column.combiner for column in columns] == [combiner] * 2
    indices = [[0, 0], [1, 0], [1, 1], [1, 2], [2, 0], [3, 0], [3, 1]]
    for column, result in zip(columns, (expected, weighted)):
        with tf.Graph().as_default(), tf.Session() as session:
            features = {"job": tf.SparseTensor(indices, tf.constant(list("xyxqqyq")), [4, 3]),
                        "weight": tf.SparseTensor(indices, [0.5, 3.0, 2.0, 7.0, 7.0, 1.0, 1.0], [4, 3])}
            logits, variables, _ = feature_columns.weighted_sum_from_feature_columns(features, [column], num_outputs=1)
            session.run([tf.global_variables_initializer(), tf.tables_initializer()])
            variables[column][0].load([[1.0], [2.0]], session)
            np.testing.assert_allclose(session.run(logits)[:, 0], result, rtol=1e-6)


def test_a_combiner_that_is_none_is_refused_by_a_linear_model():
    """An embedding never looks at it."""
    job = feature_columns.sparse_column_with_hash_bucket("job", 9, combiner="max")
    assert feature_columns.embedding_column(job, 2).combiner == "mean"
    with pytest.raises(ValueError, match="column 'job': got combiner='max'; allowed: sum, mean, sqrtn"):
        feature_columns.weighted_sum_from_feature_columns({}, [job], num_outputs=1)


def test_embeddings_begin_with_smaller_numbers_the_more_ids_they_have():
    """Normal ones of the deviation 1 / sqrt(ids), cut off at twice of it, which leaves 0.88 of the deviation."""
    ids = feature_columns.sparse_column_with_integerized_feature("id", 2500)
    words = [feature_columns.sparse_column_with_hash_bucket(name, 2500) for name in ("word", "other")]
    columns = [feature_columns.embedding_column(ids, 16),
               feature_columns.embedding_column(feature_columns.weighted_sparse_column(ids, "rate"), 16),
               *feature_columns.contrib_shared_embedding_columns(tuple(words), 16)]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        feature_columns.input_from_feature_columns(
            {"id": tf.constant([[1]]), "rate": tf.constant([[1.0]]), "word": tf.constant([["a"]]),
             "other": tf.constant([["b"]])}, columns)
        session.run(tf.global_variables_initializer())
        values = session.run(tf.global_variables())
    assert [value.shape for value in values] == [(2500, 16)] * 3
    for value in values:
        assert value.std() == pytest.approx(0.88 / 50, rel=0.03) and abs(value).max() <= 2 / 50
    given = tf.constant_initializer(7.0)
    assert feature_columns.embedding_column(ids, 16, initializer=given).initializer is given
    unbounded = deeprec_columns.categorical_column_with_embedding("id")
    assert feature_columns.embedding_column(unbounded, 16).categorical_column is unbounded


def test_ids_are_taken_modulo_their_number():
    """Today's column refuses those that are too great."""
    column = feature_columns.sparse_column_with_integerized_feature("item", 4)
    assert (column.name, column.num_buckets) == ("item", 4)
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.feature_column.input_layer(
            {"item": tf.constant([[1], [6], [-5]])}, [tf.feature_column.indicator_column(column)])
        assert session.run(inputs).argmax(1).tolist() == [1, 2, 3]


def test_a_layer_of_sequences_has_the_variables_of_tensorflow_1():
    """By their names, and used again where the scope says so; numbers and indicators stand beside the embeddings."""
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 2, 1], tf.int64), [2, 2])
        features = {"item": ids, "rate": tf.SparseTensor(ids.indices, [0.5, 1.5, 2.5], [2, 2])}
        items = sequence_feature_column.sequence_categorical_column_with_identity("item", 3)
        columns = [tf.feature_column.indicator_column(items), tf.feature_column.embedding_column(
            items, 1, initializer=tf.constant_initializer(7.0)),
            sequence_feature_column.sequence_numeric_column("rate")]
        layers = []
        for reuse in (None, True):
            with tf.variable_scope("model", reuse=reuse):
                layers.append(feature_columns.sequence_input_layer(features, columns))
        assert [variable.op.name for variable in tf.global_variables()] == [
            "model/sequence_input_layer/item_embedding/embedding_weights"]
        session.run(tf.global_variables_initializer())
        for layer, lengths in session.run(layers):
            assert layer.tolist() == [[[7, 0, 1, 0, 0.5], [7, 0, 0, 1, 1.5]], [[7, 0, 1, 0, 2.5], [0] * 5]]
            assert lengths.tolist() == [2, 1]
