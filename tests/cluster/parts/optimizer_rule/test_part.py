"""Schedules, clipping, weight decay and make_optimizer, in every update mode, against a plain session."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import pytest

import ps_train
from ps_train.errors import UserCodeError
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.parts.inference import predictor, serving
from ps_train.parts.optimizer_rule.part import ChosenRule, Schedule, clip_by_norm, rate_at
from ps_train.plugins import contracts
from ps_train.storage import checkpoints
from ps_train.training.evaluation import Evaluator
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.parts.tensorflow_sync.test_part import train_in_lock_step
from tests.errors import raises
from tests.tensorflow_mode import tf

STEPS = 12
RATE, DECAY, NORM = 0.1, 0.2, 0.5
PARAMS = {"batch_size": 8, "seed": 7}
MODES = {
    "async": {}, "sync": {"gradients": 1}, "classic": {"gradients": 1, "sync_engine": "tensorflow"},
    "rounds": {"period": Period(5, train_steps=STEPS)}, "several": {"steps_per_execution": 4}}
ALL = ChosenRule(options={"momentum": 0.8, "use_nesterov": True}, clip_norm=NORM, weight_decay=DECAY,
                 schedule=Schedule("cosine", warmup_steps=4, decay_steps=10, end=0.01))


def ordered():
    """Returns the linear data in an order that is always the same."""
    return clusters.array_dataset(*clusters.linear_data(), shuffle=False)


def linear_outputs(features, mode):
    """Returns the outputs of a linear regression behind a batch normalization; small enough to be packed."""
    features = tf.layers.batch_normalization(features, training=mode == "train", momentum=0.9, name="norm")
    weights = tf.get_variable("weights", [4], initializer=tf.ones_initializer())
    bias = tf.get_variable("bias", [], initializer=tf.ones_initializer())
    return tf.linalg.matvec(features, weights) + bias


def linear_loss(features, labels):
    """Returns its loss in training."""
    return tf.reduce_mean(tf.square(linear_outputs(features, "train") - labels))


def linear_fn(features, labels, mode, params):
    """The same as a model_fn."""
    outputs = linear_outputs(features, mode)
    return ps_train.ModelSpec(
        predictions=outputs, loss=None if labels is None else tf.reduce_mean(tf.square(outputs - labels)))


MODEL = contracts.Model("linear", linear_fn, {})


def cosine_with_warmup(step):
    """The schedule of ALL, by TensorFlow's own function."""
    rate = tf.train.cosine_decay(RATE, step, 10, alpha=0.01 / RATE)
    return rate * tf.minimum(1.0, (tf.cast(step, tf.float32) + 1) / 4)


@functools.cache
def plain(make, *, clip=None, decay=0.0, num_shards=1, steps=STEPS):
    """Returns name -> value after these steps in a plain session, with the mean gradient of the shards.

    Args:
      make: make(global step) returns (optimizer, learning rate).
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        step = tf.train.create_global_step()
        losses, initializers = [], []
        for shard in range(num_shards):
            batches = tf.data.make_initializable_iterator(
                ordered().input_fn(mode="train", params=PARAMS, shard=(shard, num_shards)))
            initializers.append(batches.initializer)
            with tf.variable_scope("", reuse=bool(shard)):
                losses.append(linear_loss(*batches.get_next()))
        variables = tf.trainable_variables()
        optimizer, rate = make(step)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            gradients = [tf.identity(one) for one in tf.gradients(tf.add_n(losses) / num_shards, variables)]
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, clip)
        with tf.control_dependencies(gradients):
            decayed = [one.assign_sub(rate * decay * one) for one in variables] if decay else []
        with tf.control_dependencies(decayed):
            train_op = optimizer.apply_gradients(zip(gradients, variables), step)
        session.run(tf.global_variables_initializer())
        session.run(initializers, ps_train.input_feed(graph))
        for _ in range(steps):
            session.run(train_op)
        return {one.op.name: session.run(one) for one in tf.global_variables()}


def train(start_servers, folder, **options):
    """Returns name -> value of the last checkpoint of ps_train, with two ps."""
    trained = {"model": MODEL, "learning_rate": RATE, **options}
    if trained.get("sync_engine"):
        clusters.train_together(start_servers(2, 1), folder, STEPS, 1, dataset=ordered(), **trained)
        return clusters.read_checkpoint(folder)
    return bare_training.checkpoint_of(start_servers(2, 1), folder, STEPS, **trained)


def assert_same(found, expected, but=()):
    """Compares two sets of variables, by name."""
    assert found.keys() == expected.keys()
    for name in expected.keys() - set(but):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6, err_msg=name)


def make_all(step):
    """Returns the optimizer of ALL, and its rate."""
    rate = cosine_with_warmup(step)
    return tf.train.MomentumOptimizer(rate, 0.8, use_nesterov=True), rate


@pytest.mark.parametrize("mode", MODES)
def test_everything_at_once_is_a_plain_session(mode, start_servers, tmp_path):
    """Warm-up and cosine, Nesterov's momentum, clipping and decay; the averages of batch normalization, too."""
    found = train(start_servers, tmp_path, optimizer_name="momentum", rule=ALL, **MODES[mode])
    assert_same(found, plain(make_all, clip=NORM, decay=DECAY))
    if mode == "async":
        check_averages_are_used(tmp_path, found)


def check_averages_are_used(folder, found):
    """An evaluation and predictions normalise with the averages, against numpy."""
    features, labels = clusters.linear_data()
    normal = (features - found["norm/moving_mean"]) / np.sqrt(found["norm/moving_variance"] + 0.001)
    outputs = (normal * found["norm/gamma"] + found["norm/beta"]) @ found["weights"] + found["bias"]
    path = checkpoints.newest_sound(str(folder))
    loss = Evaluator(MODEL, {}, ordered(), PARAMS).evaluate(path).loss_mean
    np.testing.assert_allclose(loss, np.mean((outputs - labels) ** 2), rtol=1e-5)
    made = serving.serving_input_maker(MODEL, {}, ordered(), PARAMS)
    with contextlib.closing(predictor.of_checkpoint(path, MODEL, {}, made, 1)) as model:
        [name] = model.inputs
        np.testing.assert_allclose(model.predict({name: features})["predictions"], outputs, rtol=1e-5, atol=1e-6)


def make_own(step):
    """Returns an optimizer of the model's own; no rate, as no weights decay."""
    return tf.train.RMSPropOptimizer(tf.train.exponential_decay(0.05, step, 3, 0.5), momentum=0.5), None


@pytest.mark.parametrize("mode", MODES)
def test_the_models_own_optimizer_is_a_plain_session(mode, start_servers, tmp_path):
    """Its rate follows the step that it is given, also on a worker's copy."""
    found = train(start_servers, tmp_path, make_model_optimizer=lambda step: make_own(step)[0], **MODES[mode])
    assert_same(found, plain(make_own))


class Uncounted(tf.train.GradientDescentOptimizer):
    """Leaves the global step alone, as BERT's AdamWeightDecayOptimizer does."""

    def apply_gradients(self, grads_and_vars, global_step, name=None):
        """Returns a list of updates."""
        return [variable.assign_sub(0.1 * gradient) for gradient, variable in grads_and_vars]


class Accumulating(tf.train.GradientDescentOptimizer):
    """Applies, and counts, every third gradient."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns the update, or nothing."""
        pairs, apply = list(grads_and_vars), super().apply_gradients
        number = tf.get_variable("number", [], tf.int32, tf.zeros_initializer(), trainable=False).assign_add(1)
        return tf.cond(tf.equal(number % 3, 0), lambda: tf.group(apply(pairs, global_step)), tf.no_op)


def with_apply(apply):
    """Returns an optimizer whose `apply_gradients` is replaced."""
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    optimizer.apply_gradients = functools.partial(apply, optimizer)
    return optimizer


@pytest.mark.parametrize("make", [
    lambda: Uncounted(0.1), lambda: Accumulating(0.1), lambda: with_apply(Uncounted.apply_gradients),
    lambda: tf.train.GradientDescentOptimizer(0.1), lambda: type("Own", (tf.train.AdamOptimizer,), {})(0.1),
    lambda: tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), 8.0),
], ids=["uncounted", "accumulating", "replaced", "of_tensorflow", "derived", "scaled"])
def test_each_step_of_the_models_own_optimizer_counts(make):
    """Issue: with one that leaves the global step to others, training never ended, and no save came after the first."""
    with tf.Graph().as_default(), tf.Session() as session:
        step, weights = tf.train.create_global_step(), tf.get_variable("weights", initializer=[1.0])
        optimizer = OptimizerPlan("sgd", 0.1, make_model_optimizer=lambda _: make()).make(step)
        update = tf.group(optimizer.apply_gradients([(tf.constant([1.0]), weights)], step))
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            session.run(update)
        assert session.run(step) == 4
        assert session.run(weights) < 1


@pytest.mark.parametrize("engine", ["ps_train", "tensorflow"])
def test_two_workers_in_sync_clip_and_decay_the_mean(engine, start_servers, tmp_path):
    """As a plain session of both mini-batches; the moving averages have both, one after the other."""
    expected = plain(make_all, clip=NORM, decay=DECAY, num_shards=2)
    found = train_in_lock_step(start_servers(2, 2), tmp_path, STEPS, model=MODEL, dataset=ordered(), learning_rate=RATE,
                               optimizer_name="momentum", rule=ALL, sync_engine=engine)
    assert_same(found, expected, but=["norm/moving_mean", "norm/moving_variance"])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize(("value", "norm"), [(300.0, 1.0), (60000.0, 0.001)], ids=["squares", "scale"])
def test_gradients_of_each_type_are_clipped_as_wide_ones(dtype, value, norm):
    """Issue: in float16 the square of 300 is infinite and a scale of 1e-8 is 0, so the update was 0, silently."""
    with tf.Graph().as_default(), tf.Session() as session:
        dense = tf.constant([value, -value], dtype)
        sparse = tf.IndexedSlices(tf.constant([[value]], dtype), tf.constant([2]), tf.constant([3, 1]))
        clipped, rows = clip_by_norm([dense, sparse], norm)
        assert clipped.dtype == rows.values.dtype == dtype
        found = session.run([tf.cast(one, tf.float32) for one in (clipped, rows.values)])
    share = norm / np.sqrt(3)
    np.testing.assert_allclose(found[0], [share, -share], rtol=0.01)
    np.testing.assert_allclose(found[1], [[share]], rtol=0.01)


@pytest.mark.parametrize("mode", ["async", "sync", "rounds"])
def test_a_norm_that_is_infinite_stops_the_step(mode, start_servers):
    """Issue: each gradient is finite, but not the sum of their squares, and the update was 0, silently."""
    features, labels = clusters.linear_data()
    features[20, 2] = 1e15
    training = bare_training.BareTraining(
        start_servers(2, 1), dataset=clusters.array_dataset(features, labels, shuffle=False), rule=ChosenRule(
            clip_norm=NORM), **MODES[mode])
    with raises("not_finite", kind=UserCodeError) as caught:
        training.train(STEPS)
    assert "after global step 2: the norm of the gradients has Inf" in str(caught.value)


@pytest.mark.parametrize("mode", ["sync", "classic"])
def test_an_infinite_norm_in_the_chiefs_update_is_one_line(mode, start_servers, tmp_path):
    """Issue: users got the traceback of the operation in ps_train."""
    features, labels = clusters.linear_data()
    features[20, 2] = 1e15
    with raises("not_finite", kind=UserCodeError) as caught:
        clusters.train_together(
            start_servers(2, 1), tmp_path, STEPS, 1, rule=ChosenRule(clip_norm=NORM),
            dataset=clusters.array_dataset(features, labels, shuffle=False), **MODES[mode])
    assert "in an update of all workers: the norm of the gradients has Inf" in str(caught.value)


@pytest.mark.parametrize("mode", ["async", "sync", "classic"])
def test_a_norm_that_overflows_is_left_out_by_an_optimizer_that_scales_the_loss(mode, start_servers, tmp_path):
    """Issue: the first overflow, by which the scale adapts, ended the training. All updates after it are clipped."""
    def make(_):
        return tf.train.experimental.MixedPrecisionLossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.05), tf.train.experimental.DynamicLossScale(1e38))

    saved = train(start_servers, tmp_path, make_model_optimizer=make, rule=ChosenRule(clip_norm=NORM), **MODES[mode])
    assert saved["global_step"] == STEPS and 0 < saved["current_loss_scale"] < 1e38
    assert 0 < np.abs(saved["weights"] - 1).max() <= 0.05 * NORM * STEPS


@pytest.mark.parametrize("value", [1e25, np.inf, np.nan], ids=["squares", "inf", "nan"])
def test_no_gradient_of_a_judged_norm_that_is_not_finite_is_applied(value):
    """Each is NaN, so that the optimizer leaves the update out, also where only the sum of the squares overflows."""
    with tf.Graph().as_default(), tf.Session() as session:
        dense, sparse = tf.placeholder(tf.float32, [2]), tf.IndexedSlices(tf.constant([[3.0]]), tf.constant([2]))
        clipped, rows = clip_by_norm([dense, sparse], NORM, is_judged=True)
        assert np.isnan(np.concatenate([part.ravel() for part in session.run(
            [clipped, rows.values], {dense: [value, 4.0]})])).all()
        np.testing.assert_allclose(session.run(clipped, {dense: [0.0, 4.0]}), [0.0, NORM * 4 / 5], rtol=1e-6)


def test_schedules_are_those_of_tensorflow():
    """Each at every step up to its end and behind it."""
    cases = {
        "exponential": (Schedule("exponential", decay_steps=3, decay_rate=0.5),
                        lambda step: tf.train.exponential_decay(RATE, step, 3, 0.5)),
        "cosine": (Schedule("cosine", decay_steps=8, end=0.02),
                   lambda step: tf.train.cosine_decay(RATE, step, 8, alpha=0.2)),
        "polynomial": (Schedule("polynomial", decay_steps=8, end=0.02, decay_power=2.0),
                       lambda step: tf.train.polynomial_decay(RATE, step, 8, 0.02, power=2.0)),
        "piecewise": (Schedule("piecewise", boundaries=(2, 5), values=(0.3, 0.2, 0.1)),
                      lambda step: tf.train.piecewise_constant(step, [2, 5], [0.3, 0.2, 0.1])),
        "constant": (Schedule("constant", warmup_steps=4),
                     lambda step: RATE * tf.minimum(1.0, (tf.cast(step, tf.float32) + 1) / 4)),
    }
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        pairs = {name: (rate_at(own, RATE, step), theirs(step)) for name, (own, theirs) in cases.items()}
        for number in range(11):
            for name, (found, expected) in session.run(pairs, {step: number}).items():
                np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=f"{name} at {number}")


@pytest.mark.parametrize(("make_model_optimizer", "code"), [
    (lambda step: 0.1, "plugin_returned_wrong_type"),
    (lambda step: tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1),
     "sync_optimizer_in_plugin"),
])
def test_another_return_is_refused(make_model_optimizer, code):
    """Before a session opens, with what it must return."""
    with raises(code):
        clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=MODEL, make_model_optimizer=make_model_optimizer)
