"""Models with embedding tables in every update mode, on in-process servers, against the same steps in numpy."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest

import ps_train
from ps_train.errors import UserCodeError
from ps_train.parts.tables import contents, index, rules
from ps_train.parts.tables.hashing import UNIFORM, Initial, initial_values
from ps_train.storage import checkpoints
from ps_train.tasks import evaluator
from ps_train.training.reporting import Report
from ps_train.updates import staleness
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.children import wait_until
from tests.cluster.parts.tensorflow_sync.test_part import train_in_lock_step
from tests.errors import codes_of, raises
from tests.tensorflow_mode import tf

_RATE, _BATCH, _STEPS = 0.1, 4, 6


def model_fn(features, labels, mode, params):
    """Sum of a row of a dynamic table, of one of a fixed table that two features share, and a bias."""
    items = ps_train.embedding_table("items", 2, optimizer=rules.Sgd(_RATE), l2=params.get("l2", 0.0),
                                     min_count=params.get("min_count", 1))
    users = ps_train.embedding_table("users", 3, num_rows=10, optimizer=rules.Sgd(_RATE))
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    found = [items.lookup(features[:, 0], name="item"), users.lookup(features[:, 1:], name="users")]
    predictions = bias + tf.add_n([tf.reduce_sum(rows, axis=list(range(1, rows.shape.rank))) for rows in found])
    loss = tf.reduce_mean(tf.square(predictions - labels))
    if params.get("own_optimizer"):
        train_op = tf.train.GradientDescentOptimizer(_RATE).minimize(loss, tf.train.get_global_step())
        return ps_train.ModelSpec(loss=loss, train_op=train_op)
    return ps_train.ModelSpec(loss=loss, predictions=predictions)


def _data(num_examples=48):
    """Returns ids int64 [n, 3] of an item and two users, and labels [n]."""
    random = np.random.default_rng(0)
    ids = np.stack([random.integers(0, 12, num_examples) * 2**40 + 1, *random.integers(0, 10, [2, num_examples])], 1)
    return ids.astype(np.int64), random.normal(size=num_examples).astype(np.float32)


def _first(name, dim, ids):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(initial_values(
            tf.constant(ids), dim, initial=Initial(UNIFORM, 0.0, 0.01), seed=name)).astype(np.float64)


class Oracle:
    """The model in numpy."""

    def __init__(self, l2=0.0):
        """Begins with first values; the items have an L2 penalty."""
        self.l2 = l2
        self.ids, self.labels = _data()
        self.known = np.unique(self.ids[:, 0])
        self.items, self.users, self.bias = _first("items", 2, self.known), _first("users", 3, np.arange(10)), 0.0

    def gradients(self, rows):
        """Returns the gradients of the items, the users and the bias on these examples, and which rows they touch."""
        item, users = np.searchsorted(self.known, self.ids[rows, 0]), self.ids[rows, 1:]
        predictions = self.bias + self.items[item].sum(1) + self.users[users].sum((1, 2))
        slopes = 2 * (predictions - self.labels[rows]) / len(rows)
        of_items, of_users = np.zeros_like(self.items), np.zeros_like(self.users)
        np.add.at(of_items, item, slopes[:, np.newaxis])
        np.add.at(of_users, users, slopes[:, np.newaxis, np.newaxis])
        touched = [np.isin(np.arange(count), own) for count, own in ((len(self.known), item), (10, users))]
        return of_items, of_users, slopes.sum(), *touched

    def apply(self, of_items, of_users, of_bias, has_item):
        """Takes a step of gradient descent; `has_item` says which items are touched."""
        self.items -= _RATE * (of_items + self.l2 * self.items * has_item[:, np.newaxis])
        self.users -= _RATE * of_users
        self.bias -= _RATE * of_bias


def _dataset():
    return clusters.array_dataset(*_data(), shuffle=False)


def _options(**options):
    model = clusters.contracts.Model("tables", model_fn, {})
    return {"model": model, "dataset": _dataset(), "learning_rate": _RATE,
            "params": {"batch_size": _BATCH, "seed": 7}, **options}


def _saved_rows(folder):
    """Returns name of a table -> id -> value, in the newest checkpoint of a folder."""
    path = checkpoints.newest_sound(str(folder))
    reader = tf.train.load_checkpoint(path)
    return {name: {int(one): value for pieces in saved.pieces for piece in pieces
                   for one, value in zip(reader.get_tensor(f"{piece}/ids"), reader.get_tensor(f"{piece}/values"))}
            for name, saved in contents.read_tables(path).items()}


def _assert_like(folder, oracle, atol=1e-6):
    found = _saved_rows(folder)
    np.testing.assert_allclose(clusters.read_checkpoint(folder)["bias"], oracle.bias, atol=atol)
    for name, ids, expected in (("items", oracle.known, oracle.items), ("users", range(10), oracle.users)):
        first = dict(zip(ids, _first(name, expected.shape[1], np.asarray(ids))))
        values = [found[name].get(int(one), first[one]) for one in ids]
        np.testing.assert_allclose(values, expected, atol=atol, err_msg=name)


_ALONE = {"several steps at once": (2, {"steps_per_execution": 3}),
          "bounded": (1, {"bound": staleness.Bound(3, 1, 10.0, {0: "worker:0"})}),
          "own optimizer": (1, {"own_optimizer": True}),
          "an L2 penalty": (2, {"l2": 0.5}),
          "an L2 penalty in local steps": (2, {"l2": 0.5, "period": Period(3)})}


@pytest.mark.parametrize("num_ps, options", _ALONE.values(), ids=_ALONE)
def test_one_worker_does_what_numpy_does(tmp_path, start_servers, num_ps, options):
    """Six steps; the rows in the checkpoint are numpy's."""
    of_model = {name: options[name] for name in ("own_optimizer", "l2") if name in options}
    params = {"batch_size": _BATCH, "seed": 7, **of_model}
    options = {name: value for name, value in options.items() if name not in of_model}
    (outcome,) = clusters.train_together(
        start_servers(num_ps, 1), tmp_path, _STEPS, 1, **_options(params=params, **options))
    assert outcome.global_step == _STEPS
    oracle = Oracle(of_model.get("l2", 0.0))
    for step in range(_STEPS):
        oracle.apply(*oracle.gradients(np.arange(_BATCH) + step * _BATCH)[:4])
    _assert_like(tmp_path, oracle)


def _sync_oracle(sums=False, l2=0.0):
    """Two workers: a row's gradient is the mean, or the sum, over those that have it; the bias' is the mean."""
    oracle = Oracle(l2)
    for step in range(_STEPS):
        by_worker = [oracle.gradients(worker + 2 * (np.arange(_BATCH) + step * _BATCH)) for worker in range(2)]
        items, users, bias, has_item, has_user = (np.array(parts) for parts in zip(*by_worker))
        counts = [1 if sums else np.maximum(has.sum(0), 1)[:, np.newaxis] for has in (has_item, has_user)]
        oracle.apply(items.sum(0) / counts[0], users.sum(0) / counts[1], bias.mean(), has_item.any(0))
    return oracle


_SYNC = {"mean": (2, {}), "sum": (1, {"flags": {"sync_replicas": True, "sum_embedding_gradients": True}}),
         "tensorflow": (1, {"sync_engine": "tensorflow"}),
         "an L2 penalty": (2, {"params": {"batch_size": _BATCH, "seed": 7, "l2": 0.5}})}


@pytest.mark.parametrize(("num_ps", "options"), _SYNC.values(), ids=_SYNC)
def test_two_workers_in_sync_do_what_numpy_does(tmp_path, start_servers, num_ps, options):
    """As TensorFlow's accumulators: a row is averaged over the workers that have it; as a choice, summed."""
    train_in_lock_step(start_servers(num_ps, 2), tmp_path, _STEPS, **_options(**options))
    _assert_like(tmp_path, _sync_oracle(sums="flags" in options, l2=options.get("params", {}).get("l2", 0.0)))


def test_in_sync_an_id_gets_a_row_in_the_second_update_that_has_it(tmp_path, start_servers):
    """Issue: with min_count no sync graph could be built, as accumulators do not know the shape of their ids."""
    train_in_lock_step(start_servers(2, 2), tmp_path, _STEPS, **_options(
        params={"batch_size": _BATCH, "seed": 7, "min_count": 2}))
    items = _data()[0][:, 0].reshape(_STEPS, 2 * _BATCH)
    counts = np.unique(np.concatenate([np.unique(of_update) for of_update in items]), return_counts=True)
    assert {*_saved_rows(tmp_path)["items"]} == {own for own, count in zip(*counts) if count > 1}
    assert 1 in counts[1]


_HYBRID = {"flags": {"sync_replicas": True, "async_embeddings": True}}


def _hybrid_workers(cluster, gradients, **options):
    return [bare_training.BareTraining(cluster, index, gradients=gradients, **_options(**_HYBRID, **options))
            for index in range(2)]


def _num_updates(worker):
    """Returns the tensor of how many updates each table has had on each ps, int64 [tables times ps]."""
    with worker.graph.graph.as_default():
        return tf.stack([index.count_of(index.read_whole(store.counts), "updates")
                         for store in worker.graph.rows.registry.all_stores()])


def test_with_async_embeddings_rows_do_not_wait_for_the_update_of_the_variables(tmp_path, start_servers):
    """Worker 1 begins when the rows have worker 0's gradients and the bias has not: both steps are then numpy's."""
    workers, oracle = _hybrid_workers(start_servers(2, 2), gradients=2, params={
        "batch_size": _BATCH, "seed": 7, "l2": 0.5}), Oracle(l2=0.5)
    num_updates = _num_updates(workers[1])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for step in range(_STEPS):
            first = pool.submit(workers[0].session.run, [workers[0].graph.update.train_op, workers[0].updates])
            wait_until(lambda: set(workers[1].session.run(num_updates)) == {2 * step + 1}, "the rows")  # noqa: B023
            assert workers[1].session.run(workers[1].graph.global_step) == step
            workers[1].session.run(workers[1].graph.update.train_op)
            first.result(bare_training.DEADLINE_SECS)
            of_bias = []
            for worker in range(2):
                *of_rows, bias, has_item, _ = oracle.gradients(worker + 2 * (np.arange(_BATCH) + step * _BATCH))
                oracle.apply(*of_rows, 0.0, has_item)
                of_bias.append(bias)
            oracle.bias -= _RATE * np.mean(of_bias)
    workers[0].save(tmp_path)
    _assert_like(tmp_path, oracle)


def test_with_async_embeddings_a_gradient_that_is_too_late_counts_in_the_rows_only(tmp_path, start_servers):
    """With one gradient an update, that of worker 1 for the first step comes after the update of worker 0."""
    workers, oracle = _hybrid_workers(start_servers(1, 2), gradients=1), Oracle()
    workers[0].session.run([workers[0].graph.update.train_op, workers[0].updates])
    workers[1].session.run(workers[1].graph.update.train_op)
    workers[0].save(tmp_path)
    for worker, counts in ((0, 1.0), (1, 0.0)):
        # Worker 1 computes with the parameters that it finds, the bias of the first update among them.
        of_items, of_users, of_bias, has_item, _ = oracle.gradients(worker + 2 * np.arange(_BATCH))
        oracle.apply(of_items, of_users, counts * of_bias, has_item)
    assert workers[1].session.run(workers[1].graph.global_step) == 1
    _assert_like(tmp_path, oracle)


@pytest.mark.parametrize("options", [{}, {"gradients": 1}, {"gradients": 1, **_HYBRID}],
                         ids=["async", "sync", "sync with async rows"])
def test_a_table_without_any_dense_variable_is_trained(tmp_path, start_servers, options):
    """With three ps, of which a batch of one id leaves two without an id."""
    def only_a_table(features, labels, mode, params):
        rows = ps_train.embedding_table("items", 2, optimizer=rules.Sgd(1.0)).lookup(features[:, 0])
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.reduce_sum(rows, 1)))

    dataset = clusters.array_dataset(np.full([8, 1], 4, np.int64), np.zeros(8, np.float32))
    options = _options(model=clusters.contracts.Model("table", only_a_table, {}), dataset=dataset, **options)
    clusters.train_together(start_servers(3, 1), tmp_path, 2, 1, **options)
    np.testing.assert_allclose(_saved_rows(tmp_path)["items"][4], _first("items", 2, np.array([4]))[0] - 2, rtol=1e-6)


def _failing(tmp_path, cluster, features, labels, **options):
    """Returns the error of a worker whose first batch is wrong, and the checkpoint's rows after it."""
    dataset = clusters.array_dataset(features, labels, shuffle=False)
    worker = clusters.Worker(cluster, 0, tmp_path, 3, **_options(dataset=dataset, **options))
    worker.start()
    with pytest.raises(UserCodeError) as caught:
        worker.result()
    return caught.value


def test_an_id_out_of_range_ends_training_in_one_line(tmp_path, start_servers):
    """With the feature and the id; the exit code of the error is 1."""
    ids, labels = _data()
    ids[2, 2] = 10
    error = _failing(tmp_path, start_servers(2, 1), ids, labels)
    assert codes_of(error) == ["bad_id"] and error.exit_code == 1
    assert str(error).startswith("worker:0: table users: users has the id 10; allowed: 0 to 9")
    assert "\n" not in str(error)


def test_a_gradient_that_is_not_finite_reaches_no_row(tmp_path, start_servers):
    """A finite loss whose gradient is not: the error names the table, which has counted no update."""
    def hiding(features, labels, mode, params):
        rows = ps_train.embedding_table("items", 2, optimizer=rules.Sgd(_RATE)).lookup(features[:, 0])
        bias = tf.get_variable("bias", [], initializer=tf.ones_initializer())
        hidden = tf.where(rows > 1e9, rows * labels[:, tf.newaxis], tf.zeros_like(rows))  # whose gradient is 0 * label
        return ps_train.ModelSpec(loss=bias + tf.reduce_sum(hidden))

    ids, labels = _data()
    labels[2] = np.nan
    cluster = start_servers(2, 1)
    error = _failing(tmp_path, cluster, ids, labels, model=clusters.contracts.Model("hiding", hiding, {}))
    assert "the gradient of table items" in str(error)
    with tf.Session(cluster.target("ps", 0)) as session, tf.device("/job:ps/task:0"):
        counts = tf.raw_ops.ReadVariableOp(resource=tf.raw_ops.VarHandleOp(
            dtype=tf.int64, shape=[10], shared_name="ps_train/table/items/0/counts"), dtype=tf.int64)
        assert session.run(counts)[0] == 0


def test_a_model_may_look_up_in_its_evaluation_only(tmp_path, start_servers):
    """The table is in the checkpoint, empty, with first values; a table that is missing there is an error."""
    def model_of(name):
        def looking_up_in_evaluation(features, labels, mode, params):
            table = ps_train.embedding_table(name, 2)
            loss = tf.get_variable("weight", [], initializer=tf.zeros_initializer()) * 1.0
            if mode == ps_train.EVAL:
                loss = loss + tf.reduce_sum(table.lookup(features[:1, 0]))
            return ps_train.ModelSpec(loss=loss)
        return clusters.contracts.Model("evaluating", looking_up_in_evaluation, {})

    clusters.train_together(
        start_servers(2, 1), tmp_path, 1, 1, **_options(model=model_of("items"), learning_rate=1.0))
    path, params = checkpoints.newest_sound(str(tmp_path)), {"batch_size": 48, "seed": 7}
    evaluate = clusters.evaluation.Evaluator(model_of("items"), params, _dataset(), params).evaluate
    np.testing.assert_allclose(evaluate(path).loss_mean, _first("items", 2, _data()[0][:1, 0]).sum() - 1, rtol=1e-5)
    with raises("checkpoint_of_another_model"):
        clusters.evaluation.Evaluator(model_of("users"), params, _dataset(), params).evaluate(path)


def test_an_evaluator_passes_over_a_checkpoint_with_tables_that_was_removed(
    start_servers, tmp_path, monkeypatch, caplog
):
    """Between the variables and the rows: reading rows then fails by an error of ps_train, not of TensorFlow."""
    clusters.train_together(start_servers(2, 1), tmp_path, 1, 1, **_options())
    path, params = checkpoints.newest_sound(str(tmp_path)), {"batch_size": 48, "seed": 7}
    read = contents.read_tables

    def late(path):
        checkpoints.remove(path)
        return read(path)

    monkeypatch.setattr(contents, "read_tables", late)
    own = clusters.evaluation.Evaluator(clusters.contracts.Model("sums", model_fn, {}), params, _dataset(), params)
    with caplog.at_level("INFO"):
        assert evaluator._evaluate_one(own, path, str(tmp_path), 60, threading.Event(), Report()) is None
    assert f"{path} was removed before it was evaluated" in caplog.text
