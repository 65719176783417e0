"""Several steps in one session run: the numbers of as many single ones, counted in spite of failures among them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ps_train
from ps_train.config.task import Config
from ps_train.coordination import variables
from ps_train.graph import transfer
from ps_train.plugins import contracts
from ps_train.tasks import setup
from ps_train.training import loop, replica_graph
from ps_train.training.reporting import End
from ps_train.updates.staleness import Bound
from tests import bare_training, clusters
from tests.cluster.graph.test_transfer import many_variables_model, transfers
from tests.errors import raises
from tests.tensorflow_mode import tf

NO_SERVERS = clusters.GraphCluster(1, 1)


def train(cluster, folder, num_at_once, steps=30, **options):
    """Returns the checkpoint after so many steps of one worker."""
    return bare_training.checkpoint_of(cluster, folder, steps, steps_per_execution=num_at_once,
                                       **{"optimizer_name": "adam", "learning_rate": 0.01, **options})


def weights_of(shape=(4,), name="weights"):
    """Returns a variable that begins with ones."""
    return tf.get_variable(name, shape, initializer=tf.ones_initializer())


def looked_up(features):
    """A table only: nothing dense is pulled."""
    table = weights_of([50, 4])
    return tf.reduce_sum(tf.nn.embedding_lookup(table, tf.cast(tf.abs(features[:, 0]) * 9, tf.int32)), axis=1)


def with_a_moving_average(features):
    """What a step reads is what the step before has assigned."""
    mean = tf.get_variable("mean", [4], initializer=tf.zeros_initializer(), trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(features, axis=0)))
    return tf.linalg.matvec(features - mean, weights_of())


def in_a_function(features):
    """A loop and a branch in a function that only computes, with its gradient."""
    @tf.compat.v2.function
    def looped(features, weights):
        total = tf.zeros_like(features[:, 0])
        for _ in tf.range(3):
            total += tf.tanh(tf.linalg.matvec(features, weights) * (total + 1.0))
        return tf.cond(tf.reduce_sum(features) > 0, lambda: total, lambda: 2.0 * total)

    return looped(features, tf.identity(weights_of()))


def kept_on_the_worker(features):
    """A local variable that counts the steps, and is in what they compute."""
    with tf.device("/job:worker/task:0"):
        count = tf.Variable(0.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="count")
    counted = count.assign_add(1.0)
    return tf.linalg.matvec(features, weights_of()) * (1.0 + 0.1 * counted)


def by_global_step(features):
    """What a step computes depends on its number."""
    number = tf.cast(tf.train.get_global_step(), tf.float32)
    return tf.linalg.matvec(features, weights_of()) * (1.0 + 0.1 * tf.minimum(number, 40.0))


def counted_in(make_table):
    """Returns a prediction that depends on how often the worker has seen a number, which it keeps in a table."""
    def predict(features):
        with tf.device("/job:worker/task:0/cpu:0"):
            table = make_table()
            keys = tf.cast(tf.abs(features[:1, 0]) * 2, tf.int64)
            seen = table.lookup(keys)
            with tf.control_dependencies([seen]):
                tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, table.insert(keys, seen + 1.0))
        return tf.linalg.matvec(features, weights_of()) * (1.0 + 0.1 * seen[0])

    return predict


in_a_table = counted_in(lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0))
in_a_dense_table = counted_in(lambda: tf.lookup.experimental.DenseHashTable(
    tf.int64, tf.float32, default_value=0.0, empty_key=-1, deleted_key=-2))


def all_that_is_kept(features):
    """Each in its scope; one that went wrong would change the loss, and with it the weights of all."""
    total = 0.0
    for number, term in enumerate([with_a_moving_average, in_a_function, kept_on_the_worker, by_global_step,
                                   in_a_table, in_a_dense_table]):
        with tf.variable_scope(f"term{number}"):
            total += term(features)
    return total


@pytest.mark.parametrize("predict, num_ps", [(looked_up, 2), (all_that_is_kept, 1), (all_that_is_kept, 2)])
def test_several_steps_at_once_equal_as_many_single_ones(tmp_path, start_servers, predict, num_ps):
    """Seven session runs of four steps and two of one; the whole checkpoint, slots too, bit by bit."""
    model = clusters.model_of(predict)
    one, four = (train(start_servers(num_ps, 1), tmp_path / str(num_at_once), num_at_once, model=model)
                 for num_at_once in (1, 4))
    assert one.keys() == four.keys() and one["global_step"] == 30
    for name, value in one.items():
        np.testing.assert_array_equal(four[name], value, err_msg=name)


@pytest.mark.parametrize("wire", [transfer.Wire(tf.bfloat16), transfer.Wire(is_fused=False)], ids=["bfloat16", "plain"])
def test_they_are_the_same_however_variables_travel(tmp_path, start_servers, wire):
    """With error feedback too: what one step has lost, the next one sends."""
    one, four = (train(start_servers(2, 1), tmp_path / str(num_at_once), num_at_once, wire=wire,
                       model=many_variables_model()) for num_at_once in (1, 4))
    for name, value in one.items():
        np.testing.assert_array_equal(four[name], value, err_msg=name)


@pytest.mark.optimised
@pytest.mark.parametrize("num_ps, expected", [
    (1, {("ps", "worker"): 4 + 1, ("worker", "ps"): 4}),
    (2, {("ps", "worker"): 4 * 2 + 1, ("worker", "ps"): 4 * 2, ("ps", "ps"): 4 * 3})])
def test_no_step_makes_a_transfer_more(start_servers, num_ps, expected):
    """Of each step its parameters and gradients, and what ps tell each other; one progress of all."""
    training = bare_training.BareTraining(start_servers(num_ps, 1), optimizer_name="adam", steps_per_execution=4)
    assert transfers(training.session, training.graph.steps.unrolled.progress) == expected


def test_the_answer_has_the_standing_after_each_step(start_servers):
    """Alone, nothing is stale, and the global step rises one by one."""
    training = bare_training.BareTraining(start_servers(1, 1), steps_per_execution=3)
    first, second = (training.session.run(training.graph.steps.unrolled.progress) for _ in range(2))
    assert first[:, [0, 2, 3]].tolist() == [[1, 1, 0], [2, 1, 0], [3, 1, 0]]
    assert second[:, 0].tolist() == [4, 5, 6]


def test_two_workers_count_every_step(tmp_path, start_servers):
    """Their steps add up to the global step, which is the end or a few of the other worker's steps beyond."""
    outcomes = bare_training.train(start_servers(2, 2), tmp_path, 200, num_workers=2, steps_per_execution=8)
    reached = clusters.read_checkpoint(tmp_path)["global_step"]
    assert sum(outcome.local_steps for outcome in outcomes) == reached
    assert 200 <= reached <= 200 + 8
    # One that begins when the other is done takes no step.
    assert all("staleness" in outcome.staleness for outcome in outcomes if outcome.local_steps)


def data_of(num_batches, bad_batch=None):
    """Returns that many mini-batches of 8, once; the one of that number has a NaN."""
    features, labels = clusters.linear_data(8 * num_batches)
    if bad_batch is not None:
        labels[8 * bad_batch] = np.nan
    return clusters.array_dataset(features, labels, shuffle=False, repeat=False)


@pytest.mark.parametrize("num_batches", [8, 9, 11])
def test_where_the_data_runs_out_in_the_midst_the_steps_before_count(tmp_path, start_servers, num_batches):
    """Batches of several runs of four and of a part of one: as many steps, here and on the ps."""
    outcome, = bare_training.train(
        start_servers(1, 1), tmp_path, 1000, dataset=data_of(num_batches), steps_per_execution=4)
    assert (outcome.end, outcome.local_steps, outcome.global_step) == (End.DATA, num_batches, num_batches)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == num_batches


def test_a_batch_that_is_not_finite_is_skipped_alone(tmp_path, start_servers):
    """The sixth of ten, in the midst of the second run: nine steps, and the values of single steps."""
    ends = []
    for num_at_once in (1, 4):
        training = bare_training.BareTraining(start_servers(1, 1), dataset=data_of(10, 5),
                                              steps_per_execution=num_at_once)
        assert training.train(1000, on_nan="skip").local_steps == 9
        training.save(tmp_path / str(num_at_once))
        ends.append(clusters.read_checkpoint(tmp_path / str(num_at_once)))
    np.testing.assert_array_equal(*(end["weights"] for end in ends))
    assert [end["global_step"] for end in ends] == [9, 9]


def test_a_run_of_bad_batches_is_one_without_a_good_one_between(start_servers, monkeypatch):
    """Every fourth batch of 60 has a NaN: 15 of them, never two in a row, end nothing where 10 in a row would."""
    monkeypatch.setattr(loop, "_MOST_SKIPPED", 10)
    features, labels = clusters.linear_data(8 * 60)
    labels[8 * 3::8 * 4] = np.nan
    dataset = clusters.array_dataset(features, labels, shuffle=False, repeat=False)
    training = bare_training.BareTraining(start_servers(1, 1), dataset=dataset, steps_per_execution=4)
    assert training.train(1000, on_nan="skip").local_steps == 45


def test_the_message_names_the_step_before_the_bad_one(start_servers):
    """Which is in the midst of the second run."""
    training = bare_training.BareTraining(start_servers(1, 1), dataset=data_of(10, 5), steps_per_execution=4)
    with raises("not_finite") as refused:
        training.train(1000)
    assert "global step 5" in str(refused.value)


def test_a_new_session_does_not_count_what_a_lost_one_had_made(tmp_path, start_servers):
    """The count on the blackboard is then that of a lost answer."""
    cluster = start_servers(1, 1)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0/cpu:0"):
        left = variables.write_element("steps_in_run", 0, 3)
        with tf.Session(cluster.target("ps", 0)) as session:
            session.run(left)
    outcome, = bare_training.train(cluster, tmp_path, 1000, dataset=data_of(6), steps_per_execution=4)
    assert outcome.local_steps == 6


def test_copies_draw_other_numbers_of_the_same_seed(tmp_path, start_servers):
    """Each step has other noise; with the same seed the same from training to training."""
    def noisy(features):
        weights = weights_of()
        drawn = tf.random.uniform([4], seed=5)
        kept = tf.get_variable("kept", [4], initializer=tf.zeros_initializer(), trainable=False)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, kept.assign_add(drawn))
        return tf.linalg.matvec(features, weights)

    def kept(name, steps):
        return train(start_servers(1, 1), tmp_path / name, 4, steps, model=clusters.model_of(noisy))["kept"]

    four = kept("four", 4)
    np.testing.assert_array_equal(kept("four again", 4), four)
    assert np.abs(four - 4 * kept("one", 1)).max() > 0.1, "the same four times"


def in_a_loop(features):
    """A loop of TensorFlow 1's."""
    return tf.while_loop(lambda number, _: number < 3, lambda number, total: (number + 1, total + features[:, 1]),
                         [tf.constant(0), tf.linalg.matvec(features, weights_of())])[1]


def in_branches(features):
    """A branch that assigns, and what is downstream of one."""
    seen = tf.get_variable("seen", [], initializer=tf.zeros_initializer(), trainable=False)
    return tf.linalg.matvec(features, weights_of()) + tf.cond(
        tf.reduce_sum(features) > 0, lambda: seen.assign_add(1.0), lambda: 0.0)


def called_in_python(features):
    """A function of Python's may answer anything."""
    number = tf.numpy_function(lambda: np.float32(1), [], tf.float32, name="called")
    number.set_shape([])
    return tf.linalg.matvec(features, weights_of()) * number


def staged(features):
    """What a step puts aside, the next one may take."""
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.raw_ops.Stage(values=[features], shared_name="aside", name="put"))
    return tf.linalg.matvec(features, weights_of())


def in_an_array(features):
    """A TensorArray is of one session run."""
    array = tf.TensorArray(tf.float32, 1, name="array").write(0, features)
    return tf.linalg.matvec(array.read(0), weights_of())


def drawn_in_a_function(features):
    """All copies of the function would draw the same numbers, where it has a seed."""
    return tf.linalg.matvec(features, weights_of()) + tf.compat.v2.function(lambda: tf.random.uniform([], seed=5))()


def counted_in_a_function(features):
    """A variable may be used anywhere in the function, in a branch too."""
    weights = weights_of()
    with tf.device("/job:worker/task:0/cpu:0"):
        count = tf.Variable(0.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="count")
        return tf.linalg.matvec(features, weights) + tf.compat.v2.function(lambda: count.assign_add(1.0).value())()


@pytest.mark.parametrize("predict, operation", [
    (in_a_loop, r"while/\S+ \(\w+\)"), (in_branches, r"cond/\S+ \(\w+\)"), (called_in_python, r"called \(PyFunc\)"),
    (staged, r"put \(Stage\)"), (in_an_array, r"array\S* \(TensorArray\w+\)"),
    (drawn_in_a_function, r"\S+ \(StatefulPartitionedCall\)"),
    (counted_in_a_function, r"\S+ \(StatefulPartitionedCall\)")])
def test_what_cannot_be_repeated_is_refused(predict, operation):
    """One line names the operation; a single step runs it."""
    built = clusters.build_graph(NO_SERVERS, 0, model=clusters.model_of(predict))
    with raises("step_not_repeatable") as refused, built.graph.as_default():
        replica_graph._with_unrolled_steps(built, NO_SERVERS.view("worker", 0), 2)
    assert re.match(f"--steps_per_execution: {operation} ", str(refused.value))


def test_a_bound_of_the_staleness_knows_how_many_are_taken_at_once(tmp_path, start_servers):
    """A worker that is ahead waits as soon as its next run could go beyond the bound."""
    cluster = start_servers(1, 2)
    config = Config(staleness_bound=10, steps_per_execution=8)
    assert setup.staleness_bound(config, cluster.view("worker", 0)).round_steps == 8
    bound = Bound(steps=10, round_steps=8, heartbeat_timeout_secs=5.0, names={0: "worker:0", 1: "worker:1"})
    outcomes = clusters.train_together(cluster, tmp_path, 160, 2, steps_per_execution=8, bound=bound)
    assert sum(outcome.local_steps for outcome in outcomes) == clusters.read_checkpoint(tmp_path)["global_step"]


def test_variables_of_the_old_kind_are_refused():
    """Their reads are no operations of the graph, so copies of a step cannot be ordered."""
    def model_fn(features, labels, mode, params):
        weights = tf.get_variable("weights", [4], use_resource=False)
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.linalg.matvec(features, weights) - labels))

    with raises("step_not_repeatable"):
        clusters.build_graph(NO_SERVERS, 0, model=contracts.Model("old", model_fn, {}), steps_per_execution=2)


def test_a_train_op_of_the_model_itself_is_refused():
    """Its order is unknown."""
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.linalg.matvec(features, weights_of()) - labels)
        return ps_train.ModelSpec(loss=loss, train_op=tf.assign_add(tf.train.get_global_step(), 1))

    with raises("train_op_unsupported"):
        clusters.build_graph(NO_SERVERS, 0, model=contracts.Model("own", model_fn, {}), steps_per_execution=2)


@pytest.mark.parametrize("flags", [{"sync_replicas": True}, {"communication_period": 5}, {"staleness_bound": 3}])
def test_flags_that_do_not_go_with_it_are_refused(flags):
    """Each of them needs single steps."""
    with raises("flags_conflict"):
        Config(steps_per_execution=4, **flags)
    Config(steps_per_execution=1, **flags)
