"""--embedding_wire_dtype=bfloat16: what is rounded on its way, what is not, and how many bytes that saves."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import rules
from ps_train.parts.tables.connection import RowExchange
from ps_train.parts.tables.registry import install_registry
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.tables.table_files import TableFiles
from ps_train.updates.update import Period
from tests import clusters
from tests.cluster.parts.plan.test_plan import recorded_transfers
from tests.cluster.parts.profile.test_part import profiled
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


def _same_ids():
    """Yields mini-batches with the same ids each, so that each step sends as many rows."""
    def input_fn(mode, params, shard):
        return ps_train.from_arrays((np.tile(_IDS[:3], [64, 1]), np.ones(64, np.float32)), params["batch_size"])

    return clusters.contracts.Dataset("ids", input_fn, lambda params: None, {})


@pytest.mark.parametrize(("period", "rule", "saved"), [
    (Period(1), "adagrad", 1 / 2), (Period(2), "adagrad", 1 / 2), (Period(2), "adam", 1 / 6)], ids=str)
def test_the_bytes_of_rows_that_are_saved(tmp_path, start_servers, period, rule, saved):
    """Half of each value and gradient, and of Adagrad's slots; of a row with Adam's slots a sixth. Ids stay."""
    sent = {}
    for name, flags in (("exact", {}), ("rounded", _WIRE)):
        worker = profiled(start_servers(1, 1), 0, tmp_path / name, 8, range(2, 6), model=modes.model(modes._NUM_IDS),
                          dataset=_same_ids(), flags={"embedding_optimizer": rule, **flags}, period=period)
        for tasks, tensors in recorded_transfers(worker).items():
            for kind in ("embeddings/", "embeddings_"):  # ids; rows, and what is pushed for them
                sent[name, tasks, kind] = sum(size for node, size in tensors.items() if kind in node)
    for sender, receiver in (("ps:0", "worker:0"), ("worker:0", "ps:0")):
        exact, with_wire = (sent[name, (sender, receiver), "embeddings_"] for name in ("exact", "rounded"))
        assert exact and with_wire == pytest.approx(exact * (1 - saved))
        assert len({sent[name, (sender, receiver), "embeddings/"] for name in ("exact", "rounded")}) == 1
