"""Local steps, checked against numpy and against training without them."""

from __future__ import annotations

import concurrent.futures
import re
import shutil
import threading

import numpy as np
import pytest
from tensorflow.python.ops import control_flow_util

import ps_train
from ps_train.coordination import sessions, variables
from ps_train.coordination.state import State
from ps_train.graph import placement, transfer
from ps_train.plugins import contracts
from ps_train.runtime import waits
from ps_train.training.reporting import End
from ps_train.updates import staleness
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.graph.test_transfer import crossings, many_variables_model
from tests.cluster.updates.test_build import gradients_of, train_in_turn
from tests.errors import raises
from tests.tensorflow_mode import tf

DEADLINE_SECS = 60


def train(cluster, folder, steps, **options):
    """Returns the outcomes and the last checkpoint, trained in batches of 8 in an order that is always the same."""
    outcomes = bare_training.train(cluster, folder, steps, continues=True, **options)
    return outcomes, clusters.read_checkpoint(folder)


def assert_equal(one, other, **tolerance):
    """Compares two checkpoints."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], err_msg=name, **tolerance)


@pytest.mark.parametrize("rule, gradients", [
    *((rule, None) for rule in ("sgd", "momentum", "ftrl")), ("adam", 1)])  # without slots, with one, two, and powers
def test_one_worker_comes_to_the_same_with_and_without_local_steps(tmp_path, start_servers, rule, gradients):
    """Parameters, slots and global step, after 42 steps in rounds of 5: with one worker there is nothing to average."""
    ends = [train(start_servers(2, 1), tmp_path / str(steps), 42, optimizer_name=rule, gradients=gradients,
                  learning_rate=0.01,  # with more, momentum swings, and the order of a sum shows in its velocity
                  period=Period(steps, train_steps=42))[1] for steps in (1, 5)]
    assert_equal(*ends, rtol=1e-5, atol=1e-6)
    assert ends[1]["global_step"] == 42


def test_a_checkpoint_goes_on_either_way(tmp_path, start_servers):
    """20 steps one way and 20 the other end where 20 and 20 of one kind do, Adam's moments included."""
    def go_on(name, until, steps):
        return train(start_servers(1, 1), tmp_path / name, until, optimizer_name="adam", period=Period(steps))[1]

    go_on("single", 20, 1)
    shutil.copytree(tmp_path / "single", tmp_path / "into rounds")
    go_on("out of rounds", 20, 5)
    # Compared with two processes of one kind, as each begins at the first batch again.
    expected = go_on("single", 40, 1)
    for name, steps in (("into rounds", 5), ("out of rounds", 1)):
        assert_equal(go_on(name, 40, steps), expected, rtol=1e-5, atol=1e-6)


def descend(weights, bias, features, labels, batches, learning_rate=0.05):
    """Returns weights and bias after gradient descent on these batches of rows."""
    for rows in batches:
        for_weights, for_bias = gradients_of(weights, bias, features[rows], labels[rows])
        weights, bias = weights - learning_rate * for_weights, bias - learning_rate * for_bias
    return weights, bias


def batches_of(worker, first, count):
    """Returns the rows of some batches of a worker of two, which has every second of 64 rows, in order."""
    return [[worker + 2 * ((8 * step + row) % 32) for row in range(8)] for step in range(first, first + count)]


def test_sync_rounds_of_two_workers_are_the_numpy_average(tmp_path, start_servers):
    """Each round both descend four steps from the same parameters, and the mean of their ends is what comes next."""
    features, labels = clusters.linear_data()
    _, saved = train(start_servers(2, 2), tmp_path, 12, num_workers=2, gradients=2, period=Period(4, train_steps=12))
    weights, bias = np.zeros(4), 0.0
    for first in (0, 4, 8):
        ends = [descend(weights, bias, features, labels, batches_of(worker, first, 4)) for worker in range(2)]
        weights, bias = (np.mean(part, axis=0) for part in zip(*ends))
    assert saved["global_step"] == 12
    np.testing.assert_allclose(saved["weights"], weights, rtol=1e-5)
    np.testing.assert_allclose(saved["bias"], bias, rtol=1e-5, atol=1e-6)


class ByHand(bare_training.BareTraining):
    """One worker's graph in a session, of which the test runs each round, and notes what the blackboard says of it."""

    def __init__(self, cluster, index, **options):
        super().__init__(cluster, index, **options)
        with self.graph.graph.as_default(), tf.device("/job:ps/task:0/cpu:0"):
            self._values = {name: tf.placeholder(tf.float64) for name in ("claims", "heartbeats", "finished")}
            self._notes = {name: variables.write_element(name, index, value) for name, value in self._values.items()}

    def step(self):
        """Runs one round; returns global step, state and mini-batches."""
        return self.session.run(self.graph.steps.single.progress)[0, :3].tolist()

    def note(self, **values):
        """Writes what the blackboard says of this worker."""
        for name, value in values.items():
            self.session.run(self._notes[name], {self._values[name]: value})

    def read_own(self, name):
        """Returns the value of a variable of this worker's own."""
        return self.session.run(f"ps_train/{name}/Read/ReadVariableOp:0")

    def read(self, name):
        """Returns the value of a global variable."""
        variable = next(one for one in self.graph.savers.variables if one.op.name == name)
        return self.session.run(variable)


@pytest.mark.parametrize("ended", [{"heartbeats": -99.0}, {"finished": 1}, {"claims": 4}, {"claims": 0}],
                         ids=["silent", "finished", "started again", "left"])
def test_an_async_round_moves_the_parameters_by_its_share_of_the_change(start_servers, ended):
    """By all of it while its worker trains alone, by half while two do; numpy does the same, one after the other."""
    features, labels = clusters.linear_data()
    cluster = start_servers(1, 2)
    workers = [ByHand(cluster, index, period=Period(3)) for index in range(2)]
    for index in range(2):
        workers[index].note(claims=7 + index, heartbeats=1e6)  # alive, however long this test takes
    weights, bias = np.zeros(4), 0.0
    first = [0, 0]
    # The second one counts as soon as its first round begins; in its own first round a worker counts all who live.
    for turn, (worker, sharing) in enumerate([(0, 2), (0, 1), (1, 2), (0, 2), (1, 2), (0, 1), (0, 1)]):
        if turn == 5:
            workers[1].note(**ended)
        assert workers[worker].step() == [3 * (turn + 1), State.IDLE, 3]
        end = descend(weights, bias, features, labels, batches_of(worker, first[worker], 3))
        first[worker] += 3
        weights, bias = (begin + (after - begin) / sharing for begin, after in zip((weights, bias), end))
        np.testing.assert_allclose(workers[0].read("weights"), weights, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(workers[0].read("bias"), bias, rtol=1e-5, atol=1e-6)


def test_a_round_that_took_long_counts_who_has_begun_meanwhile(start_servers):
    """Begun alone, ended among two: half of it, as the other worker has taken steps too."""
    permits = threading.Semaphore(4)  # its second round gets one mini-batch, and waits
    cluster = start_servers(1, 2)
    workers = [ByHand(cluster, 0, period=Period(3), dataset=on_permission(permits)),
               ByHand(cluster, 1, period=Period(3))]
    workers[0].note(claims=7, heartbeats=1e6)
    assert workers[0].step()[2] == 3
    workers[1].note(claims=8, heartbeats=1e6)
    begun_at = workers[0].read("weights")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long_round = pool.submit(workers[0].step)
        try:
            waits.until(lambda: workers[0].read_own("num_taken") == 1, DEADLINE_SECS, "its first step",
                          threading.Event())
            assert workers[1].step()[2] == 3
            others_came_to = workers[0].read("weights")
        finally:
            permits.release(99)
        assert long_round.result(DEADLINE_SECS)[2] == 3
    np.testing.assert_array_equal(workers[0].read_own("start/weights"), begun_at)
    own = workers[0].read_own("current/weights") - begun_at
    assert np.abs(own).max() > 1e-3
    np.testing.assert_allclose(workers[0].read("weights"), others_came_to + own / 2, rtol=1e-5, atol=1e-6)


def test_the_rest_of_a_round_keeps_the_share_that_it_began_with(start_servers):
    """Half of it, though the other worker has finished before it is sent."""
    whole = clusters.array_dataset(*clusters.linear_data(), shuffle=False)
    few = contracts.Dataset("few", lambda mode, params, shard: whole.input_fn(mode, params, shard).take(4),
                          lambda params: None, {})
    cluster = start_servers(1, 2)
    workers = [ByHand(cluster, index, period=Period(3), dataset=few) for index in range(2)]
    for index, worker in enumerate(workers):
        worker.note(claims=7 + index, heartbeats=1e6)
        assert worker.step()[2] == 3
    before = workers[0].read("weights")
    with pytest.raises(tf.errors.OutOfRangeError):
        workers[0].step()
    workers[1].note(finished=1)
    assert workers[0].session.run(workers[0].graph.update.failed_run_steps) == 1
    own = workers[0].read_own("current/weights") - before
    assert np.abs(own).max() > 1e-3
    np.testing.assert_allclose(workers[0].read("weights"), before + own / 2, rtol=1e-5, atol=1e-6)


def on_permission(permits):
    """Returns a dataset each mini-batch of which needs one permit."""
    whole = clusters.array_dataset(*clusters.linear_data(), shuffle=False)

    def ask(features):
        assert permits.acquire(timeout=DEADLINE_SECS)
        return features

    def input_fn(mode, params, shard):
        return whole.input_fn(mode, params, shard).map(
            lambda features, labels: (tf.ensure_shape(tf.numpy_function(ask, [features], features.dtype),
                                                      features.shape), labels))

    return contracts.Dataset("on permission", input_fn, lambda params: None, {})


def test_rounds_have_one_step_until_the_warmup_ends_and_never_go_beyond_the_last_step(start_servers):
    """With rounds of 4, two steps of warm-up and an end at 9: 1, 1, 4, 3; a later one changes nothing any more."""
    worker = ByHand(start_servers(1, 1), 0, period=Period(4, warmup_steps=2, train_steps=9))
    assert [worker.step()[2] for _ in range(4)] == [1, 1, 4, 3]
    at_end = worker.read("weights")
    assert worker.step() == [9, State.IDLE, 0]
    np.testing.assert_array_equal(worker.read("weights"), at_end)
    assert worker.read("global_step") == 9


def test_what_was_done_before_the_data_ran_out_is_kept(tmp_path, start_servers):
    """Of 8 batches, in rounds of 5, the last three are on the ps too."""
    dataset = clusters.array_dataset(*clusters.linear_data(), shuffle=False, repeat=False)
    (outcome,), in_rounds = train(start_servers(1, 1), tmp_path / "5", 99, dataset=dataset, period=Period(5))
    assert (outcome.end, outcome.local_steps, in_rounds["global_step"]) == (End.DATA, 8, 8)
    _, single = train(start_servers(1, 1), tmp_path / "1", 99, dataset=dataset)
    assert_equal(in_rounds, single, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_batches", [0, 3], ids=["no data", "used up"])
def test_a_summary_for_which_no_batch_is_left_brings_nothing_twice(tmp_path, start_servers, num_batches):
    """Of 3 batches a round of 2 takes two, and its summary one; the next round begins when none is left."""
    whole = clusters.array_dataset(*clusters.linear_data(), shuffle=False)
    few = contracts.Dataset("few", lambda mode, params, shard: whole.input_fn(mode, params, shard).take(num_batches),
                          lambda params: None, {})
    training = bare_training.BareTraining(start_servers(1, 1), dataset=few, period=Period(2))
    outcome = training.train(99, write_summary=lambda summary, step: None, save_summaries_steps=1)
    assert outcome.end is End.DATA
    training.save(tmp_path)
    assert outcome.local_steps == clusters.read_checkpoint(tmp_path)["global_step"] == max(0, num_batches - 1)


def test_a_batch_that_is_not_finite_is_skipped_alone(tmp_path, start_servers):
    """The good steps before it in its round reach the ps, and those after it continue from there."""
    features, labels = clusters.linear_data()
    broken = features.copy()
    broken[8 * 3] = np.nan
    dataset = clusters.array_dataset(broken, labels, shuffle=False, repeat=False)
    training = bare_training.BareTraining(start_servers(1, 1), dataset=dataset, period=Period(5))
    assert training.train(99, on_nan="skip").local_steps == 7
    training.save(tmp_path)
    saved = clusters.read_checkpoint(tmp_path)
    batches = [range(8 * step, 8 * step + 8) for step in range(8) if step != 3]
    weights, _ = descend(np.zeros(4), 0.0, features, labels, [list(rows) for rows in batches])
    np.testing.assert_allclose(saved["weights"], weights, rtol=1e-5)
    assert saved["global_step"] == 7


def test_the_staleness_bound_counts_the_steps_of_a_round_that_was_cut_short(start_servers):
    """Issue: they never counted, so this worker ran further ahead than the bound."""
    features, labels = clusters.linear_data()
    features[8 * 3] = np.nan
    dataset = clusters.array_dataset(features, labels, shuffle=False, repeat=False)
    bound = staleness.Bound(steps=99, round_steps=5, heartbeat_timeout_secs=10.0, names={})
    cluster = start_servers(1, 1)
    training = bare_training.BareTraining(cluster, dataset=dataset, period=Period(5), bound=bound)
    assert training.train(99, on_nan="skip").local_steps == 7
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        counts = variables.read("step_counts")
    assert sessions.run_on_ps(cluster.view("ps", 0).task, graph, counts)[0] == 7


def test_the_message_names_the_models_own_variable(start_servers):
    """Not the copy that the gradient was computed for."""
    features, labels = clusters.linear_data()
    dataset = clusters.array_dataset(np.full_like(features, 1e38), labels)
    with raises("not_finite") as refused:
        bare_training.BareTraining(start_servers(1, 1), dataset=dataset, period=Period(5)).train(9)
    assert re.search("loss|gradient of (weights|bias)", str(refused.value))


def test_slots_stay_on_the_worker_and_survive_the_loss_of_its_session(start_servers):
    """A new session of the same process begins with its own slots, a new process with those on the ps."""
    worker = ByHand(start_servers(1, 1), 0, optimizer_name="momentum", period=Period(5))
    worker.step()
    slots = worker.graph.update.slots
    assert not worker.read("weights/Momentum").any()
    worker.session.run(slots.begin_op)
    worker.session.run(slots.before_save_op)
    kept = worker.read("weights/Momentum")
    assert kept.any()
    worker.step()
    worker.session.run([slots.forget_op])
    worker.session.run(slots.begin_op)
    worker.session.run(slots.before_save_op)
    np.testing.assert_array_equal(worker.read("weights/Momentum"), kept)


@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_the_next_training_on_the_same_servers_may_have_other_shapes(tmp_path, start_servers, gradients):
    """The copy and the slots stay on the worker's server, with their shapes."""
    train_in_turn(start_servers(1, 1), tmp_path, [(2, False), (3, False)], gradients=gradients, period=Period(2))


@pytest.mark.parametrize("wire", [transfer.Wire(), transfer.Wire(is_fused=False), transfer.Wire(tf.bfloat16)],
                         ids=["fused", "plain", "bfloat16"])
def test_a_round_makes_one_transfer_each_way_for_each_ps(wire):
    """However many steps it has; with 6 variables on 2 ps and without fusing, 6 each way."""
    built = clusters.build_graph(clusters.GraphCluster(2, 1), 0, model=many_variables_model(), period=Period(20),
                                 wire=wire)
    assert len(crossings(built)) == (4 if wire.is_fused else 2 * 6)


def test_a_variable_in_parts_is_copied_whole(tmp_path, start_servers):
    """The copy is one variable, and its change is cut again; the optimizer's slots too."""
    ends = [train(start_servers(2, 1), tmp_path / str(parts), 30, model=clusters.linear_model(parts), period=Period(6),
                  optimizer_name="adam", plan=placement.PlacementPlan())[1] for parts in (1, 3)]
    assert_equal(*ends, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [([4, 1], 0), ([1, 4], 1), ([2, 3, 2], 1), ([3, 5], 1)])
def test_a_variable_may_be_cut_along_any_dimension(tmp_path, start_servers, shape, axis):
    """Equal parts or not, with slots. Issue: all but the first dimension was a traceback."""
    def train_in(parts):
        def make_loss(features, labels):
            weights = tf.get_variable("weights", shape, initializer=tf.ones_initializer(),
                                      partitioner=tf.fixed_size_partitioner(parts, axis))
            scale = tf.reshape(tf.range(1.0, float(np.prod(shape)) + 1.0), shape)
            return tf.reduce_mean(features) ** 2 * tf.reduce_sum(tf.square(tf.convert_to_tensor(weights) - scale))

        return train(start_servers(2, 1), tmp_path / str(parts), 6, model=model_of(make_loss), period=Period(3),
                     optimizer_name="adam", plan=placement.PlacementPlan())[1]

    assert_equal(train_in(1), train_in(2), rtol=1e-5, atol=1e-6)


def model_of(make_loss):
    """Returns a model whose loss that function makes of features and labels."""
    return contracts.Model("m", lambda features, labels, mode, params: ps_train.ModelSpec(
        loss=make_loss(features, labels)), {})


def _regularised(features, labels):
    with tf.variable_scope(None, default_name="layer"):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer(),
                                  regularizer=lambda value: 0.1 * tf.nn.l2_loss(value))
    tf.losses.mean_squared_error(labels, tf.linalg.matvec(features, weights))
    return tf.losses.get_total_loss()


def _regularised_layers(features, labels):
    hidden = tf.layers.dense(features, 2, kernel_initializer=tf.ones_initializer(), kernel_regularizer=tf.nn.l2_loss)
    outputs = tf.layers.dense(hidden, 1, kernel_initializer=tf.ones_initializer(), kernel_regularizer=tf.nn.l2_loss)
    return tf.reduce_mean(tf.square(outputs[:, 0] - labels)) + tf.losses.get_regularization_loss()


def _moving(features, labels):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    mean = tf.get_variable("mean", [4], initializer=tf.zeros_initializer(), trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(features, axis=0)).op)
    tf.metrics.mean(labels)
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels))


def _translating(features, labels):
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [2.0]), 0.0)
    outputs = tf.linalg.matvec(features, tf.get_variable("weights", [4], initializer=tf.zeros_initializer()))
    return tf.reduce_mean(tf.square(outputs * words.lookup(tf.constant("a")) - labels))


def _collecting(features, labels):
    with tf.variable_scope("layer", reuse=tf.AUTO_REUSE):
        weights, _ = (tf.get_variable("weights", [4], initializer=tf.zeros_initializer(), regularizer=tf.nn.l2_loss,
                                      collections=["decayed", tf.GraphKeys.GLOBAL_VARIABLES]) for _ in range(2))
    tf.add_to_collection("penalties", tf.losses.get_regularization_loss())
    for variable in tf.get_collection("decayed"):
        tf.add_to_collection("penalties", 0.1 * tf.nn.l2_loss(variable))
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels)) + tf.add_n(
        tf.get_collection("penalties"))


def _choosing(features, labels):
    weights = tf.get_variable("layer/kernel", [4], initializer=tf.zeros_initializer())
    chosen = [variable.read_value() for variable in tf.trainable_variables() if "/kernel" in variable.name]
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights.value()) - labels)) + tf.add_n(
        [tf.nn.l2_loss(value) for value in chosen])


def _naming_twice(features, labels):
    features = tf.identity(features, name="weights")  # so the operations of the variables are weights_1 and Weights_2
    values = [tf.get_variable(name, [4], initializer=tf.zeros_initializer(), regularizer=lambda value: None)
              for name in ("weights", "Weights")]
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, values[0] + 2 * values[1]) - labels))


def _sharing_a_name():
    """Returns what makes a loss with `weights` of tf.Variable, made once, and those of get_variable."""
    graphs = []

    def make_loss(features, labels):
        if tf.get_default_graph() not in graphs:
            graphs.append(tf.get_default_graph())
            tf.Variable(tf.zeros([4]), name="weights")
        got = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        return tf.reduce_mean(tf.square(tf.linalg.matvec(features, tf.trainable_variables()[0] + 2 * got) - labels))

    return make_loss


@pytest.mark.parametrize(
    "make_loss", [_regularised, _regularised_layers, _moving, _translating, _collecting, _choosing, _naming_twice,
                  _sharing_a_name()],
    ids=["regularised, losses collected", "layers", "moving average", "table", "own collections", "values by name",
         "names that are taken", "a tf.Variable of the same name"])
def test_what_models_do_besides_works_in_rounds_too(tmp_path, start_servers, make_loss):
    """Regularizers, collected losses, default names, update ops, metrics, lookups: as without local steps."""
    ends = [train(start_servers(1, 1), tmp_path / str(steps), 20, model=model_of(make_loss), period=Period(steps))[1]
            for steps in (1, 5)]
    assert_equal(*ends, rtol=1e-5, atol=1e-6)
    assert all(value.any() for value in ends[0].values())


def _fading(features, labels):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    factor = tf.train.exponential_decay(1.0, tf.train.get_global_step(), 3, 0.5, staircase=True)
    loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels))
    return tf.cond(factor > 0.2, lambda: factor * loss, lambda: 0.1 * loss)


def test_a_round_follows_the_global_step_with_control_flow_v2_too(tmp_path, start_servers, monkeypatch):
    """Issue: a schedule that reads the step ended the training, as a loop of v2 hides from outside what it reads."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    ends = [train(start_servers(1, 1), tmp_path / str(steps), 20, model=model_of(_fading), period=Period(steps))[1]
            for steps in (1, 5)]
    assert_equal(*ends, rtol=1e-5, atol=1e-6)
    assert ends[0]["weights"].all()


def _looked_up(features, labels):
    table = tf.get_variable("table", [10, 2])
    return tf.reduce_mean(tf.nn.embedding_lookup(table, tf.cast(features[:, 0], tf.int32) % 10))


def _anew(features, labels):
    return tf.reduce_mean(features * tf.Variable(tf.ones([4]), name="mine"))


def _anew_of_same_name(features, labels):
    return tf.reduce_mean(features * tf.Variable(tf.ones([4]), name="w") * tf.get_variable("w", [4]))


def _counting(features, labels):
    tf.get_variable("count", [], tf.int64, tf.zeros_initializer(), trainable=False)
    return tf.reduce_mean(features * tf.get_variable("w", [4]))


def _tallied(features, labels):
    tally = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0, name="tally")
    return tf.reduce_mean(features * tf.get_variable("w", [4])) + tally.lookup(tf.constant(1, tf.int64))


def _bound(features, labels):
    return tf.reduce_mean(features * tf.get_variable("w", [4], constraint=tf.nn.relu))


def _translated(features, labels):
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([2.0])), 0.0)
    return tf.reduce_mean(features * tf.get_variable("w", [4])) + words.lookup(tf.constant("a"))


def _decaying(features, labels):
    loss = tf.reduce_mean(features * tf.get_variable("w", [4]))
    return loss + tf.add_n([tf.nn.l2_loss(variable) for variable in tf.global_variables() if variable.name == "w:0"])


def _keeping():
    """Returns what makes a loss with a variable that it creates once, as a layer does that lives outside model_fn."""
    kept = {}

    def make_loss(features, labels):
        graph = tf.get_default_graph()
        kept[graph] = kept[graph] if graph in kept else tf.get_variable("w", [4])
        return tf.reduce_mean(features * kept[graph])

    return make_loss


@pytest.mark.parametrize("make_loss, code, variable", [
    (_decaying, "untracked_variable", "w"), (_keeping(), "untracked_variable", "w"),
    (_bound, "variable_not_copyable", "w"), (_translated, "lookup_table_in_loop", ""),
    (_looked_up, "variable_not_copyable", "table"), (_anew, "model_creates_other_variables", "mine"),
    (_anew_of_same_name, "model_creates_other_variables", "w"),
    (_counting, "variable_not_copyable", "count"), (_tallied, "variable_not_copyable", "tally"),
])
def test_a_model_that_cannot_be_trained_so_is_refused(make_loss, code, variable):
    """While the graph is built, with the variable's name; without the flag each of them trains."""
    cluster = clusters.GraphCluster(1, 1)
    with raises(code) as refused:
        clusters.build_graph(cluster, 0, model=model_of(make_loss), period=Period(5))
    assert f" {variable} " in str(refused.value).replace(";", " ;") or not variable
    clusters.build_graph(cluster, 0, model=model_of(make_loss))


class OwnGradients(tf.train.MomentumOptimizer):
    """Changes the gradients that it computes."""

    def __init__(self, change):
        super().__init__(0.05, 0.5)
        self._change = change

    def compute_gradients(self, loss, var_list=None, **options):
        """Returns what `change` makes of the pairs."""
        return self._change(super().compute_gradients(loss, var_list, **options))


def _clipped(pairs):
    return [(tf.clip_by_value(gradient, -0.5, 0.5), variable) for gradient, variable in pairs]


def _decayed(pairs):
    return [(gradient if "bias" in variable.name else gradient + 0.1 * variable, variable)
            for gradient, variable in pairs]


def _chosen(pairs):
    return [pair for pair in reversed(pairs) if "bias" not in pair[1].name]


def _by_step(pairs):
    factor = 1 / (1 + tf.cast(tf.train.get_global_step(), tf.float32))
    return [(factor * gradient, variable) for gradient, variable in pairs]


@pytest.mark.parametrize("change", [_clipped, _decayed, _chosen, _by_step])
def test_what_an_optimizer_does_to_its_gradients_it_does_in_rounds(tmp_path, start_servers, change):
    """Issue: rounds took the plain gradients, so that clipping, masks and noise were dropped without a word."""
    ends = [train(start_servers(1, 1), tmp_path / str(steps), 20, make_model_optimizer=lambda _: OwnGradients(change),
                  period=Period(steps))[1] for steps in (1, 5)]
    assert_equal(*ends, rtol=1e-5, atol=1e-6)
    plain = train(start_servers(1, 1), tmp_path / "plain", 20, make_model_optimizer=lambda _: OwnGradients(list))[1]
    assert not np.allclose(ends[0]["weights"], plain["weights"], rtol=1e-3)


def test_gradients_of_other_variables_than_the_copies_are_refused():
    """Those that an optimizer has kept from another call, for one; they would not change in a round."""
    kept = []

    def change(pairs):
        kept.extend(pairs)
        return kept

    with raises("untracked_variable"):
        clusters.build_graph(clusters.GraphCluster(1, 1), 0, make_model_optimizer=lambda _: OwnGradients(change),
                             period=Period(5))


def test_dropout_and_other_random_numbers_differ_from_step_to_step(start_servers):
    """The loop's body is one piece of graph; each step of it draws other numbers."""
    def make_loss(features, labels):
        weight = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        return weight * tf.random_uniform([])

    worker = ByHand(start_servers(1, 1), 0, model=model_of(make_loss), period=Period(2), learning_rate=1.0)
    ends = []
    for _ in range(3):
        before = worker.read("w")
        worker.step()
        ends.append(float(worker.read("w") - before))
    assert len({round(end, 6) for end in ends}) == 3
