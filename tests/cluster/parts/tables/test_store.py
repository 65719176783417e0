"""The rows of a table: found, made, updated, dropped and made again, on one ps and on several."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train.parts.tables import index, rules, upkeep
from tests.cluster.parts.tables.sharded import ShardedTable
from tests.errors import raises
from tests.tensorflow_mode import tf

_SGD = rules.Sgd(1.0)
_KINDS = {"fixed": {"num_rows": 100}, "dynamic": {}}
_FAR = 2**62 + 5  # as the hash of a string may be


def _ones(ids, dim=2):
    return np.ones([len(ids), dim], np.float32)


@pytest.mark.parametrize(("kind", "num_ps"), [("fixed", 1), ("dynamic", 2), ("fixed", 3)])
def test_updated_rows_have_the_numbers_of_numpy_and_others_their_first_values(kind, num_ps):
    """Adagrad on rows that overlap from update to update; the number of ps makes no difference to any value."""
    with ShardedTable(rules.Adagrad(0.5), num_ps, dim=3, **_KINDS[kind]) as table:
        ids, random = np.arange(100), np.random.default_rng(0)
        values = table.reset().values(ids)
        sums = np.full([100, 3], 0.1)
        for _ in range(3):
            touched = random.permutation(100)[:60]
            gradients = random.normal(size=[60, 3]).astype(np.float32)
            table.update(touched, gradients)
            sums[touched] += gradients**2
            values[touched] -= 0.5 * gradients / np.sqrt(sums[touched])
        np.testing.assert_allclose(table.values(ids), values, atol=1e-6)
        np.testing.assert_allclose(table.rows(ids), np.concatenate([values, sums], 1), rtol=1e-5, atol=1e-6)
        assert sum(table.counts(ps)["used"] for ps in range(num_ps)) == len(np.unique(np.nonzero(sums[:, 0] > 0.1)))


def test_first_values_follow_from_table_and_id_alone():
    """Uniform in the limits, other ones for each id, column and table; the same on 1 and on 3 ps, fixed or dynamic."""
    ids = np.arange(2000)
    found = {}
    for case, (num_ps, options) in {"a": (1, {}), "b": (3, {}), "c": (2, {"num_rows": 2000})}.items():
        with ShardedTable(_SGD, num_ps, dim=4, initial_limit=0.5, **options) as table:
            found[case] = table.reset().values(ids)
    np.testing.assert_array_equal(found["a"], found["b"])
    np.testing.assert_array_equal(found["a"], found["c"])
    assert len(np.unique(found["a"])) > 0.99 * found["a"].size
    assert found["a"].min() >= -0.5 and found["a"].max() < 0.5
    np.testing.assert_allclose(found["a"].mean(0), 0, atol=0.04)
    np.testing.assert_allclose(found["a"].std(0), 0.5 / np.sqrt(3), rtol=0.05)
    assert np.abs(np.corrcoef(found["a"].T) - np.eye(4)).max() < 0.1
    with ShardedTable(_SGD, dim=4, name="users", initial_limit=0.5) as other:
        assert np.abs(np.corrcoef(other.reset().values(ids).ravel(), found["a"].ravel())[0, 1]) < 0.05


def test_a_batch_without_ids_counts_as_an_update_and_changes_nothing():
    """So all ps of a table have had the same number of updates, including those without rows in them."""
    with ShardedTable(_SGD) as table:
        table.reset().update([], np.zeros([0, 2]))
        assert table.values([]).shape == (0, 2)
        assert (table.counts()["updates"], table.counts()["used"]) == (1, 0)


def test_a_dynamic_table_takes_any_id():
    """Negative ones and hashes of 63 bits."""
    with ShardedTable(_SGD, num_ps=2) as table:
        ids = [0, -1, -2, _FAR, -_FAR, 2**63 - 1, -2**63 + 2]
        before = table.reset().values(ids)
        table.update(ids, _ones(ids))
        np.testing.assert_allclose(table.values(ids), before - 1, rtol=1e-6)


def test_an_id_gets_a_row_when_it_was_seen_often_enough():
    """With min_count=3, an id keeps its first value for two updates; other ids do not count for it."""
    with ShardedTable(_SGD, min_count=3) as table:
        before = table.reset().values([7, 8])
        for expected in (0, 0, 1):
            table.update([7], _ones([7]))
            np.testing.assert_allclose(table.values([7, 8]), before - [[expected], [0]], rtol=1e-6)
        assert {name: table.counts()[name] for name in ("updates", "used", "admitted", "hits", "misses")} == {
            "updates": 3, "used": 1, "admitted": 1, "hits": 0, "misses": 3}


@pytest.mark.parametrize("bit", [22, 44, 48, 60])
def test_ids_with_a_field_in_some_bits_do_not_count_for_each_other(bit):
    """26 fields with 1000 ids each: none gets a row when it is seen first, as they share few of the counters."""
    ids = np.concatenate([np.arange(1000) + (field << bit) for field in range(min(26, 2**(63 - bit)))])
    with ShardedTable(_SGD, min_count=3) as table:
        table.reset().update(ids, _ones(ids))
        assert table.counts()["admitted"] == 0
        table.update(ids, _ones(ids))
        assert table.counts()["admitted"] < len(ids) / 100
        table.update(ids, _ones(ids))
        assert table.counts()["admitted"] == len(ids)


def test_a_full_table_refuses_new_ids_and_goes_on_with_the_others():
    """Of 6 new ids, 4 get rows; the refused ones keep their first values."""
    with ShardedTable(_SGD, max_rows=4) as table:
        ids = np.arange(6)
        before = table.reset().values(ids)
        table.update(ids, _ones(ids))
        table.update(ids, _ones(ids))
        taken = (before - table.values(ids))[:, 0]
        np.testing.assert_allclose(sorted(taken), [0, 0, 2, 2, 2, 2], atol=1e-6)
        assert (table.counts()["used"], table.counts()["refused"]) == (4, 4)


@pytest.mark.parametrize("spec", [{"max_rows": 3_000_000_000}, {"num_rows": 3_000_000_000}])
def test_more_rows_than_a_ps_can_hold_are_refused_when_the_graph_is_built(spec):
    """TensorFlow would refuse them when the servers run; on two ps there is room."""
    (what, _), = spec.items()
    with raises("table_too_large") as caught:
        ShardedTable(_SGD, **spec)
    assert f"{what}=3000000000 is 3000000000 rows on each ps; allowed: at most 2147483647; use 2 or more ps" \
        in str(caught.value)
    with ShardedTable(_SGD, num_ps=2, **spec) as table:
        assert {ops.capacity for ops in table.ops} == {1_500_000_000}


def test_a_process_that_only_reads_refuses_the_rows_of_a_fixed_table_alone():
    """max_rows is a limit of all ps together, and a checkpoint may have fewer rows."""
    with ShardedTable(rules.Frozen(0.0), max_rows=3_000_000_000):
        pass
    with raises("table_too_large"):
        ShardedTable(rules.Frozen(0.0), num_rows=3_000_000_000)


def test_a_dropped_row_is_reused_and_its_id_starts_again():
    """The value and the slots of the row's previous id are not seen again; ids that stay keep theirs."""
    with ShardedTable(rules.Adagrad(1.0), max_rows=4) as table:
        first = table.reset().rows(np.arange(8))
        table.update([0, 1, 2, 3], _ones(range(4)))
        table.update([3], _ones([3]))
        kept = table.rows([3])
        table.drop_before(2)
        np.testing.assert_array_equal(table.rows([0, 1, 2]), first[:3])
        np.testing.assert_array_equal(table.rows([3]), kept)
        table.update([4, 5, 6, 7], _ones(range(4)))
        assert {name: table.counts()[name] for name in ("used", "free", "evicted", "admitted", "refused")} == {
            "used": 4, "free": 0, "evicted": 3, "admitted": 7, "refused": 1}
        np.testing.assert_allclose(table.rows([4, 5, 6])[:, 2:], 1.1, rtol=1e-6)
        np.testing.assert_array_equal(table.rows([3]), kept)


def test_a_table_outlives_any_number_of_dropped_rows():
    """The hash table of TensorFlow fails when all its buckets have had an id: here after 17 of these 40 rounds."""
    with ShardedTable(_SGD, max_rows=5000) as table:
        table.reset()
        table.update([-5], _ones([-5]))
        stays = table.values([-5])
        for number in range(1, 41):
            ids = np.arange(1000) + number * 1000
            table.update(np.append(ids, -5), np.append(_ones(ids), [[0.0, 0.0]], 0))
            table.drop_before(table.counts()["updates"])
            np.testing.assert_array_equal(table.values([-5]), stays)
            assert table.values(ids + 10**9).shape == (1000, 2)
        assert table.counts()["evicted"] == 39_000
        assert table.counts()["removed"] < 5000


@pytest.mark.parametrize("kind", _KINDS.values(), ids=_KINDS)
def test_rows_live_on_when_the_number_of_updates_is_no_int32_any_more(kind):
    """They keep their values, are written to a delta, and are not taken for old; a row of before is."""
    with ShardedTable(_SGD, **kind) as table:
        [ops], ids = table.ops, np.arange(4)
        first = table.reset().values(ids)
        table.update([0], _ones([0]))
        ops.set_updates(table.session, 2**31 - 3)
        for touched in ([1], [1, 2], [2], [2], [3]):  # the numbers 2^31 - 2 to 2^31 + 2
            table.update(touched, _ones(touched))
        np.testing.assert_allclose(table.values(ids), first - [[1], [2], [3], [1]])
        updates = table.counts()["updates"]
        assert updates == 2**31 + 2
        if not kind:
            table.drop_before(updates - 1)
            np.testing.assert_allclose(table.values(ids), first - [[0], [2], [3], [1]])
        rows = [table.session.run(ops._count, {ops._begin: 0, ops._end: 4, ops._since: 2**31 - 2})]
        assert rows == [3]
        assert ops.ranges(table.session, table.counts(), updates) and ops.save_call("", "", (0, 1), updates)


def test_a_table_whose_rows_no_longer_age_is_named_once(caplog):
    """The chief looks every few seconds."""
    for updates in (2**31 - 1, 2**31, 2**31 + 5):
        upkeep.warn_of_age({"items": [{"updates": 7}, {"updates": updates}], "others": [{"updates": 3}]})
    [message] = caplog.messages
    assert message.startswith("table items has had more than 2,147,483,647 updates")


@pytest.mark.parametrize("kind", _KINDS.values(), ids=_KINDS)
def test_a_reset_table_has_first_values_again(kind):
    """Rows, slots and counts are as in a new one."""
    with ShardedTable(rules.Adagrad(1.0), **kind) as table:
        before, counts = table.reset().rows([1, 2, 3]), table.counts()
        table.update([1, 2], _ones([1, 2]))
        np.testing.assert_array_equal(table.reset().rows([1, 2, 3]), before)
        assert table.counts() == counts


def _num_buckets(table):
    """Returns the buckets in the index of a dynamic table on ps 0."""
    with table.session.graph.as_default() as graph:
        (index,) = [op for op in graph.get_operations() if op.type == "MutableDenseHashTableV2"
                    and op.get_attr("shared_name") == b"ps_train/table/items/0/index"]
        made = tf.raw_ops.LookupTableExportV2(table_handle=index.outputs[0], Tkeys=tf.int64, Tvalues=tf.int64)
    return table.session.run(tf.shape(made.keys))[0]


def test_the_index_of_a_table_whose_rows_are_expected_does_not_grow():
    """It is made as large as it needs to be, and not larger; a second reset makes it so, too. More ids let it grow."""
    sizes = {}
    for name, expected in {"expected": {"expected_rows": 60_000}, "unexpected": {}}.items():
        with ShardedTable(_SGD, num_ps=2, **expected) as table:
            sizes[name] = [_num_buckets(table.reset())]
            for _ in range(2):
                for begin in range(0, 60_000, 2000):
                    table.update(np.arange(begin, begin + 2000), _ones(range(2000)))
                sizes[name].append(_num_buckets(table))
                assert table.values([59_999])[0, 0] < -0.9
                table.reset()
            table.update(np.arange(120_000), _ones(range(120_000)))
            sizes[f"{name}, more"] = _num_buckets(table)
    size = 2**16
    assert sizes == {"expected": [size] * 3, "expected, more": 2 * size,
                     "unexpected": [2**14, size, size], "unexpected, more": 2 * size}


def _resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_table_with_room_for_4_gb_takes_only_the_memory_of_its_rows():
    """Nothing copies or fills a whole table: not a second reset, an update, a read or the dropping of rows."""
    with ShardedTable(_SGD, dim=16) as table:
        table.reset().update([1, 2], _ones([1, 2], 16))
        before = _resident_bytes()
        table.reset()
        for _ in range(2):
            table.update(np.arange(1000), _ones(range(1000), 16))
            table.values(np.arange(2000))
            table.drop_before(1)
        assert _resident_bytes() - before < 100e6


def test_local_steps_of_several_workers_are_merged_by_the_rule():
    """Adagrad's sums add up; Adam's moments are those of the last worker, and its values the sum of all changes."""
    for rule, takes_last in ((rules.Adagrad(0.1), False), (rules.Adam(0.1), True)):
        with ShardedTable(rule) as table:
            before = table.reset().rows([3])
            changes = np.random.default_rng(0).uniform(size=[2, 1, table.width])
            for one in changes:
                table.merge([3], one)
            slots = changes[-1][:, 2:] if takes_last else (before + changes.sum(0))[:, 2:]
            values = (before + changes.sum(0))[:, :2]
            np.testing.assert_allclose(table.rows([3]), np.concatenate([values, slots], 1), rtol=1e-5)


def test_ftrls_value_follows_from_its_merged_sums():
    """The value of merged rows is that of Ftrl's formula, not a sum of changes."""
    with ShardedTable(rules.Ftrl(0.5, l1=0.1)) as table:
        table.reset()
        for change in ([0, 0, 1, 1, 2, -2], [0, 0, 0.5, 0.5, 1, -1]):
            table.merge([3], [change])
        expected = -np.sign([3, -3]) * (3 - 0.1) / (np.sqrt(1.6) / 0.5)
        np.testing.assert_allclose(table.rows([3]), [[*expected, 1.6, 1.6, 3, -3]], rtol=1e-5)


@pytest.mark.parametrize("kind", _KINDS.values(), ids=_KINDS)
def test_two_sessions_on_the_same_rows_lose_no_update(start_servers, kind):
    """Each takes 1 from each of 50 rows 40 times; half of the ids are new to both. Readers see no row half made."""
    cluster = start_servers(1, 1)
    ids, wrong = np.arange(50), []
    tables = [ShardedTable(_SGD, target=cluster.target("ps", 0), device="/job:ps/task:0/cpu:0", initial_limit=0.25,
                           **kind) for _ in range(2)]
    tables[0].reset()
    first = tables[0].values(ids)

    def take_from(table):
        for _ in range(40):
            table.update(ids, _ones(ids))
            taken = (first - table.values(ids)).round(3)
            if not (np.isin(taken, range(81)).all() and (taken >= 1).all()):
                wrong.append(taken)

    threads = [threading.Thread(target=take_from, args=[table], daemon=True) for table in tables]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    np.testing.assert_allclose(tables[0].values(ids), first - 80, rtol=1e-6)
    assert not wrong
    assert tables[0].counts()["used"] == 50
    for table in tables:
        table.session.close()


def test_a_new_value_may_follow_from_the_old_one():
    """As the ids of a round of local steps, which begin with those that the copy has when it is emptied."""
    with tf.Graph().as_default(), tf.Session() as session:
        numbers = index.make_variable("numbers", tf.int64, [None])
        session.run(numbers.initializer)
        session.run(index.replace_value(numbers, tf.constant([1, 2], tf.int64)))
        slow = tf.py_func(lambda: np.int64(3), [], tf.int64)  # the old value is read after what needs Python
        with tf.control_dependencies([slow]):
            more = tf.concat([index.read_whole(numbers), [slow]], 0)
        session.run(index.replace_value(numbers, more))
        assert session.run(index.read_whole(numbers)).tolist() == [1, 2, 3]
