"""--embedding_wire_dtype=bfloat16: what is rounded on its way, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.graph import devices
from ps_train.parts.tables import rules
from ps_train.parts.tables.connection import RowExchange
from ps_train.parts.tables.registry import install_registry
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.tables.table_files import TableFiles
from ps_train.updates.update import Period
from tests import clusters
from tests.cluster.parts.tables import test_update_modes as modes
from tests.cluster.parts.tables.lookups import Model
from tests.tensorflow_mode import tf

_WIRE = {"embedding_wire_dtype": "bfloat16"}
_IDS = np.array([3, 0, 4, 1])


def rounded(values):
    """Returns the nearest bfloat16 of each value, as float32."""
    return np.asarray(values, np.float32).astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)


@pytest.mark.parametrize("num_ps", [1, 2])
def test_values_and_gradients_are_rounded_and_rows_on_the_ps_are_not(num_ps):
    """Gradient descent on two tables: row - gradient, with a gradient that was computed of rounded rows."""
    lookups, stored = {}, {}

    def build():
        for name, dim in (("a", 2), ("b", 3)):
            lookups[name] = ps_train.embedding_table(name, dim, num_rows=6, initial_limit=1.0).lookup(_IDS)
        return tf.add_n([tf.reduce_sum(tf.square(rows)) * 0.3 for rows in lookups.values()])

    model = Model(build, num_ps, wire_dtype=tf.bfloat16)
    with model as session, model.graph.as_default():
        for name in lookups:
            stored[name] = [store.read(tf.range(6, dtype=tf.int64)) for store in model.registry.stores(name)]
        first, seen = session.run([stored, lookups])
        session.run(model.train_op)
        after = session.run(stored)
    for name, rows in first.items():
        np.testing.assert_array_equal(seen[name], rounded(rows[0][_IDS]))
        assert not np.array_equal(seen[name], rows[0][_IDS])
        gradients = rounded(2 * np.float32(0.3) * seen[name])
        for number, row_id in enumerate(_IDS):
            own = [one[row_id] for one, before in zip(after[name], rows) if not np.array_equal(one, before)]
            assert any(np.allclose(row, rows[0][row_id] - gradients[number], atol=1e-7, rtol=0) for row in own)


_RULES = {"sgd": rules.Sgd(0.1), "adagrad": rules.Adagrad(0.1), "rowwise": rules.RowwiseAdagrad(0.1),
          "adam": rules.Adam(0.1), "ftrl": rules.Ftrl(0.1), "momentum": rules.Momentum(0.1)}
_ROUNDED = {"sgd": 3, "adagrad": 6, "rowwise": 4, "adam": 3, "ftrl": 3, "momentum": 3, "history": 3}  # floats of a row


@pytest.mark.parametrize("num_ps", [1, 3])
def test_averages_and_histories_in_slots_are_exact(num_ps):
    """Local steps pull rows with slots, and push changes of them; only sums may be rounded."""
    with tf.Graph().as_default(), tf.Session() as session:
        registry = install_registry([""] * num_ps, rules.Sgd(0.1), wire_dtype=tf.bfloat16)
        for name, rule in _RULES.items():
            registry.add(TableSpec(name, 3, num_rows=6, rule=rule, initial_limit=1.0))
        registry.add(TableSpec(
            "history", 3, num_rows=6, rule=rules.Adagrad(0.1), has_history=True, initial_limit=1.0))
        exchange = RowExchange(registry, {name: tf.constant(_IDS) for name in registry.specs}, sorts_ids=False)
        pulled = exchange.pull(with_slots=True)
        draw = np.random.default_rng(1)
        changes = {name: draw.normal(size=[4, int(rows.shape[1])]).astype(np.float32) for name, rows in pulled.items()}
        pushed = exchange.push({name: tf.constant(change) for name, change in changes.items()})
        TableFiles(registry, "").reset(session)
        sent_ids, received, arrived = session.run([exchange.ids, pulled, [slices for slices, _ in pushed]])
    names = [name for _ in range(num_ps) for name in registry.specs]
    for name, change in changes.items():
        slots = registry.specs[name].rule.first_slots(tf.constant(1), 3)
        assert received[name].shape == (4, 3 + int(slots.shape[1]))
        np.testing.assert_array_equal(received[name][:, :3], rounded(received[name][:, :3]))
        expected = np.where(np.arange(change.shape[1]) < _ROUNDED[name], rounded(change), change)
        by_id = {row_id: row for one, own in zip(arrived, names) if own == name
                 for row_id, row in zip(one.indices, one.values)}
        np.testing.assert_array_equal([by_id[row_id] for row_id in sent_ids[name]], expected, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"period": Period(3)}, {"gradients": 1}, {"steps_per_execution": 3}], ids=str)
def test_every_mode_comes_near_the_rows_that_it_has_without(tmp_path, start_servers, options):
    """Within a hundredth after nine steps, and not to the very same ones."""
    _, exact, _ = modes.train(start_servers(2, 1), tmp_path / "exact", 9, **options)
    _, found, _ = modes.train(start_servers(2, 1), tmp_path / "rounded", 9, **{
        **options, "flags": {**modes._ADAGRAD, **_WIRE}})
    assert found.keys() == exact.keys()
    for name, rows in exact.items():
        for row_id, row in rows.items():
            np.testing.assert_allclose(found[name][row_id], row, rtol=0.01, atol=0.005)
    assert any(not np.array_equal(found[name][row_id], row)
               for name, rows in exact.items() for row_id, row in rows.items())


def _sent_types(graph, *, floats=True):
    """Returns (sender, receiver) -> the types of floats, or others, that go from one job to the other for tables."""
    found = {}
    for op in graph.get_operations():
        for value in op.inputs:
            jobs = devices.task_of(value.device)[0], devices.task_of(op.device)[0]
            if None not in jobs and jobs[0] != jobs[1] and value.dtype.is_floating == floats and (
                    "embeddings" in value.op.name):
                found.setdefault(jobs, set()).add(value.dtype.base_dtype)
    return found


@pytest.mark.parametrize(("period", "rule", "expected"), [
    (Period(1), "adagrad", {tf.bfloat16}), (Period(2), "adagrad", {tf.bfloat16}),
    (Period(1), "adam", {tf.bfloat16}), (Period(2), "adam", {tf.bfloat16, tf.float32})], ids=str)
def test_the_types_in_which_rows_travel(start_servers, period, rule, expected):
    """Both ways; the slots of Adam, which only local steps pull, stay float32."""
    for flags, types in (({}, {tf.float32}), (_WIRE, expected)):
        graph = clusters.build_graph(
            start_servers(1, 1), 0, model=modes.model(modes._NUM_IDS), dataset=modes.dataset(),
            flags={"embedding_optimizer": rule, **flags}, period=period)
        assert _sent_types(graph.graph) == {("ps", "worker"): types, ("worker", "ps"): types}


def _model_of(num_rows):
    def model_fn(features, labels, mode, params):
        tables = [ps_train.embedding_table(str(number), 2, num_rows=rows) for number, rows in enumerate(num_rows)]
        sums = sum(tf.reduce_sum(table.lookup(features), [1, 2]) for table in tables)
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(sums - labels)))

    return clusters.contracts.Model("of", model_fn, {})


@pytest.mark.parametrize("period", [Period(1), Period(2)], ids=str)
@pytest.mark.parametrize(("num_rows", "expected"), [
    ([40], tf.int32), ([40, 2**31], tf.int32), ([40, 2**31 + 1], tf.int64), ([40, None], tf.int64)], ids=str)
def test_ids_of_fixed_tables_travel_in_half_the_bytes(start_servers, period, num_rows, expected):
    """Not beside those of a dynamic table, which have 64 bits, or of a larger one: they share a message."""
    graph = clusters.build_graph(
        start_servers(2, 1), 0, model=_model_of(num_rows), dataset=modes.dataset(), period=period)
    sent = _sent_types(graph.graph, floats=False)["worker", "ps"]
    assert expected in sent and not {tf.int32, tf.int64} - {expected} & sent
