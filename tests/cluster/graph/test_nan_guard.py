"""NaN and infinity are stopped before they reach a ps."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ps_train
from ps_train.errors import UserCodeError
from ps_train.graph import nan_guard
from ps_train.plugins import contracts
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf

FIRST_MEAN = 3.0


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


def dynamic():
    """Halves a scale by which all gradients overflow at first."""
    return tf.train.experimental.DynamicLossScale(initial_loss_scale=1e38)


def scaled_model(make_scale):
    """Returns a linear model that minimises its loss by such a scale itself, and how it would make the optimizer."""
    def make_optimizer(_):
        optimizer = tf.train.MomentumOptimizer(0.02, 0.5)
        return tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, make_scale())

    def model_fn(features, labels, mode, params):
        spec = clusters.linear_model().model_fn(features, labels, mode, params)
        return spec._replace(train_op=make_optimizer(None).minimize(spec.loss, tf.train.get_global_step()))

    return contracts.Model("scaled", model_fn, {}), make_optimizer


@pytest.mark.parametrize("is_own", [True, False], ids=["train_op", "make_optimizer"])
@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_an_optimizer_that_scales_the_loss_learns_from_gradients_that_overflow(
        start_servers, tmp_path, caplog, gradients, is_own):
    """It leaves these updates out. Issue: the first overflow ended the training, so the scale never adapted."""
    model, make_optimizer = scaled_model(dynamic)
    options = {"model": model} if is_own else {"make_model_optimizer": make_optimizer}
    saved = bare_training.checkpoint_of(start_servers(2, 1), tmp_path, 30, gradients=gradients, **options)
    assert saved["global_step"] == 30 and 0 < saved["current_loss_scale"] < 1e38
    assert 0 < np.abs(saved["weights"] - clusters.TRUE_WEIGHTS).max() < 2
    assert "gradients were lost" not in caplog.text


def test_a_fixed_scale_cannot_learn(start_servers, tmp_path):
    """TensorFlow would apply what has overflowed."""
    with raises("not_finite"):
        bare_training.checkpoint_of(start_servers(2, 1), tmp_path, 30, model=scaled_model(lambda: 1e38)[0])


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


def averaging_model(kind):
    """Returns a linear model with a moving average of its features, which is updated in one of several ways.

    Args:
      kind: where the update runs: in the collection UPDATE_OPS, there in a branch, before the minimize of the model's
        own optimizer, before its apply_gradients only, or before the loss is computed.
    """
    def model_fn(features, labels, mode, params):
        mean = tf.get_variable("mean", [], trainable=False, initializer=tf.constant_initializer(FIRST_MEAN))
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        is_training = tf.placeholder_with_default(True, [])

        def update():
            return mean.assign_sub(0.1 * (mean - tf.reduce_mean(features)))

        updated = tf.cond(is_training, update, lambda: mean) if kind == "branch" else update()
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, updated)
        with tf.control_dependencies([updated] if kind == "loss" else []):
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels))
        optimizer, step = tf.train.GradientDescentOptimizer(0.05), tf.train.get_global_step()
        train_op = None
        if kind == "apply":
            pairs = optimizer.compute_gradients(loss)
            with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
                train_op = optimizer.apply_gradients(pairs, step)
        if kind == "minimize":
            with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
                train_op = optimizer.minimize(loss, step)
        return ps_train.ModelSpec(loss=loss, train_op=train_op)

    return contracts.Model("averaging", model_fn, {})


MODES = {"async": {}, "sync": {"gradients": 1}, "rounds": {"period": Period(5)}, "unrolled": {"steps_per_execution": 3}}


@pytest.mark.parametrize(("kind", "mode"), [
    ("branch", "async"), ("branch", "rounds"),  # no branch is unrolled
    *((kind, mode) for kind in ("collection", "apply", "minimize", "loss") for mode in MODES)])
def test_a_bad_batch_is_in_no_moving_average(start_servers, tmp_path, kind, mode):
    """It would stay NaN for ever. The average is that of numpy on the good batches."""
    features, labels = data_with(np.nan, 20)
    dataset = clusters.array_dataset(features, labels, shuffle=False, repeat=False)
    training = bare_training.BareTraining(
        start_servers(1, 1), dataset=dataset, model=averaging_model(kind), **MODES[mode])
    assert training.train(99, on_nan="skip").local_steps == 7
    training.save(tmp_path)
    mean = FIRST_MEAN
    for batch in (0, 1, 3, 4, 5, 6, 7):
        mean -= 0.1 * (mean - features[8 * batch:8 * batch + 8].mean())
    np.testing.assert_allclose(clusters.read_checkpoint(tmp_path)["mean"], mean, rtol=1e-5)


def test_an_infinite_gradient_of_a_finite_loss_keeps_its_batch_out_of_moving_averages(start_servers):
    """All of it is left out, not only what is infinite itself."""
    features, labels = clusters.linear_data()

    def model_fn(features, labels, mode, params):
        mean = tf.get_variable("mean", [], trainable=False, initializer=tf.constant_initializer(FIRST_MEAN))
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign_add(1.0))
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        return ps_train.ModelSpec(loss=tf.sqrt(weight) + 0 * tf.reduce_mean(features))  # its gradient at 0 is infinite

    training = bare_training.BareTraining(start_servers(1, 1), model=contracts.Model("infinite", model_fn, {}))
    with raises("not_finite"):
        training.train(1)
    _, mean, weight = training.session.run(training.graph.savers.variables)
    assert (mean, weight) == (FIRST_MEAN, 0)


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
