"""Embedding tables in the update modes: local steps, several steps, rows staged ahead, each against single steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import contents, rules
from ps_train.training.reporting import End
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf

_NUM_IDS = 40
_RATE = 0.1
_ADAGRAD = {"embedding_optimizer": "adagrad", "embedding_learning_rate": _RATE}


def data(num_examples=96):
    """Returns ids int64 [n, 3] of which some are frequent, and labels float32 [n]."""
    random = np.random.default_rng(3)
    ids = np.minimum(random.geometric(0.15, size=(num_examples, 3)), _NUM_IDS) - 1
    return ids.astype(np.int64), random.normal(size=num_examples).astype(np.float32)


def one_table(num_rows=None):
    """Returns a model of one table, whose prediction is the sum of its rows and a bias."""
    def predict(features):
        return (tf.get_variable("bias", [], initializer=tf.zeros_initializer())
                + tf.reduce_sum(ps_train.embedding_table("items", 2, num_rows=num_rows).lookup(features), [1, 2]))

    return clusters.model_of(predict)


def model(num_rows=None, rule=None, dtype=tf.float32):
    """Two tables, the first one of this type and with this rule if any, and a bias; the prediction is their sum."""
    def model_fn(features, labels, mode, params):
        items = ps_train.embedding_table("items", 2, num_rows=num_rows, optimizer=rule, dtype=dtype)
        others = ps_train.embedding_table("others", 1)
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        predictions = (bias + tf.reduce_sum(items.lookup(features), [1, 2])
                       + tf.reduce_sum(others.lookup(features[:, :1] + 1000), [1, 2]))
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions)

    return clusters.contracts.Model("tables", model_fn, {})


def dataset(**options):
    """Yields the data, always in the same order."""
    ids, labels = data()

    def input_fn(mode, params, shard):
        return ps_train.from_arrays((ids, labels), params["batch_size"], repeat=options.get("repeat", True))

    return clusters.contracts.Dataset("ids", input_fn, lambda params: None, {})


def rows_of(folder):
    """Returns table -> {id: value and slots} of the newest checkpoint, and the dense bias."""
    path = tf.train.latest_checkpoint(str(folder))
    reader = tf.train.load_checkpoint(path)
    found = {}
    for name, saved in contents.read_tables(path).items():
        found[name] = {}
        for piece in (piece for pieces in saved.pieces for piece in pieces):
            ids, values, slots = (reader.get_tensor(f"{piece}/{part}") for part in ("ids", "values", "slots"))
            found[name].update(zip(ids.tolist(), np.concatenate([values, slots], 1)))
    return found, reader.get_tensor("bias")


def train(cluster, folder, steps, num_workers=1, **options):
    """Trains to the end and returns `rows_of` the last checkpoint."""
    options = {"model": model(), "dataset": dataset(), "learning_rate": _RATE,
               "flags": _ADAGRAD, **options}
    outcomes = clusters.train_together(cluster, folder, steps, num_workers, **options)
    return outcomes, *rows_of(folder)


def assert_same(found, expected):
    """Compares the rows of all tables."""
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name].keys() == rows.keys()
        for row, value in rows.items():
            np.testing.assert_allclose(found[name][row], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} {row}")


@pytest.mark.optimised
def test_one_worker_comes_to_the_same_rows_with_local_steps(tmp_path, start_servers):
    """Values and slots after rounds of 5, on 2 ps: with one worker nothing is merged.

    There are 12 batches, so the end of the data cuts the last round short, and none is lost.
    """
    # One slot of the other table's Adagrad, two of Ftrl; for a table without slots see that of two workers.
    ftrl = model(rule=rules.Ftrl(_RATE, l1=0.01))
    outcomes, rows, bias = train(start_servers(2, 1), tmp_path / "rounds", 100, model=ftrl,
                                 dataset=dataset(repeat=False), period=Period(5))
    assert (outcomes[0].end, outcomes[0].local_steps) == (End.DATA, 12)
    _, expected, expected_bias = train(start_servers(2, 1), tmp_path / "single", 12, model=ftrl)
    assert_same(rows, expected)
    np.testing.assert_allclose(bias, expected_bias, rtol=1e-4)


def test_a_fixed_table_comes_to_the_same_rows_with_several_steps_in_a_run_and_without_a_lock(tmp_path, start_servers):
    """Each of the steps pulls the rows that the one before has left.

    --noexact_embedding_updates leaves the critical section out, and nothing else.
    """
    ends = [train(start_servers(1, 1), tmp_path / name, 9, model=model(_NUM_IDS), **options) for name, options in {
        "single": {}, "several": {"steps_per_execution": 3},
        "unlocked": {"flags": {**_ADAGRAD, "exact_embedding_updates": False}}}.items()]
    for _, rows, _ in ends[1:]:
        assert_same(rows, ends[0][1])


@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_the_steps_of_a_round_count_without_any_dense_variable(tmp_path, start_servers, gradients):
    """Two rounds of 4 take a model with nothing but a table to the global step 8."""
    def predict(features):
        return tf.reduce_sum(ps_train.embedding_table("items", 2).lookup(features), [1, 2])

    [outcome] = clusters.train_together(start_servers(1, 1), tmp_path, 8, 1, model=clusters.model_of(predict),
                                        dataset=dataset(), period=Period(4), gradients=gradients)
    assert (outcome.global_step, outcome.local_steps) == (8, 8)


def test_two_workers_add_their_whole_changes(tmp_path, start_servers):
    """With sgd, a table ends as if each worker's change were added to its first values; the mean in sync."""
    sgd = {"flags": {"embedding_optimizer": "sgd", "embedding_learning_rate": _RATE},
           "optimizer_name": "sgd", "learning_rate": 1e-9}
    _, first, _ = train(start_servers(1, 1), tmp_path / "one", 4, period=Period(4), **sgd)
    _, synced, _ = train(start_servers(1, 2), tmp_path / "sync", 4, num_workers=2, gradients=2, period=Period(4), **sgd)
    assert_same(synced, first)  # both have the same data, so the mean of their changes is that of one


@pytest.mark.optimised
@pytest.mark.parametrize("built", [one_table(_NUM_IDS), one_table(), model()], ids=["fixed", "dynamic", "two tables"])
def test_ids_are_counted_in_a_round(start_servers, built):
    """Found are those that had a row already; the push of a round is one update. The data has 12 mini-batches."""
    training = bare_training.BareTraining(start_servers(1, 1), model=built, dataset=dataset(), period=Period(4),
                                          flags=_ADAGRAD)
    training.train(20)
    found = training.graph.rows.files.counts(training.session)["items"][0]
    ids = [set(part.ravel()) for part in np.split(np.concatenate([data()[0]] * 2)[:160], 5)]
    num_rows = len(set().union(*ids))
    assert (found["updates"], found["used"], found["admitted"]) == (5, num_rows, num_rows)
    assert (found["hits"], found["misses"]) == (sum(map(len, ids)) - num_rows, num_rows)


_numbers = itertools.count()
_CHOOSE = {
    "Python": lambda ids, drift: tf.py_func(lambda own: np.full_like(own, next(_numbers)), [ids], tf.int64),
    "Python, some": lambda ids, drift: tf.py_func(lambda own: own.ravel()[:next(_numbers) % 7], [ids], tf.int64),
    "the global step": lambda ids, drift: ids + tf.train.get_global_step(),
    "a variable": lambda ids, drift: ids + tf.cast(1e6 * drift, tf.int64),
}


@pytest.mark.optimised
@pytest.mark.parametrize("choose", _CHOOSE.values(), ids=_CHOOSE)
def test_other_ids_in_a_step_than_those_whose_rows_were_pulled_are_refused(start_servers, choose):
    """The graph does not show them; their step would train the rows of other ids. Nothing of the round is pushed."""
    def predict(features):
        drift = tf.get_variable("drift", [], initializer=tf.ones_initializer())
        ids = tf.reshape(choose(features, drift), [-1])
        return drift * tf.reduce_sum(ps_train.embedding_table("items", 2).lookup(ids))

    training = bare_training.BareTraining(start_servers(1, 1), model=clusters.model_of(predict), dataset=dataset(),
                                          period=Period(4))
    with raises("ids_drawn_at_random") as caught:
        training.train(20)
    assert "worker:0: --communication_period" in str(caught.value) and "table items" in str(caught.value)
    assert training.graph.rows.files.counts(training.session)["items"][0]["updates"] == 0


def test_ids_that_a_function_of_python_reads_from_the_data_are_trained(start_servers):
    """They are the same each time."""
    def predict(features):
        ids = tf.py_func(lambda own: own[own % 2 == 0], [features], tf.int64)
        rows = ps_train.embedding_table("items", 2).lookup(tf.reshape(ids, [-1]))
        return tf.reduce_sum(rows) + tf.get_variable("bias", [], initializer=tf.zeros_initializer())

    training = bare_training.BareTraining(start_servers(1, 1), model=clusters.model_of(predict), dataset=dataset(),
                                          period=Period(4))
    assert training.train(8).local_steps == 8


def test_rows_may_go_through_recompute_grad_in_a_round(start_servers):
    """It looks for variables behind the rows, which come from the copy here."""
    def predict(features):
        rows = tf.recompute_grad(tf.tanh)(ps_train.embedding_table("items", 2).lookup(features))
        return tf.reduce_sum(rows, [1, 2]) + tf.get_variable("bias", [], initializer=tf.zeros_initializer())

    training = bare_training.BareTraining(start_servers(1, 1), model=clusters.model_of(predict), dataset=dataset(),
                                          period=Period(4))
    assert training.train(8).local_steps == 8


def test_ids_that_the_model_draws_are_refused_where_it_would_draw_twice(start_servers):
    """The rows of one draw would be trained with the other numbers of the second; random values of rows are fine."""
    def model_of(choose, keep=tf.identity):
        def model_fn(features, labels, mode, params):
            rows = ps_train.embedding_table("items", 2, initial_limit=0.5).lookup(choose(features))
            return ps_train.ModelSpec(loss=tf.reduce_sum(keep(rows)) + tf.get_variable("bias", []))

        return clusters.contracts.Model("drawing", model_fn, {})

    cluster = start_servers(1, 1)
    drawn = {"negatives": lambda ids: tf.random.uniform([8], 1, 30, tf.int64),
             "some of them": lambda ids: tf.boolean_mask(ids, tf.random.uniform(tf.shape(ids)) < 0.5)}
    for choose in drawn.values():
        with raises("ids_drawn_at_random"):
            clusters.build_graph(cluster, 0, model=model_of(choose), dataset=dataset(), period=Period(5))
    clusters.build_graph(cluster, 0, model=model_of(drawn["negatives"]), dataset=dataset())
    dropping = model_of(tf.identity, keep=lambda rows: tf.nn.dropout(rows, rate=0.5))
    clusters.build_graph(cluster, 0, model=dropping, dataset=dataset(), period=Period(5))


@pytest.mark.parametrize("period", [Period(1), Period(4)], ids=["single steps", "rounds"])
def test_a_model_may_pop_features_and_have_variables_that_the_loss_does_not_need(start_servers, tmp_path, period):
    """Issue: in rounds, both ended with a traceback of TensorFlow."""
    ids, labels = data()

    def input_fn(mode, params, shard):
        features = {"ids": ids, "weight": np.full(len(ids), 0.5, np.float32)}
        return ps_train.from_arrays((features, labels), params["batch_size"], repeat=True)

    def model_fn(features, labels, mode, params):
        tf.get_variable("nowhere", [3], initializer=tf.ones_initializer())
        rows = ps_train.embedding_table("items", 2).lookup(features.pop("ids"))
        loss = tf.reduce_mean(features.pop("weight") * tf.square(tf.reduce_sum(rows, [1, 2]) - labels))
        assert not features
        return ps_train.ModelSpec(loss=loss)

    saved = bare_training.checkpoint_of(
        start_servers(1, 1), tmp_path, 8, model=clusters.contracts.Model("popping", model_fn, {}), period=period,
        dataset=clusters.contracts.Dataset("popped", input_fn, lambda params: None, {}))
    assert saved["global_step"] == 8
    np.testing.assert_array_equal(saved["nowhere"], [1, 1, 1])
