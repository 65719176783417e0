"""tf.contrib.timeseries: readers and windows against numpy, and models that go on with a series.

It is run as names_child.py is.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

from ps_train.parts.legacy import run as verb
from ps_train.parts.legacy.names import installation
from ps_train.runtime.waits import Timeouts

real.disable_v2_behavior()
real.enable_resource_variables()
verb.replace_classes(Timeouts())
verb._prepare_estimator(Timeouts())
installation.install()
tf = sys.modules["tensorflow"]
series = tf.contrib.timeseries

from tensorflow.contrib.timeseries.python.timeseries import NumpyReader, estimators, state_management  # noqa: E402
from tensorflow.contrib.timeseries.python.timeseries import model as series_models  # noqa: E402 (they are there now)

TIMES = np.arange(200)
WAVE = np.sin(2 * np.pi * TIMES / 20).astype(np.float32)
READER = NumpyReader({"times": TIMES, "values": WAVE})


def run(make, steps=1):
    """Returns what the tensors that `make` returns are in each step of a session with queues."""
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = make()
        session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            return [session.run(tensors) for _ in range(steps)]
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=10, ignore_live_threads=True)


def test_an_array_is_read_in_parts_and_whole():
    """`read` goes on where it was, and begins anew at the end; one feature has a dimension of its own."""
    reader = series.NumpyReader({"times": TIMES, "values": WAVE, "more": WAVE}, read_num_records_hint=150)
    parts = run(reader.read, steps=3)
    assert [part["times"].tolist() for part in parts] == [list(range(150)), list(range(150, 200)), list(range(150))]
    (whole,) = run(reader.read_full)
    np.testing.assert_array_equal(whole["values"], WAVE[:, None])
    assert whole["more"].shape == (200,)


@pytest.mark.parametrize("read", ["read", "read_full"])
def test_the_graph_does_not_have_the_arrays(read):
    """Issue: each checkpoint had the series in its .meta file, and one of 2 GB was too long for a graph."""
    reader = series.NumpyReader({"times": np.arange(5000), "values": np.ones(5000), "name": np.array(["ab"] * 5000)})
    sizes = []

    def make():
        features = getattr(reader, read)()
        assert [value.shape.as_list() for value in features.values()] == [[None], [None, 1], [None]]
        sizes.append(len(tf.get_default_graph().as_graph_def().SerializeToString()))
        return features

    (part,) = run(make)
    assert part["name"][0] == b"ab" and sizes[0] < 5000


def test_files_of_lines_are_read_one_after_the_other(tmp_path):
    """Repeated columns become one feature; the first lines of each file are left out."""
    for name, start in (("a", 0), ("b", 2)):
        (tmp_path / name).write_text(f"t,x,y\n{start},1.5,2\n{start + 1},3.5,4\n", encoding="utf-8")
    reader = series.CSVReader([str(tmp_path / name) for name in "ab"], ("times", "values", "values"),
                                           skip_header_lines=1)
    (whole,) = run(reader.read_full)
    assert whole["times"].tolist() == [0, 1, 2, 3] and whole["times"].dtype == np.int64
    assert whole["values"].tolist() == [[1.5, 2], [3.5, 4]] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_empty_field_is_0_if_the_dtypes_are_given(tmp_path, dtype):
    """As in TF1; by default the fields are required. Issue: those of float32 were required in both cases."""
    (tmp_path / "lines").write_text("5,,3.0\n,2.0,\n", encoding="utf-8")
    names = ("times", "values", "values")
    (whole,) = run(series.CSVReader(str(tmp_path / "lines"), names, [tf.int64, dtype, dtype]).read_full)
    assert whole["times"].tolist() == [5, 0] and whole["values"].tolist() == [[0, 3], [2, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="required"):
        run(series.CSVReader(str(tmp_path / "lines"), names).read_full)


def test_records_are_read(tmp_path):
    """Of `tf.train.Example`s."""
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for time in range(3):
            features = {"times": tf.train.Feature(int64_list=tf.train.Int64List(value=[time])),
                        "values": tf.train.Feature(float_list=tf.train.FloatList(value=[time / 2]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    reader = series.TFExampleReader(str(tmp_path / "records"), {
        "times": tf.FixedLenFeature([], tf.int64), "values": tf.FixedLenFeature([1], tf.float32)})
    (whole,) = run(reader.read_full)
    assert whole["times"].tolist() == [0, 1, 2] and whole["values"].tolist() == [[0], [0.5], [1]]


@pytest.mark.parametrize("times, values", [
    ([[3, 4]], [[1.0, 2.0]]), ([[3, 4]], [[[1.0], [2.0]]]), ([3, 4], [1.0, 2.0]), ([3, 4], [[1.0], [2.0]])])
def test_an_array_may_be_a_batch_of_one(times, values):
    """Issue: it was refused, though TF1 takes it."""
    (whole,) = run(series.NumpyReader({"times": times, "values": values}).read_full)
    assert whole["times"].tolist() == [3, 4] and whole["values"].tolist() == [[1], [2]]


def test_one_record_is_a_series():
    """Of one time, as in TF1."""
    (whole,) = run(series.NumpyReader({"times": 3, "values": 1.5}).read_full)
    assert whole["times"].tolist() == [3] and whole["values"].tolist() == [[1.5]]


@pytest.mark.parametrize("data, error", [
    ({"times": TIMES}, "required"), ({"times": TIMES, "values": WAVE[:5]}, "prefixed by"),
    ({"times": TIMES, "values": WAVE.reshape([-1, 1, 1])}, "unexpected number of dimensions"),
    ({"times": TIMES.reshape([2, -1]), "values": WAVE.reshape([2, -1])}, "batch input")])
def test_an_unfit_series_is_refused(data, error):
    """At once, and not in a step."""
    with pytest.raises(ValueError, match=error):
        series.NumpyReader(data)


def test_a_window_longer_than_the_series_is_refused():
    """Instead of a wait for ever."""
    with pytest.raises(ValueError, match="windows of size 201"):
        series.RandomWindowInputFn(READER, window_size=201, batch_size=1)


@pytest.mark.parametrize("discards", [True, False])
def test_windows_are_consecutive_records(discards):
    """Each has its own values; where the series begins anew, a window is left out, or sorted."""
    input_fn = series.RandomWindowInputFn(READER, window_size=7, batch_size=4,
                                                       discard_out_of_order=discards)
    batches = run(lambda: input_fn()[0], steps=30)
    times = np.concatenate([batch["times"] for batch in batches])
    assert times.shape == (120, 7) and len(set(times[:, 0].tolist())) > 30
    assert (np.diff(times) >= 0).all()
    assert ((np.diff(times) == 1).all(axis=1) | (not discards)).all()
    np.testing.assert_array_equal(np.concatenate([batch["values"] for batch in batches])[..., 0], WAVE[times])


def test_a_series_without_a_window_ends(tmp_path):
    """A file is shorter than a window, so that each window has decreasing times."""
    (tmp_path / "short").write_text("0,1.0\n1,2.0\n", encoding="utf-8")
    input_fn = series.RandomWindowInputFn(
        series.CSVReader(str(tmp_path / "short")), window_size=3, batch_size=2,
        discard_consecutive_batches_limit=5)
    with pytest.raises(tf.errors.OutOfRangeError):
        run(lambda: input_fn()[0])


def test_an_autoregressive_model_goes_on_with_the_series(tmp_path):
    """A sine is a linear function of its window."""
    model = series.ARRegressor(
        periodicities=None, input_window_size=10, output_window_size=5, num_features=1, model_dir=str(tmp_path),
        loss=series.ARModel.SQUARED_LOSS, optimizer=tf.train.AdamOptimizer(0.05))
    model.train(series.RandomWindowInputFn(READER, window_size=15, batch_size=16), steps=400)
    evaluation = model.evaluate(series.WholeDatasetInputFn(READER), steps=1)
    assert evaluation["mean"].shape == (1, 190, 1) and evaluation["loss"] < 0.01
    (prediction,) = model.predict(series.predict_continuation_input_fn(evaluation, steps=20))
    assert prediction["times"].tolist() == list(range(200, 220))
    np.testing.assert_allclose(prediction["mean"][:, 0], np.sin(2 * np.pi * np.arange(200, 220) / 20), atol=0.2)


def test_an_exported_model_goes_on_with_the_series(tmp_path):
    """By the signatures of its SavedModel: what is predicted there, and after more of the series was seen."""
    model = series.ARRegressor(periodicities=20, input_window_size=4, output_window_size=2, num_features=1,
                               model_dir=str(tmp_path))
    model.train(series.RandomWindowInputFn(READER, window_size=6, batch_size=4), steps=2)
    evaluation = model.evaluate(series.WholeDatasetInputFn(READER), steps=1)
    (expected,) = model.predict(series.predict_continuation_input_fn(evaluation, steps=3))
    folder = model.export_savedmodel(str(tmp_path / "export"), model.build_raw_serving_input_receiver_fn())
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], folder)
        loaded = {"signatures": signatures, "session": session}
        predicted = series.saved_model_utils.predict_continuation(evaluation, steps=3, **loaded)
        filtered = series.saved_model_utils.filter_continuation(
            evaluation, features={"times": np.arange(200, 206), "values": WAVE[:6]}, **loaded)
        further = series.saved_model_utils.predict_continuation(filtered, steps=3, **loaded)
    np.testing.assert_allclose(predicted["mean"][0], expected["mean"], rtol=1e-4)
    assert further["times"].tolist() == [[206, 207, 208]]


def test_hidden_layers_and_periods_are_used(tmp_path):
    """Each layer has its variables, with the names of TF 1.15's checkpoints; a window of 0 leaves the time.

    Issue: the names of hidden layers lacked "sequential".
    """
    model = series.ARRegressor(periodicities=[20], input_window_size=0, output_window_size=4, num_features=1,
                                    hidden_layer_sizes=[8, 3], model_dir=str(tmp_path))
    model.train(series.RandomWindowInputFn(READER, window_size=4, batch_size=4), steps=2)
    shapes = {name.removeprefix("model/flat_prediction_model/"): model.get_variable_value(name).shape
              for name in model.get_variable_names() if name.endswith("kernel")}
    assert shapes == {"sequential/dense/kernel": (40, 8), "sequential/dense_1/kernel": (8, 3),
                      "predicted_mean/kernel": (3, 4), "log_sigma_square/kernel": (3, 4)}


def test_anomalies_are_refused():
    """They are left out of the stand-in, which says so."""
    with pytest.raises(NotImplementedError, match="anomal"):
        series.ARRegressor(None, 2, 1, 1, anomaly_prior_probability=0.1)


class _Drift(series_models.SequentialTimeSeriesModel):
    """Predicts the last value and a drift, which it learns."""

    def __init__(self, **kwargs):
        super().__init__(train_output_names=["mean"], predict_output_names=["mean"], num_features=1, **kwargs)

    def initialize_graph(self, input_statistics=None):
        super().initialize_graph(input_statistics)
        self._drift = tf.get_variable("drift", [], initializer=tf.zeros_initializer())

    def get_start_state(self):
        return tf.zeros([1]), (tf.zeros([], tf.int64), tf.ones([2, 3]))

    def _imputation_step(self, current_times, state):
        return state

    def _prediction_step(self, current_times, state):
        mean = state[0] + self._drift
        return (mean, (current_times, state[1][1])), {"mean": mean}

    def _filtering_step(self, current_times, current_values, state, predictions):
        loss = tf.reduce_mean((predictions["mean"] - current_values) ** 2, axis=-1)
        return (current_values, state[1]), {**predictions, "loss": loss}


@pytest.mark.parametrize("unrolled", [None, 500])
def test_a_model_of_steps_learns_and_predicts(tmp_path, unrolled):
    """A line of slope 0.5, step by step in a loop or in the graph."""
    reader = series.NumpyReader({"times": TIMES[:30], "values": TIMES[:30] * 0.5})
    model = estimators.TimeSeriesRegressor(_Drift(static_unrolling_window_size_threshold=unrolled),
                                           optimizer=tf.train.GradientDescentOptimizer(0.2), model_dir=str(tmp_path))
    whole = series.WholeDatasetInputFn(reader)
    model.train(whole, steps=30)
    drift = float(model.get_variable_value("drift"))
    assert drift == pytest.approx(14.5 / 30, rel=1e-3)  # the first value, 0, is predicted from 0
    evaluation = model.evaluate(whole, steps=1)
    np.testing.assert_allclose(evaluation["mean"][0, 1:, 0], TIMES[:29] * 0.5 + drift, rtol=1e-5)
    np.testing.assert_allclose(evaluation["loss"], np.mean((np.diff(TIMES[:30] * 0.5, prepend=0) - drift) ** 2), 1e-3)
    (prediction,) = model.predict(series.predict_continuation_input_fn(evaluation, steps=3))
    np.testing.assert_allclose(prediction["mean"][:, 0], 14.5 + drift * np.arange(1, 4), rtol=1e-4)


def test_states_are_chained_from_window_to_window():
    """The second window begins with the state behind the first one, once that has been seen."""
    model = _Drift()
    with tf.Graph().as_default(), tf.Session() as session:
        manager = state_management.ChainingStateManager(state_saving_interval=5)
        model.initialize_graph()
        manager.initialize_graph(model)
        outputs = manager.define_loss(model, {"times": tf.constant(np.arange(10).reshape(2, 5)), "values": tf.constant(
            np.arange(10, 20, dtype=np.float32).reshape(2, 5, 1))}, tf.estimator.ModeKeys.TRAIN)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        results = [session.run([outputs.predictions["mean"], outputs.end_state, outputs.loss]) for _ in range(2)]
    assert [result[0][:, 0, 0].tolist() for result in results] == [[0, 0], [0, 14]]  # predicted from the state
    np.testing.assert_allclose(results[1][1][0], [[19]])
    assert results[1][2] < results[0][2]
