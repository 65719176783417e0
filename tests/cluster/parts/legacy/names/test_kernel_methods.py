"""tf.contrib.kernel_methods, tf.contrib.layers' transformed columns, and small functions of tf.contrib.learn.

Their numbers are those of TensorFlow 1.15.5.
"""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from ps_train.parts.legacy.names import contrib, feature_columns, kernel_methods, learn_pandas, learn_runs
from ps_train.parts.legacy.names import transformed_columns as transformed
from tests.tensorflow_mode import tf

ROWS = np.random.RandomState(0).normal(size=[4, 3]).astype(np.float32)


def test_random_features_are_those_of_the_seed():
    """On every task the same."""
    mapper = kernel_methods.RandomFourierFeatureMapper(3, 5, 2.0, seed=3)
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(mapper.map(tf.constant(ROWS)))
        with pytest.raises(kernel_methods.InvalidShapeError, match="takes 3 features; got 2"):
            mapper.map(tf.zeros([4, 2]))
        with pytest.raises(kernel_methods.InvalidShapeError, match=r"takes .batch, 3.; got the shape .4,."):
            mapper.map(tf.zeros([4]))
    np.testing.assert_allclose(found[[0, 3]], [
        [-0.50387448, -0.6098901, -0.35794491, -0.5830909, -0.48785913],
        [0.33357489, -0.62065673, -0.46505615, 0.30326456, -0.57512355]], rtol=1e-5)


def test_the_hinge_loss_of_several_classes():
    """Over the weights that are not 0."""
    with tf.Graph().as_default(), tf.Session() as session:
        loss, labels = kernel_methods.sparse_multiclass_hinge_loss, tf.constant([0, 2, 1, 1])
        losses = [loss(labels, tf.constant(ROWS)), loss(labels[:, tf.newaxis], tf.constant(ROWS), [1.0, 2, 0, 1])]
        assert session.run(losses) == pytest.approx([2.211133, 3.6537526], rel=1e-5)
        assert len(tf.losses.get_losses()) == 2
        with pytest.raises(ValueError, match="the labels are float32"):
            loss(tf.constant([0.0]), tf.constant(ROWS))
        with pytest.raises(ValueError, match="rank of the logits is 1"):
            loss(labels, tf.constant([1.0]))


def columns_of_all_kinds():
    """Returns name -> column."""
    x = feature_columns.real_valued_column("x", dimension=2)
    words = feature_columns.sparse_column_with_keys("k", ["a", "b"])
    ids = feature_columns.sparse_column_with_integerized_feature("i", 5)
    return {"number": feature_columns.real_valued_column("x", dimension=2, normalizer=lambda value: value * 2),
            "bucket": feature_columns.bucketized_column(x, [0.0, 1.0]), "words": words, "ids": ids,
            "embedding": feature_columns.embedding_column(words, 3, initializer=tf.ones_initializer()),
            "one_hot": contrib.one_hot_column(words), "weighted": feature_columns.weighted_sparse_column(ids, "w")}


def examples():
    """Returns two serialized tf.train.Example."""
    feature = tf.train.Feature
    return [tf.train.Example(features=tf.train.Features(feature={
        "x": feature(float_list=tf.train.FloatList(value=numbers)),
        "i": feature(int64_list=tf.train.Int64List(value=ids)),
        "k": feature(bytes_list=tf.train.BytesList(value=words)),
        "w": feature(float_list=tf.train.FloatList(value=weights))})).SerializeToString()
        for numbers, words, ids, weights in (
            ([0.5, 2.0], [b"a"], [1, 7], [1.0, 2.0]), ([-1.0, 1.0], [b"b", b"z"], [3], [0.5]))]


def test_examples_are_parsed_and_transformed_by_columns():
    """By the columns, and beside them the features; a layer takes both, and what is transformed already alone."""
    with tf.Graph().as_default(), tf.Session() as session:
        columns = columns_of_all_kinds()
        parsed = transformed.parse_feature_columns_from_examples(tf.constant(examples()), columns.values())
        assert {key for key in parsed if isinstance(key, str)} == {"i", "k", "w", "x"}
        alone = transformed.transform_features({key: parsed[key] for key in "ikwx"}, columns.values())
        dense = [columns[name] for name in ("number", "embedding", "one_hot")]
        layers = [feature_columns.input_from_feature_columns(features, dense) for features in (parsed, dict(alone))]
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for found in (session.run({name: features[column] for name, column in columns.items()})
                      for features in (parsed, alone)):
            assert found["number"].tolist() == [[1, 4], [-2, 2]] and found["bucket"].tolist() == [[1, 2], [0, 2]]
            for name in ("words", "embedding", "one_hot"):
                assert found[name].indices.tolist() == [[0, 0], [1, 0], [1, 1]]
                assert found[name].values.tolist() == [0, 1, -1]
            assert found["ids"].values.tolist() == [1, 2, 3] == found["weighted"][0].values.tolist()
            assert found["weighted"][1].values.tolist() == [1.0, 2.0, 0.5]
        for layer in layers:
            assert session.run(layer).tolist() == [[1, 1, 1, 1, 0, 1, 4], [1, 1, 1, 0, 1, -2, 2]]


def test_weighted_columns_are_transformed_once_and_weigh_in_layers():
    """As of one-hot columns: what is transformed already stays, and a layer takes it beside the features."""
    with tf.Graph().as_default(), tf.Session() as session:
        weighted = columns_of_all_kinds()["weighted"]
        one_hot = contrib.one_hot_column(weighted)
        columns = [weighted, one_hot]
        parsed = transformed.parse_feature_columns_from_examples(tf.constant(examples()), columns)
        again = transformed.transform_features(parsed, columns)
        assert again[weighted] is parsed[weighted] and again[one_hot] is parsed[one_hot]
        embedding = feature_columns.embedding_column(weighted, 2)
        for column in (one_hot, embedding):
            assert transformed.transform_features({weighted: parsed[weighted]}, [column])[column] is parsed[weighted]
        layer = feature_columns.input_from_feature_columns(parsed, [one_hot])
        session.run(tf.tables_initializer())
        assert session.run(layer).tolist() == [[0, 1, 2, 0, 0], [0, 0, 0, 0.5, 0]]


def test_a_sparse_tensor_value_is_a_feature():
    """Though it is a tuple, as (ids, weights) are."""
    value = tf.SparseTensorValue([[0, 0]], ["a"], [1, 1])
    assert transformed.as_features({"k": value}) == {"k": value}


def test_columns_are_checked_and_found():
    """The same column twice; columns of numbers; placeholders of what columns read."""
    with tf.Graph().as_default():
        columns = columns_of_all_kinds()
        with pytest.raises(ValueError, match="k is there twice"):
            transformed.transform_features({}, [columns["words"], columns["words"]])
        with pytest.raises(ValueError, match="got a dictionary"):
            transformed.check_feature_columns(columns)
        found = transformed.infer_real_valued_columns({"a": tf.zeros([4, 2, 3]), "b": tf.zeros([4], tf.int64)})
        assert [(column.name, column.shape, column.dtype) for column in found] == [
            ("a", (6,), tf.float32), ("b", (1,), tf.int64)]
        assert transformed.infer_real_valued_columns(tf.zeros([4, 2]))[0].name == ""
        with pytest.raises(ValueError, match="got string"):
            transformed.infer_real_valued_columns(tf.constant(["a"]))
        placeholders = transformed.make_place_holder_tensors_for_base_features([columns["number"], columns["words"]])
        assert placeholders["x"].shape.as_list() == [None, 2] and isinstance(placeholders["k"], tf.SparseTensor)


def test_numbers_of_data_frames():
    """What is none is returned as it is; words are refused."""
    frame = pandas.DataFrame({"a": [1, 2], "b": [True, False]})
    assert learn_pandas.extract_pandas_data(frame).tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert learn_pandas.extract_pandas_matrix(frame).tolist() == [[1, True], [2, False]]
    assert learn_pandas.extract_pandas_labels(frame[["a"]]).tolist() == [[1], [2]]
    for extract in (learn_pandas.extract_pandas_data, learn_pandas.extract_pandas_labels):
        assert extract([1]) == [1]
        with pytest.raises(ValueError, match="got c of "):
            extract(pandas.DataFrame({"c": ["x"]}))
    with pytest.raises(ValueError, match="must be one column; got 2"):
        learn_pandas.extract_pandas_labels(frame)


def test_tensors_are_run_with_initialized_or_restored_variables(tmp_path):
    """And with queues."""
    with tf.Graph().as_default() as graph:
        fed, variable = tf.placeholder(tf.float32, []), tf.get_variable("v", initializer=2.0)
        number = tf.train.range_input_producer(3, 1, shuffle=False).dequeue()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(tf.assign(variable, 5.0))
            path = tf.train.Saver([variable]).save(session, str(tmp_path / "model"))
    outputs = {"product": fed * graph.get_tensor_by_name("v/Read/ReadVariableOp:0"), "number": number}
    assert learn_runs.run_feeds(outputs, [{fed: 1.0}, {fed: 3.0}]) == [
        {"product": 2.0, "number": 0}, {"product": 6.0, "number": 1}]
    assert learn_runs.run_n({"product": outputs["product"]}, {fed: 2.0}, path, n=2) == [{"product": 10.0}] * 2
    assert learn_runs.infer(None, {"product": outputs["product"]}, {fed: 2.0}) == {"product": 4.0}
    with tf.Graph().as_default():
        assert learn_runs.infer(path, {"number": tf.constant(1.0)}) == {"number": 1.0}  # nothing to restore
    with pytest.raises(ValueError, match="must not be empty"):
        learn_runs.infer(None, {})
