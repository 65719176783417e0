"""NaN and infinity are stopped before they reach a ps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ps_train.errors import UserCodeError
from ps_train.graph import nan_guard
from tests import bare_training, clusters
from tests.tensorflow_mode import tf


def data_with(value, row):
    """Returns the linear data with one feature replaced."""
    features, labels = clusters.linear_data()
    features[row, 2] = value
    return features, labels


def train(start_servers, features, labels, on_nan, gradients=None):
    """Returns the training, and its outcome after 40 steps on the arrays, in order."""
    training = bare_training.BareTraining(start_servers(2, 1), gradients=gradients,
                                          dataset=clusters.array_dataset(features, labels, shuffle=False))
    return training, training.train(40, on_nan=on_nan)


@pytest.mark.parametrize("value, gradients", [(np.nan, None), (-np.inf, 1)], ids=["async", "sync"])
def test_stop_names_worker_step_and_what_it_was(start_servers, value, gradients):
    """The third batch is bad: the error comes after two global steps."""
    message = r"worker:0, in the step after global step 2: the (loss|gradient of \w+) has (NaN|Inf|-Inf|\+Inf)"
    with pytest.raises(UserCodeError, match=message) as error:
        train(start_servers, *data_with(value, 20), "stop", gradients)
    assert error.value.exit_code == 1


@pytest.mark.parametrize("value, name", [(np.nan, "Nan"), (np.inf, "Infinity")])
def test_what_tensorflow_finds_in_a_summary_is_known_too(value, name):
    """A histogram of the model's own may fail before our check does."""
    with tf.Graph().as_default(), tf.Session() as session:
        histogram = tf.summary.histogram("layer/outputs", [1.0, value])
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            session.run(histogram)
    assert nan_guard.nan_in(error.value) == f"the summary layer/outputs has {name}"


@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_skip_leaves_the_bad_batches_out(start_servers, tmp_path, caplog, gradients):
    """The parameters are those of numpy on the seven good batches of eight, step by step, and finite."""
    features, labels = data_with(np.nan, 20)
    training, outcome = train(start_servers, features, labels, "skip", gradients)
    training.save(tmp_path)
    weights, bias, steps, batch = np.zeros(4), 0.0, 0, 0
    while steps < 40:
        rows = slice(8 * (batch % 8), 8 * (batch % 8) + 8)
        batch += 1
        residuals = features[rows] @ weights + bias - labels[rows]
        if np.isfinite(residuals).all():
            weights -= 0.05 * 2 * features[rows].T @ residuals / 8
            bias -= 0.05 * 2 * residuals.mean()
            steps += 1
    saved = clusters.read_checkpoint(tmp_path)
    assert outcome.global_step == saved["global_step"] == 40
    np.testing.assert_allclose(saved["weights"], weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(saved["bias"], bias, rtol=1e-4, atol=1e-6)
    assert caplog.text.count("this batch is skipped") == batch - steps


def test_skipping_without_end_is_an_error(start_servers):
    """Where every batch is bad it is not the batch."""
    features, labels = clusters.linear_data()
    with pytest.raises(UserCodeError, match="after global step 0: the (loss|gradient of .*) has NaN"):
        train(start_servers, features * np.nan, labels, "skip")


def test_one_bad_gradient_keeps_all_others_from_being_applied():
    """A finite gradient of one variable is not used while another one is infinite; IndexedSlices are looked at too."""
    with tf.Graph().as_default(), tf.Session() as session:
        table, other = tf.get_variable("table", [3, 2]), tf.get_variable("other", [2])
        scale = tf.placeholder(tf.float32, [])
        rows = tf.IndexedSlices(tf.ones([1, 2]) * scale, tf.constant([1]), tf.constant([3, 2]))
        guarded, _ = nan_guard.guard(tf.constant(1.0), [(rows, table), (tf.ones([2]), other), (None, other)])
        assert guarded[2][0] is None
        np.testing.assert_array_equal(session.run(guarded[1][0], {scale: 2.0}), [1, 1])
        np.testing.assert_array_equal(session.run(guarded[0][0].values, {scale: 2.0}), [[2, 2]])
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            session.run(guarded[1][0], {scale: np.inf})
        assert nan_guard.nan_in(error.value).startswith("the gradient of table has ")


def test_any_other_invalid_argument_is_not_taken_for_it():
    """It is the user's, and stays an error with its traceback."""
    assert nan_guard.nan_in(tf.errors.InvalidArgumentError(None, None, "Tensor had NaN values")) is None


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16])
@pytest.mark.parametrize("shape", [[3], [50, 60]], ids=["few", "many"])
@pytest.mark.parametrize(("bad", "found"), [([], None), ([np.nan], "NaN"), ([-np.inf], "Inf"),
                                            ([np.inf, -np.inf], "(NaN|Inf)")])
def test_one_bad_element_is_found_among_few_and_many(dtype, shape, bad, found):
    """Whether each element is looked at or their sum; large ones are none, also where float16's sum would end."""
    values = np.full(shape, 30000.0, dtype.as_numpy_dtype)
    values.flat[:len(bad)] = bad
    with tf.Graph().as_default(), tf.Session() as session:
        gradient, variable = tf.placeholder(dtype, shape), tf.get_variable("weights", shape, dtype)
        ((guarded, _),), _ = nan_guard.guard(tf.constant(1.0), [(gradient, variable)])
        if found is None:
            np.testing.assert_array_equal(session.run(guarded, {gradient: values}), values)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(guarded, {gradient: values})
            assert re.fullmatch(f"the gradient of weights has {found}", nan_guard.nan_in(error.value))
