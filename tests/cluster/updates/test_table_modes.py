"""Embedding tables in the update modes: local steps, several steps, rows staged ahead, each against single steps."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.config.task import Config
from ps_train.embeddings import rules
from ps_train.embeddings.files import contents
from ps_train.errors import ConfigError
from ps_train.training.outcome import End
from ps_train.updates.local_steps.period import Period
from tests import clusters
from tests.tensorflow_mode import tf

_NUM_IDS = 40
_RATE = 0.1


def data(num_examples=96):
    """Returns ids int64 [n, 3] of which some are frequent, and labels float32 [n]."""
    random = np.random.default_rng(3)
    ids = np.minimum(random.geometric(0.15, size=(num_examples, 3)), _NUM_IDS) - 1
    return ids.astype(np.int64), random.normal(size=num_examples).astype(np.float32)


def model(num_rows=None, rule=None):
    """Two tables, the first one by a rule of its own if given, and a dense variable; the prediction is a sum."""
    def model_fn(features, labels, mode, params):
        items = ps_train.embedding_table("items", 2, num_rows=num_rows, optimizer=rule)
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
               "table_rule": rules.Adagrad(_RATE), **options}
    outcomes = clusters.train_together(cluster, folder, steps, num_workers, **options)
    return outcomes, *rows_of(folder)


def assert_same(found, expected):
    """Compares the rows of all tables."""
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name].keys() == rows.keys()
        for row, value in rows.items():
            np.testing.assert_allclose(found[name][row], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} {row}")


def test_one_worker_comes_to_the_same_rows_with_local_steps(tmp_path, start_servers):
    """Values and slots after 22 steps in rounds of 5, on 2 ps: with one worker there is nothing to merge."""
    # One slot of the other table's Adagrad, two of Ftrl; for a table without slots see that of two workers.
    ends = [train(start_servers(2, 1), tmp_path / str(steps), 22, model=model(rule=rules.Ftrl(_RATE, l1=0.01)),
                  period=Period(steps, train_steps=22)) for steps in (1, 5)]
    assert_same(ends[1][1], ends[0][1])
    np.testing.assert_allclose(ends[1][2], ends[0][2], rtol=1e-4)


def test_a_fixed_table_comes_to_the_same_rows_with_several_steps_in_a_run(tmp_path, start_servers):
    """Each of the steps pulls the rows that the one before has left."""
    ends = [train(start_servers(2, 1), tmp_path / str(steps), 21, model=model(_NUM_IDS), steps_per_execution=steps)
            for steps in (1, 3)]
    assert_same(ends[1][1], ends[0][1])


def test_the_end_of_the_data_cuts_a_round_short(tmp_path, start_servers):
    """12 batches in rounds of 5: the last round has two, and none is lost."""
    outcomes, rows, bias = train(start_servers(1, 1), tmp_path / "rounds", 100, dataset=dataset(repeat=False),
                                 period=Period(5))
    assert (outcomes[0].end, outcomes[0].local_steps) == (End.DATA, 12)
    _, expected, expected_bias = train(start_servers(1, 1), tmp_path / "single", 12)
    assert_same(rows, expected)
    np.testing.assert_allclose(bias, expected_bias, rtol=1e-4)


def test_two_workers_add_their_whole_changes(tmp_path, start_servers):
    """With sgd, a table ends as if each worker's change were added to its first values; the mean in sync."""
    sgd = {"table_rule": rules.Sgd(_RATE), "optimizer_name": "sgd", "learning_rate": 1e-9}
    _, first, _ = train(start_servers(1, 1), tmp_path / "one", 4, period=Period(4), **sgd)
    _, synced, _ = train(start_servers(1, 2), tmp_path / "sync", 4, num_workers=2, gradients=2, period=Period(4), **sgd)
    assert_same(synced, first)  # both have the same data, so the mean of their changes is that of one


def test_rows_that_are_staged_ahead_train_each_batch_once(tmp_path, start_servers):
    """Each row is one update behind at most: with ids that never repeat nothing differs from single steps."""
    ids = np.arange(96 * 3, dtype=np.int64).reshape(96, 3)
    labels = np.linspace(-1, 1, 96).astype(np.float32)

    def input_fn(mode, params, shard):
        return ps_train.from_arrays((ids, labels), params["batch_size"], repeat=True)

    unique = clusters.contracts.Dataset("ids", input_fn, lambda params: None, {})
    ends = [train(start_servers(2, 1), tmp_path / str(ahead), 11, dataset=unique, prefetches_rows=ahead)
            for ahead in (False, True)]
    assert_same(ends[1][1], ends[0][1])
    np.testing.assert_allclose(ends[1][2], ends[0][2], rtol=1e-4)
    assert abs(ends[0][2]) > 1e-3, "the dense bias has not been trained"


@pytest.mark.parametrize("other", [{"sync_replicas": True}, {"communication_period": 4}, {"steps_per_execution": 4}])
def test_staging_ahead_is_refused_where_it_has_no_meaning(other):
    """One line, which names both flags."""
    (name,) = other
    with pytest.raises(ConfigError, match=f"--embedding_prefetch: given with --{name}"):
        Config(embedding_prefetch=True, **other)


def test_a_table_without_a_lock_comes_to_the_same_rows_with_one_worker(tmp_path, start_servers):
    """--noexact_embedding_updates leaves the critical section out, and nothing else."""
    ends = [train(start_servers(1, 1), tmp_path / str(locks), 9, model=model(_NUM_IDS), locks_tables=locks)
            for locks in (True, False)]
    assert_same(ends[1][1], ends[0][1])
