"""tf.contrib.learn.io's batches of records, and the Exporter of tf.contrib.session_bundle."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import batch_reading, exporter
from tests.tensorflow_mode import tf

EXAMPLES = 10


@pytest.fixture
def files(tmp_path):
    """Two TFRecord files with the numbers from 0 to 9, and their pattern."""
    for part in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{part}")) as writer:
            for number in range(part, EXAMPLES, 2):
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
                writer.write(tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString())
    return str(tmp_path / "part-*")


def taken(fetches):
    """Returns the values of every batch until the queues are at their end."""
    batches = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                batches.append(session.run(fetches))
        coordinator.request_stop()
        coordinator.join(threads)
    return batches


@pytest.mark.parametrize("others", [
    {}, {"randomize_input": False}, {"reader_num_threads": 2}, {"read_batch_size": 3},
    {"queue_capacity": 12}, {"parse_fn": tf.identity}], ids=str)
def test_each_example_is_read_once_an_epoch(files, others):
    """Whatever the order is; the last batch is what is left."""
    with tf.Graph().as_default():
        features = batch_reading.read_batch_features(
            files, 4, {"x": tf.FixedLenFeature([], tf.int64)}, tf.TFRecordReader, num_epochs=2, **others)
        numbers = [number for batch in taken(features["x"]) for number in batch.tolist()]
    assert sorted(numbers) == sorted([*range(EXAMPLES)] * 2)
    assert (numbers == [*range(0, 10, 2), *range(1, 10, 2)] * 2) == (others == {"randomize_input": False})


def test_records_as_they_are_and_with_their_keys(files):
    """`parse_fn` makes tensors of each record; without an end, a batch has its size in its shape."""
    with tf.Graph().as_default():
        keys, parsed = batch_reading.read_keyed_batch_examples(
            [files], 5, tf.TFRecordReader, num_epochs=1,
            parse_fn=lambda record: tf.parse_single_example(record, {"x": tf.FixedLenFeature([1], tf.int64)}))
        batches = taken([keys, parsed["x"]])
        records = batch_reading.read_batch_examples(files, 5, tf.TFRecordReader, num_epochs=1)
        assert records.dtype == tf.string and records.shape.as_list() == [None]
        endless = batch_reading.read_batch_examples(files, 5, tf.TFRecordReader, parse_fn=tf.strings.length)
        assert endless.dtype == tf.int32 and endless.shape.as_list() == [5]
        with pytest.raises(ValueError, match="below queue_capacity, 5; got 5"):
            batch_reading.read_batch_examples(files, 5, tf.TFRecordReader, queue_capacity=5)
        with pytest.raises(ValueError, match="no file matches nowhere"):
            batch_reading.read_batch_record_features("nowhere", 5, {})
    assert sorted(np.concatenate([batch[1] for batch in batches])[:, 0]) == [*range(EXAMPLES)]
    assert all(b"part-" in key for batch in batches for key in batch[0])


def export(folder, number, **signatures):
    """Writes y = x * w, with w = 3, and returns the version's folder."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], name="x")
        y = tf.multiply(x, tf.Variable(3.0, name="w"), name="y")
        model = exporter.Exporter(tf.train.Saver(sharded=True))
        model.init(tf.get_default_graph().as_graph_def(), **{
            name: make(x, y) for name, make in signatures.items()})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return model.export(str(folder), tf.constant(number), session)


def loaded(folder, name="serving_default"):
    """Returns the signature of what is served, and y of x = 2."""
    with tf.Graph().as_default(), tf.Session() as session:
        served = tf.saved_model.loader.load(session, ["serve"], folder).signature_def[name]
        return served, session.run("y:0", {"x:0": [2.0]}).tolist()


def test_an_export_is_a_saved_model_of_a_version(tmp_path):
    """With "inputs" and "outputs" by name; a version is not written twice."""
    generic = {"named_graph_signatures": lambda x, y: {
        "inputs": exporter.generic_signature({"a": x}), "outputs": exporter.generic_signature({"b": y})}}
    folder = export(tmp_path, 7, **generic)
    served, y = loaded(folder)
    assert folder == str(tmp_path / "00000007") and y == [6.0]
    assert served.inputs["a"].name == "x:0" and served.outputs["b"].name == "y:0"
    assert served.method_name == "tensorflow/serving/predict"
    with pytest.raises(RuntimeError, match="exists already"):
        export(tmp_path, 7, **generic)
    (tmp_path / "00000008-tmp").mkdir()  # of an export that was killed
    both = export(tmp_path, 8, default_graph_signature=exporter.regression_signature, **generic)
    assert loaded(both)[0].method_name == "tensorflow/serving/regress"
    assert loaded(both, "predict")[0].outputs["b"].name == "y:0"


def test_one_exporter_writes_version_after_version(tmp_path):
    """With the operation that a server runs when it loads the model."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        y = tf.multiply(x, tf.Variable(3.0), name="y")
        session.run(tf.global_variables_initializer())
        model = exporter.Exporter(tf.train.Saver())
        signature = exporter.regression_signature(x, y)
        model.init(init_op=tf.group(tf.tables_initializer()), default_graph_signature=signature)
        folders = [model.export(tmp_path, tf.constant(number), session) for number in (1, 2)]
    assert [loaded(folder)[1] for folder in folders] == [[6.0], [6.0]]


@pytest.mark.parametrize(("make", "method", "outputs"), [
    (exporter.regression_signature, "regress", ["outputs"]),
    (lambda x, y: exporter.classification_signature(x, scores_tensor=y), "classify", ["scores"])])
def test_the_default_signature_is_that_of_a_classifier_or_a_regression(tmp_path, make, method, outputs):
    """As TensorFlow Serving calls them."""
    served, _ = loaded(export(tmp_path, 1, default_graph_signature=make))
    assert served.method_name == f"tensorflow/serving/{method}" and sorted(served.outputs) == outputs
    assert served.inputs["inputs"].name == "x:0"
