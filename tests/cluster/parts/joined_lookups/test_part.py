"""Lookups in ordinary variables travel together, checked against numpy and against what happens without."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.graph import placement, transfer
from tests import clusters
from tests.cluster.graph.test_transfer import PLAIN, transfers
from tests.tensorflow_mode import tf

NUM_FIELDS, NUM_ROWS, NUM_EXAMPLES, RATE = 5, 40, 64, 0.05


def click_data():
    """Returns ids [n, fields], which come more than once, and labels [n]."""
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, size=(NUM_EXAMPLES, NUM_FIELDS)) - 1, NUM_ROWS - 1)
    return ids.astype(np.int64), (ids.sum(1) % 3).astype(np.float32)


def first_values():
    """Returns name -> first values of the tables; the fields 0 and 1 share one, and the widths differ."""
    random = np.random.default_rng(1)
    shapes = {f"table{field}": [NUM_ROWS, 2 + field % 2] for field in range(1, NUM_FIELDS)}
    shapes |= {f"wide{field}": [NUM_ROWS] for field in range(NUM_FIELDS)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def click_model(ids_dtype=tf.int64, has_train_op=False):
    """Returns a model with tables of several widths, weights of each id, and dense variables."""
    def model_fn(features, labels, mode, params):
        tables = {name: tf.get_variable(name, initializer=value) for name, value in first_values().items()}
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        ids = tf.cast(features, ids_dtype)
        predictions = bias
        for field in range(NUM_FIELDS):
            rows = tf.nn.embedding_lookup(tables[f"table{max(field, 1)}"], ids[:, field])
            weights = tf.nn.embedding_lookup(tables[f"wide{field}"], ids[:, field])
            predictions = predictions + tf.reduce_sum(tf.square(rows), 1) + weights
        loss = tf.reduce_mean(tf.square(predictions - labels))
        train_op = tf.train.GradientDescentOptimizer(RATE).minimize(
            loss, tf.train.get_global_step()) if has_train_op else None
        return clusters.ps_train.ModelSpec(loss=loss, predictions=predictions, train_op=train_op)

    return clusters.contracts.Model("clicks", model_fn, {})


def trained_by_numpy(num_steps):
    """Returns the values after steps of gradient descent on all examples."""
    ids, labels = click_data()
    values = {name: value.astype(np.float64) for name, value in first_values().items()} | {"bias": np.zeros([])}
    for _ in range(num_steps):
        rows = [values[f"table{max(field, 1)}"][ids[:, field]] for field in range(NUM_FIELDS)]
        predictions = values["bias"] + sum(
            np.square(row).sum(1) + values[f"wide{field}"][ids[:, field]] for field, row in enumerate(rows))
        slope = 2 * (predictions - labels) / len(labels)
        for field, row in enumerate(rows):
            np.add.at(values[f"table{max(field, 1)}"], ids[:, field], -RATE * slope[:, np.newaxis] * 2 * row)
            np.add.at(values[f"wide{field}"], ids[:, field], -RATE * slope)
        values["bias"] = values["bias"] - RATE * slope.sum()
    return values


def train(cluster, folder, num_steps, **options):
    """Trains on all examples in each step; returns the checkpoint."""
    options = {"model": click_model(), "learning_rate": RATE, **options}
    clusters.train_together(cluster, folder, num_steps, 1, params={"batch_size": NUM_EXAMPLES, "seed": 1},
                            dataset=clusters.array_dataset(*click_data(), shuffle=False), **options)
    return clusters.read_checkpoint(folder)


@pytest.mark.parametrize("options", [
    {}, {"model": click_model(tf.int32)}, {"model": click_model(has_train_op=True)}, {"gradients": 1},
    {"steps_per_execution": 4}, {"plan": placement.PlacementPlan(partition_bytes=200)},
], ids=["async", "int32", "own train_op", "sync", "several", "cut"])
def test_training_comes_to_the_values_of_numpy(tmp_path, start_servers, options):
    """On two ps, with a table that two fields share."""
    found = train(start_servers(2, 1), tmp_path, 12, **options)
    for name, value in trained_by_numpy(12).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.optimised
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_the_checkpoint_is_the_same_as_without(tmp_path, start_servers, optimizer):
    """The rules see each row once, with the sum of its gradients, and make the same slots of it."""
    ends = [train(start_servers(2, 1), tmp_path / name, 20, optimizer_name=optimizer, wire=wire)
            for name, wire in (("joined", transfer.Wire()), ("plain", PLAIN))]
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-4, atol=1e-6, err_msg=name)


def transfers_of(cluster, gradients=None, model=None, dataset=None):
    """Returns the transfers of a step of gradient descent, as traced."""
    built = clusters.build_graph(
        cluster, 0, gradients=gradients, model=model or click_model(),
        dataset=dataset or clusters.array_dataset(*click_data()))
    fetches = [built.steps.single.progress]
    with built.graph.as_default():
        initialise = [tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()]
    with tf.Session(cluster.target("worker", 0), graph=built.graph) as session:
        session.run(initialise)
        session.run(built.input.init_op, built.input.feed)
        if gradients:
            session.run(built.update.init.new_run)
            session.run(built.update.init.every_worker)
            fetches.append(built.update.make_chief_service()._operations.update_op)
        return transfers(session, fetches)


@pytest.mark.parametrize(("gradients", "has_train_op"), [(None, True), (1, False)], ids=["async", "sync"])
def test_nine_tables_travel_as_one(start_servers, gradients, has_train_op):
    """Besides the dense variable: the ids and the gradients to the ps, the rows and the progress to the worker."""
    model = click_model(has_train_op=has_train_op)
    assert transfers_of(start_servers(1, 1), gradients, model) == {("ps", "worker"): 3, ("worker", "ps"): 3}


def test_lookups_that_cannot_be_joined_stay_as_they_are(tmp_path, start_servers):
    """One whose ids come from another lookup, one in a branch, one after a control input; together with others."""
    def model_fn(features, labels, mode, params):
        first = tf.get_variable("first", [4], initializer=tf.constant_initializer([3, 2, 1, 0]))
        second = tf.get_variable("second", [4, 1], initializer=tf.constant_initializer([1, 2, 4, 8]))
        indices = tf.cast(tf.nn.embedding_lookup(first, features[:, 0] % 4) + 0.5, tf.int64)
        chained = tf.nn.embedding_lookup(second, indices)
        enclosed = tf.cond(tf.reduce_sum(labels) >= 0, lambda: tf.nn.embedding_lookup(second, features[:, 1] % 4),
                           lambda: tf.zeros([NUM_EXAMPLES, 1]))
        with tf.control_dependencies([chained]):
            ordered = tf.nn.embedding_lookup(second, features[:, 2] % 4)
        predictions = tf.reduce_sum(tf.concat([chained, enclosed, ordered], 1), 1)
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)))

    model = clusters.contracts.Model("not joined", model_fn, {})
    found = train(start_servers(1, 1), tmp_path, 3, model=model, learning_rate=0.01)
    ids, labels = click_data()
    expected = np.array([1.0, 2.0, 4.0, 8.0])
    for _ in range(3):
        used = [3 - ids[:, 0] % 4, ids[:, 1] % 4, ids[:, 2] % 4]
        slope = 2 * (sum(expected[one] for one in used) - labels) / len(labels)
        change = np.zeros(4)
        for one in used:
            np.add.at(change, one, slope)
        expected = expected - 0.01 * change
    np.testing.assert_allclose(found["second"][:, 0], expected, rtol=1e-4)


def test_an_id_that_is_out_of_range_fails(tmp_path, start_servers):
    """As without: the ps tells which id."""
    def model_fn(features, labels, mode, params):
        rows = tf.nn.embedding_lookup(tf.get_variable("table", [4, 2]), features[:, 0] * 0 + 2**32)
        return clusters.ps_train.ModelSpec(loss=tf.reduce_sum(rows))

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 4294967296 is not in \[0, 4\)"):
        train(start_servers(1, 1), tmp_path, 1, model=clusters.contracts.Model("bad", model_fn, {}))


def test_feature_columns_travel_together(start_servers):
    """Embedding columns of two features and a shared width make `embedding_lookup_sparse`, which is joined, too."""
    def model_fn(features, labels, mode, params):
        columns = [tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_identity(f"field{field}", NUM_ROWS), 3) for field in range(3)]
        inputs = tf.feature_column.input_layer({f"field{field}": features[:, field] for field in range(3)}, columns)
        predictions = tf.linalg.matvec(inputs, tf.get_variable("weights", [9]))
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)))

    model = clusters.contracts.Model("columns", model_fn, {})
    assert transfers_of(start_servers(1, 1), model=model) == {("ps", "worker"): 3, ("worker", "ps"): 3}
