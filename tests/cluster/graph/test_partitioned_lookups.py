"""Lookups in variables that are cut into parts find the rows of the whole variable."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.graph import placement
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 0, {"ps": {index: f"ps{index}:1" for index in range(4)}, "worker": {0: "a:1"}})
IDS = np.array([[0, 3, 9], [10, 9, 4]])


@contextlib.contextmanager
def cut_variables(rows, parts):
    """Cuts variables of [rows, 2] floats into that many parts."""
    plan = placement.PlacementPlan(partition_bytes=-(-rows * 8 // parts))
    # Device functions are applied from the inside out, so the outer one puts everything into this process.
    with tf.Graph().as_default(), tf.device(lambda op: ""), placement.on_cluster(
            CLUSTER, "/job:worker/task:0", plan):
        yield


@pytest.mark.parametrize(("strategy", "dtype", "rows", "parts"), [
    ("mod", tf.int64, 11, 2), ("mod", tf.int32, 11, 3), ("mod", tf.int64, 12, 3), ("mod", tf.int32, 11, 4),
    ("div", tf.int64, 11, 3), ("div", tf.int32, 11, 4)])
def test_a_lookup_finds_the_rows_of_the_whole_variable(rows, parts, strategy, dtype):
    """And its gradient goes there, whichever the strategy and however many the parts."""
    values = np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)
    with cut_variables(rows, parts):
        table = tf.get_variable("table", [rows, 2])
        assert len(list(table)) == parts
        found = tf.nn.embedding_lookup(table, tf.constant(IDS, dtype), partition_strategy=strategy)
        train_op = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(found * found))
        placement.remap_lookups(tf.global_variables())
        with tf.Session() as session:
            offset = 0
            for part in table:
                end = offset + int(part.shape[0])
                session.run(part.initializer, {part.initializer.inputs[1]: values[offset:end]})
                offset = end
            np.testing.assert_array_equal(session.run(found), values[IDS])
            session.run(train_op)
            trained = np.concatenate(session.run(list(table)))
    expected = values.copy()
    np.add.at(expected, IDS, -2 * values[IDS])
    np.testing.assert_allclose(trained, expected, rtol=1e-6)


def test_an_id_that_is_out_of_range_fails():
    """It does not find another row."""
    with cut_variables(11, 3):
        table, bad = tf.get_variable("table", [11, 2]), tf.placeholder(tf.int32, [])
        found = tf.nn.embedding_lookup(table, [0, bad])
        placement.remap_lookups(tf.global_variables())
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for value in (-1, -2, 11, 12, 14, 1000):
                with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
                    session.run(found, {bad: value})


def test_lookups_in_branches_and_loops_and_of_weighted_ids_find_them_too():
    """Two tables looked up by the same ids, in a cond, in a while_loop, and by embedding_lookup_sparse."""
    with cut_variables(11, 3):
        table, other = (tf.get_variable(name, [11, 2]) for name in ("table", "other"))
        ids = tf.constant(IDS)
        whole = [tf.concat(list(one), 0) for one in (table, other)]
        in_branch = tf.cond(
            tf.reduce_sum(ids) > 0, lambda: tf.nn.embedding_lookup(table, ids), lambda: tf.zeros([2, 3, 2]))
        in_loop = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, total: (i + 1, total + tf.nn.embedding_lookup(other, ids[:, i])), [0, tf.zeros([2, 2])])[1]
        sparse = tf.sparse.from_dense(ids)  # without the id 0
        weighted = tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="sum")
        placement.remap_lookups(tf.global_variables())
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            of_table, of_other, *found = session.run([*whole, in_branch, in_loop, weighted])
    np.testing.assert_array_equal(found[0], of_table[IDS])
    np.testing.assert_allclose(found[1], of_other[IDS].sum(1), rtol=1e-6)
    np.testing.assert_allclose(found[2], [of_table[[3, 9]].sum(0), of_table[[10, 9, 4]].sum(0)], rtol=1e-6)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_a_variable_that_the_model_partitions_needs_div(strategy):
    """By `mod` its rows would depend on the number of parts, which the model may choose by the number of ps."""
    with cut_variables(11, 1):
        table = tf.get_variable("table", [1000, 4], partitioner=tf.fixed_size_partitioner(2))
        tf.nn.embedding_lookup(table, tf.constant([3, 2007]) % 1000, partition_strategy=strategy)
        refused = raises("lookup_by_modulo")
        with refused if strategy == "mod" else contextlib.nullcontext():
            placement.remap_lookups(tf.global_variables())


def lookup_model():
    """Returns a model that is the sum of three rows of a table, and a dataset that tells which rows are looked up."""
    def model_fn(features, labels, mode, params):
        table = tf.get_variable("table", [11, 1], initializer=tf.zeros_initializer())
        predictions = tf.reduce_sum(tf.nn.embedding_lookup(table, features), [1, 2])
        return clusters.ps_train.ModelSpec(
            loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions)

    random = np.random.default_rng(1)
    features = random.integers(0, 11, size=(64, 3))
    return clusters.contracts.Model("lookup", model_fn, {}), features, features.sum(1).astype(np.float32)


@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_a_checkpoint_and_its_evaluation_are_the_same_on_any_number_of_ps(tmp_path, start_servers, gradients):
    """Two ps have two parts, one ps has the whole variable; a checkpoint of two ps goes on on one and on three."""
    model, features, labels = lookup_model()
    plan = placement.PlacementPlan(partition_bytes=8)
    ends, losses = [], []
    for folder, stages in (("one", [(1, 60)]), ("several", [(2, 20), (3, 40), (1, 60)])):
        for num_ps, train_steps in stages:
            bare_training.train(
                start_servers(num_ps, 1), tmp_path / folder, train_steps, continues=True, gradients=gradients,
                model=model, dataset=clusters.array_dataset(features, labels, shuffle=False), plan=plan,
                learning_rate=0.1, params={"batch_size": 64, "seed": 1})
        ends.append(clusters.read_checkpoint(tmp_path / folder)["table"])
        evaluator = clusters.evaluation.Evaluator(
            model, clusters.EVAL_PARAMS, clusters.array_dataset(features, labels), clusters.EVAL_PARAMS)
        losses.append(evaluator.evaluate(tf.train.latest_checkpoint(str(tmp_path / folder))).loss_mean)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4, atol=1e-5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert np.ptp(ends[0]) > 1, "it has learnt which row is which"
