"""Models that bring their own train_op, in every update mode, against a plain session and against numpy."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import ps_train
from ps_train.graph import placement
from ps_train.plugins import contracts
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.updates.test_build import gradients_of
from tests.errors import raises
from tests.tensorflow_mode import tf

STEPS = 12
PARAMS = {"batch_size": 8, "seed": 7}
MODES = {"async": {}, "sync": {"gradients": 1}, "rounds": {"period": Period(5, train_steps=STEPS)},
         "sync by TensorFlow": {"gradients": 1, "sync_engine": "tensorflow"}}
# As tf.estimator.EstimatorSpec, which the core does not know.
Spec = collections.namedtuple(
    "Spec", "mode predictions loss train_op eval_metric_ops training_hooks training_chief_hooks scaffold",
    defaults=(None, (), (), None))


def own_dataset():
    """Returns the linear data in an order that is always the same."""
    return clusters.array_dataset(*clusters.linear_data(), shuffle=False)


def linear_loss(features, labels, scope="linear"):
    """Returns the loss of a linear regression from zero, with another variable that is not trained."""
    with tf.variable_scope(scope):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        mean = tf.get_variable("mean", [4], initializer=tf.zeros_initializer(), trainable=False)
    moved = mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(features, 0))
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, moved)
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, tf.convert_to_tensor(weights)) + bias - labels))


def by_minimize(loss):
    """Adam behind the update operations, as in every example of Estimator."""
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        return tf.train.AdamOptimizer(0.05).minimize(loss, tf.train.get_global_step())


def clipped_with_schedule(loss):
    """All gradients clipped together, a learning rate that decays with the global step, another scope."""
    with tf.variable_scope("training"), tf.name_scope("training"):
        variables = tf.trainable_variables()
        clipped, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.5)
        rate = tf.train.exponential_decay(0.1, tf.train.get_global_step(), 3, 0.5)
        return tf.train.MomentumOptimizer(rate, 0.9).apply_gradients(
            zip(clipped, variables), tf.train.get_global_step())


def two_optimizers(loss):
    """One for the weights and one for the rest; the global step is counted separately, as in wide and deep models."""
    weights = [one for one in tf.trainable_variables() if "weights" in one.name]
    others = [one for one in tf.trainable_variables() if "weights" not in one.name]
    train_op = tf.group(tf.train.FtrlOptimizer(0.1).minimize(loss, var_list=weights),
                        tf.train.AdagradOptimizer(0.1).minimize(loss, var_list=others))
    with tf.control_dependencies([train_op]):
        return tf.assign_add(tf.train.get_global_step(), 1)


def by_rate_of_the_batch(loss):
    """A learning rate that falls with the loss of the mini-batch."""
    return tf.train.GradientDescentOptimizer(tf.minimum(0.05, 0.01 * loss)).minimize(loss, tf.train.get_global_step())


def as_a_tensor(loss):
    """The loss after the update, as slim's create_train_op returns it; weight decay over all trainable variables."""
    loss += 0.1 * tf.add_n([tf.nn.l2_loss(one) for one in tf.trainable_variables()])
    applied = tf.train.GradientDescentOptimizer(0.05).minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([applied]):
        return tf.identity(loss)


def with_moving_average(loss):
    """The moving averages of the variables, after each update."""
    applied = tf.train.RMSPropOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([applied]):
        return tf.train.ExponentialMovingAverage(0.9).apply(tf.trainable_variables())


class WithoutSlots(tf.train.Optimizer):
    """Applies gradients by a custom rule, with variables by get_variable, and does not count: as BERT's does."""

    def __init__(self):
        super().__init__(False, "WithoutSlots")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        changes = []
        for gradient, variable in grads_and_vars:
            moment = tf.get_variable(f"{variable.op.name}/moment", variable.shape, trainable=False,
                                     initializer=tf.zeros_initializer())
            moved = 0.5 * moment + gradient
            changes += [moment.assign(moved), variable.assign(variable - 0.05 * moved)]
        return tf.group(*changes, name=name)


def counts_separately(loss):
    """An optimizer that leaves the global step to the model."""
    step = tf.train.get_global_step()
    applied = WithoutSlots().apply_gradients(WithoutSlots().compute_gradients(loss), global_step=step)
    return tf.group(applied, [step.assign(step + 1)])


def model_of(train_op, spec=Spec, **others):
    """Returns a model with this train_op."""
    def model_fn(features, labels, mode, params):
        loss = linear_loss(features, labels)
        made = train_op(loss) if mode == ps_train.TRAIN else None
        return spec(mode=mode, predictions=None, loss=loss, train_op=made, eval_metric_ops=None, **others)

    return contracts.Model("own", model_fn, {})


def plain(model, steps=STEPS):
    """Returns name -> value of all variables after these steps in a plain session, with the train_op as it is."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.create_global_step()
        made = own_dataset().input_fn(mode="train", params=PARAMS, shard=(0, 1))
        batches = tf.data.make_initializable_iterator(made)
        spec = model.model_fn(*batches.get_next(), "train", PARAMS)
        session.run(tf.global_variables_initializer())
        session.run(batches.initializer, ps_train.input_feed(graph))
        for _ in range(steps):
            session.run(spec.train_op)
        return {one.op.name: session.run(one) for one in tf.global_variables()}


def minimised(loss, optimizer):
    """The usual way."""
    return optimizer.minimize(loss, tf.train.get_global_step())


def by_hand(loss, optimizer):
    """As BERT's optimizer does."""
    variables = tf.trainable_variables()
    return optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables), tf.train.get_global_step())


def scaled(loss, optimizer):
    """The wrapper multiplies the loss, and divides the gradients."""
    return minimised(loss, tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, 64.0))


def with_penalty(loss, optimizer):
    """Of the norm of a gradient, which is not the one that is applied."""
    (slope,) = tf.gradients(loss, [tf.trainable_variables()[0]])
    return minimised(loss + 0 * tf.reduce_sum(slope**2), optimizer)


def model_with_table(train_op, returns_all):
    """Returns a model with a table, which minimises more than its loss, unless it returns all of it."""
    def model_fn(features, labels, mode, params):
        table = ps_train.embedding_table("table", dim=4, num_rows=9, initializer=tf.ones_initializer(), optimizer="sgd",
                                         learning_rate=0.01)
        weights = table.lookup(tf.cast(tf.abs(features[:, 0]) * 2, tf.int64)) + tf.get_variable(
            "bias", [4], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(features * weights, 1) - labels))
        total = 4 * loss + tf.nn.l2_loss(weights)
        made = train_op(total, tf.train.GradientDescentOptimizer(0.01))
        return ps_train.ModelSpec(loss=total if returns_all else loss, train_op=made)

    return contracts.Model("table", model_fn, {})


def train(start_servers, folder, model, steps=STEPS, num_workers=1, **options):
    """Returns name -> value of the last checkpoint of ps_train."""
    clusters.train_together(start_servers(1, num_workers), folder, steps, num_workers, model=model,
                            dataset=own_dataset(), **options)
    return clusters.read_checkpoint(folder)


def assert_same(found, expected):
    """Compares two sets of variables, by name."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("train_op, mode", [
    (by_minimize, "rounds"), (clipped_with_schedule, "sync"), (two_optimizers, "async"), (two_optimizers, "rounds"),
    (by_rate_of_the_batch, "async"), (by_rate_of_the_batch, "rounds")])
def test_one_worker_ends_where_a_plain_session_does(tmp_path, start_servers, train_op, mode):
    """Variables, slots, global step, and all their names: a checkpoint fits both."""
    model = model_of(train_op)
    assert_same(train(start_servers, tmp_path, model, **MODES[mode]), plain(model))


@pytest.mark.parametrize("train_op, mode", [
    (as_a_tensor, "rounds"), (with_moving_average, "async"), (counts_separately, "sync")])
def test_what_a_train_op_does_besides_is_done_too(tmp_path, start_servers, train_op, mode):
    """A moving average follows each update; a separate count is not made twice."""
    model = model_of(train_op)
    assert_same(train(start_servers, tmp_path, model, **MODES[mode]), plain(model))


@pytest.mark.parametrize("train_op", [minimised, by_hand, scaled, with_penalty], ids=lambda one: one.__name__)
@pytest.mark.parametrize("mode", ["async", "sync", "rounds"])
def test_rows_are_trained_on_what_the_optimizer_minimises(tmp_path, start_servers, train_op, mode):
    """As the variables are. Issue: they got the gradient of the loss of the spec, such as one without the penalties."""
    part, whole = (bare_training.checkpoint_of(
        start_servers(1, 1), tmp_path / str(returns_all), 10, model=model_with_table(train_op, returns_all),
        **MODES[mode]) for returns_all in (False, True))
    (rows,) = [name for name in part if name.endswith("/values")]
    assert np.min(np.max(np.abs(part[rows] - 1), 1)) > 1e-3, "each was trained"
    assert_same({name: part[name] for name in (rows, "bias")}, {name: whole[name] for name in (rows, "bias")})


def test_sync_averages_the_clipped_gradients_of_two_workers(tmp_path, start_servers):
    """What the model passes to its optimizer is averaged, here gradients of norm 1."""
    def train_op(loss):
        step, variables = tf.train.get_global_step(), tf.trainable_variables()
        clipped, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2)
        return optimizer.apply_gradients(zip(clipped, variables), step)

    saved = train(start_servers, tmp_path, model_of(train_op), steps=3, num_workers=2, gradients=2)
    features, labels = clusters.linear_data()
    weights, bias = np.zeros(4), 0.0
    for step in range(3):
        parts = []
        for worker in range(2):
            rows = [worker + 2 * (8 * step + row) for row in range(8)]
            raw = np.append(*gradients_of(weights, bias, features[rows], labels[rows]))
            parts.append(raw / max(1.0, np.linalg.norm(raw)))
        mean = np.mean(parts, axis=0)
        weights, bias = weights - 0.1 * mean[:4], bias - 0.1 * mean[4]
    assert saved["global_step"] == 3
    np.testing.assert_allclose(saved["linear/weights"], weights, rtol=1e-5)
    np.testing.assert_allclose(saved["linear/bias"], bias, rtol=1e-5)


def in_a_branch(loss):
    """Gradients that are applied in every second step only."""
    step = tf.train.get_global_step()
    optimizer = tf.train.GradientDescentOptimizer(0.05)
    pairs = optimizer.compute_gradients(loss)
    applied = tf.cond(tf.equal(step % 2, 0), lambda: optimizer.apply_gradients(pairs), tf.no_op)
    with tf.control_dependencies([applied]):
        return tf.assign_add(step, 1)


def in_a_function(loss):
    """Gradients that are applied in a function of TensorFlow 2."""
    optimizer = tf.train.GradientDescentOptimizer(0.05)
    pairs = optimizer.compute_gradients(loss)

    @tf.compat.v2.function
    def apply(*gradients):
        optimizer.apply_gradients(zip(gradients, [variable for _, variable in pairs]))
        return tf.constant(0)

    with tf.control_dependencies([apply(*(gradient for gradient, _ in pairs))]):
        return tf.assign_add(tf.train.get_global_step(), 1)


def one_after_the_other(loss):
    """The second optimizer's gradients need the first one's update."""
    variables = tf.trainable_variables()
    first = tf.train.GradientDescentOptimizer(0.05).minimize(loss, var_list=variables[:1])
    with tf.control_dependencies([first]):
        again = tf.reduce_sum(tf.square(variables[1].read_value() - 1.0))
        return tf.train.GradientDescentOptimizer(0.05).minimize(
            again, tf.train.get_global_step(), var_list=variables[1:])


@pytest.mark.optimised
@pytest.mark.parametrize("train_op, reason", [
    (in_a_branch, "updates variables by other means"),
    (in_a_function, "updates variables by other means"),
    (one_after_the_other, "applies gradients that it computes after another")])
def test_a_train_op_that_cannot_be_separated_runs_as_it_is(tmp_path, start_servers, train_op, reason):
    """Asynchronously; every other mode says why not."""
    model = model_of(train_op)
    assert_same(train(start_servers, tmp_path, model), plain(model))
    for refused in ({"gradients": 1}, {"period": Period(5)}, {"steps_per_execution": 2}):
        with raises("train_op_unsupported") as caught:
            clusters.build_graph(start_servers(1, 1), 0, model=model, dataset=own_dataset(), **refused)
        assert f"because it {reason}" in str(caught.value)


def by_hand(loss):
    """No optimizer, and nothing that raises the global step."""
    return tf.group(*(variable.assign_sub(0.05 * gradient) for variable, gradient in zip(
        tf.trainable_variables(), tf.gradients(loss, tf.trainable_variables()))))


def by_hand_in_a_branch(loss):
    """It reads the global step in a branch, where nothing raises it either."""
    bias = tf.trainable_variables()[1]
    step = tf.train.get_global_step()
    return tf.cond(tf.reduce_sum(loss) >= 0.0, lambda: bias.assign_sub(0.0 * tf.cast(step.read_value(), tf.float32)),
                   lambda: bias.read_value())


def by_hand_that_counts_in_a_branch(loss):
    """What raises the global step may be anywhere."""
    step = tf.train.get_global_step()
    with tf.control_dependencies([by_hand_in_a_branch(loss)]):
        return tf.cond(tf.constant(True), lambda: step.assign_add(1), step.read_value)


@pytest.mark.parametrize("train_op, counts", [
    (by_hand, False), (by_hand_in_a_branch, False), (by_hand_that_counts_in_a_branch, True)])
def test_a_train_op_that_runs_as_it_is_ends(tmp_path, start_servers, train_op, counts):
    """If it does not raise the global step, each of its steps is counted; else training would have no end."""
    model = model_of(train_op)
    expected = plain(model)
    assert expected["global_step"] == counts * STEPS
    assert_same(train(start_servers, tmp_path, model), {**expected, "global_step": STEPS})


def _minimize(optimizer, loss, variables):
    return optimizer.minimize(loss, tf.train.get_global_step(), var_list=variables)


def _clip(optimizer, loss, variables):
    pairs = optimizer.compute_gradients(loss, variables)
    return optimizer.apply_gradients([(tf.clip_by_norm(gradient, 0.1), variable) for gradient, variable in pairs],
                                     tf.train.get_global_step())


@pytest.mark.parametrize("make_train_op", [_minimize, _clip])
def test_a_variable_in_parts_may_be_named_for_minimize(start_servers, tmp_path, make_train_op):
    """As without --partition_bytes. Issue: AttributeError of TensorFlow, which takes only its parts."""
    def model_fn(features, labels, mode, params):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, tf.convert_to_tensor(weights)) - labels))
        return ps_train.ModelSpec(loss=loss, train_op=make_train_op(
            tf.train.GradientDescentOptimizer(0.1), loss, [weights]))

    cut, whole = (bare_training.checkpoint_of(
        start_servers(2, 1), tmp_path / str(size), 5, model=contracts.Model("cut", model_fn, {}),
        plan=placement.PlacementPlan(partition_bytes=size)) for size in (8, 0))
    assert whole["weights"].any()
    if make_train_op is _minimize:  # each part is clipped by its own norm
        assert_same(cut, whole)


class RunsAside(tf.train.SessionRunHook):
    """Runs an operation after each step, as hooks for critics do."""

    def __init__(self, op):
        self._op = op

    def after_run(self, run_context, run_values):
        run_context.session.run(self._op)


def model_with_two(place, has_train_op=True):
    """Returns a model with a second optimizer, which a hook or UPDATE_OPS run, or also its train_op."""
    def model_fn(features, labels, mode, params):
        loss = linear_loss(features, labels)
        aside = tf.get_variable("aside", [], initializer=tf.zeros_initializer())
        second = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.square(aside - 1.0), var_list=[aside])
        if place == "update ops":
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, second)
        train_op = None
        if has_train_op:
            train_op = tf.train.GradientDescentOptimizer(0.05).minimize(
                loss, tf.train.get_global_step(), var_list=tf.trainable_variables()[:2])
        hooks = {"hook": [RunsAside(second)], "both": [RunsAside(second)]}.get(place, [])
        return ps_train.ModelSpec(loss=loss, train_op=tf.group(train_op, second) if place == "both" else train_op,
                                  training_hooks=hooks)

    return contracts.Model("two", model_fn, {})


@pytest.mark.parametrize("place, has_train_op, mode", [
    ("hook", True, "async"), ("hook", False, "sync"), ("update ops", False, "async")])
def test_an_optimizer_beside_the_train_op_updates(tmp_path, start_servers, place, has_train_op, mode):
    """Where a hook, or UPDATE_OPS, run it. Issue: it was recorded, and never applied."""
    saved = train(start_servers, tmp_path, model_with_two(place, has_train_op), **MODES[mode])
    aside = moment = 0.0
    for _ in range(STEPS):
        moment = 0.9 * moment + 2 * (aside - 1.0)
        aside -= 0.1 * moment
    assert saved["global_step"] == STEPS
    np.testing.assert_allclose(saved["aside"], aside, rtol=1e-5)


def test_an_optimizer_that_nothing_runs_makes_no_slots(start_servers):
    """A model may make a train_op that it does not return; a checkpoint has nothing of that."""
    graph = clusters.build_graph(start_servers(1, 1), 0, model=model_with_two("nowhere"), dataset=own_dataset())
    assert "aside/Momentum" not in {one.op.name for one in graph.savers.variables}


def test_update_ops_with_an_optimizer_are_refused_in_rounds(start_servers):
    """They would update the parameters themselves, in a loop on a copy."""
    with raises("train_op_unsupported") as caught:
        clusters.build_graph(start_servers(1, 1), 0, model=model_with_two("update ops", False), dataset=own_dataset(),
                             **MODES["rounds"])
    assert "UPDATE_OPS have an update of the model's MomentumOptimizer" in str(caught.value)


def test_a_hook_that_may_repeat_the_train_ops_update_is_named(start_servers, caplog):
    """It would make a whole update, so a line says so."""
    clusters.build_graph(start_servers(1, 1), 0, model=model_with_two("both"), dataset=own_dataset())
    assert "the model's hook RunsAside has an operation that needs the update of the train_op" in caplog.text


def after_the_batch(loss):
    """Keeps the loss of the last mini-batch, after the update."""
    kept = tf.get_variable("kept", [], trainable=False)
    with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.05).minimize(loss)]):
        return kept.assign(loss)


def synchronous(loss):
    """Asks for synchronous updates."""
    return tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.05), 1).minimize(
        loss, tf.train.get_global_step())


@pytest.mark.parametrize("train_op, mode, code", [
    (with_moving_average, "rounds", "train_op_unsupported"),
    (by_rate_of_the_batch, "sync", "train_op_unsupported"),
    (by_rate_of_the_batch, "sync by TensorFlow", "train_op_unsupported"),
    (counts_separately, "rounds", "optimizer_unsupported"),
    (after_the_batch, "sync", "train_op_unsupported"),
    (synchronous, "async", "model_is_synchronous")])
def test_what_a_mode_cannot_do_is_refused(start_servers, train_op, mode, code):
    """In one line, with what to do."""
    with raises(code):
        clusters.build_graph(start_servers(1, 1), 0, model=model_of(train_op), dataset=own_dataset(), **MODES[mode])


class _Counting(tf.train.GradientDescentOptimizer):
    """Counts by itself, and so cannot do without a step; or only raises an error of its own."""

    def __init__(self, error=None):
        super().__init__(0.05)
        self._error = error

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        applied = super().apply_gradients(grads_and_vars, name=name)
        if self._error is not None:
            raise self._error
        with tf.control_dependencies([applied]):
            return tf.assign_add(global_step, 1)


@pytest.mark.parametrize("mode", MODES)
def test_an_optimizer_that_needs_the_step_is_told_what_to_do(start_servers, mode):
    """Issue: "'NoneType' object has no attribute 'dtype'", in every mode, of a model that TF1 trains."""
    model = model_of(lambda loss: _Counting().minimize(loss, tf.train.get_global_step()))
    with raises("optimizer_needs_step") as caught:
        clusters.build_graph(start_servers(1, 1), 0, model=model, dataset=own_dataset(), **MODES[mode])
    assert "_Counting.apply_gradients fails without a global_step: 'NoneType'" in str(caught.value)


def test_another_error_of_a_models_optimizer_is_its_own(start_servers):
    """It has nothing to do with the step."""
    model = model_of(lambda loss: _Counting(ValueError("a bad rate")).minimize(loss, tf.train.get_global_step()))
    with pytest.raises(ValueError, match="a bad rate"):
        clusters.build_graph(start_servers(1, 1), 0, model=model, dataset=own_dataset())


def test_a_whole_run_of_steps_repeats_the_models_own_update(tmp_path, start_servers):
    """--steps_per_execution copies it like ps_train's own."""
    model = model_of(by_minimize)
    assert_same(train(start_servers, tmp_path, model, steps_per_execution=4), plain(model))


@pytest.mark.optimised
def test_many_small_variables_are_packed_under_an_optimizer_that_works_element_by_element(tmp_path, start_servers):
    """Not under another one; both end where a plain session does."""
    def model_fn(features, labels, mode, params):
        found = [tf.get_variable(f"w{number}", [4], initializer=tf.ones_initializer()) for number in range(20)]
        loss = tf.add_n([tf.reduce_mean(tf.square(tf.linalg.matvec(features, one) - labels)) for one in found])
        optimizer = (tf.train.AdamOptimizer if params["seed"] == 7 else WithoutSlots)()
        train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss), tf.train.get_global_step())
        return Spec(mode, None, loss, train_op, None)

    model = contracts.Model("many", model_fn, {})
    assert_same(train(start_servers, tmp_path, model), plain(model))
    packs = [len(clusters.build_graph(start_servers(1, 1), 0, model=model, dataset=own_dataset(),
                                      params={**PARAMS, "seed": seed}).update.dense.packed.contents) for seed in (7, 8)]
    assert packs == [1, 0]
