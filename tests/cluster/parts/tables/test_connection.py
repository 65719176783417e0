"""The lookups of a step: what the model reads, and the gradients that come back, against TensorFlow's own lookups."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import connection, registry
from ps_train.parts.tables.rules import Sgd
from tests.cluster.parts.tables.lookups import Model
from tests.errors import raises
from tests.tensorflow_mode import tf


def _dense_rows(names_and_ids, dim):
    """Returns the first values of fixed tables as arrays, by name."""
    found = {}
    for name, count in names_and_ids.items():
        def build(name=name, count=count):
            found[name] = ps_train.embedding_table(name, dim[name], num_rows=count).lookup(np.arange(count))
            return tf.reduce_sum(found[name])
        with Model(build) as session:
            found[name] = session.run(found[name])
    return found


@pytest.mark.parametrize("num_ps, sorts_ids", [(1, True), (2, False), (3, True)])
def test_lookups_of_several_tables_give_the_values_and_gradients_of_dense_ones(num_ps, sorts_ids):
    """Three tables of two widths, one of them shared by two features, with ids that come more than once."""
    dims, sizes = {"a": 2, "b": 3, "c": 2}, {"a": 7, "b": 5, "c": 9}
    dense = _dense_rows(sizes, dims)
    random = np.random.default_rng(num_ps)
    features = [("a", random.integers(0, 7, [4, 3])), ("b", random.integers(0, 5, [6])), ("a", np.array(6)),
                ("c", np.zeros([0, 2], np.int64)), ("b", random.integers(0, 5, [2, 2, 1]))]
    weights = [random.normal(size=[*ids.shape, dims[name]]).astype(np.float32) for name, ids in features]

    def loss_of(rows):
        return tf.add_n([tf.reduce_sum(tf.square(one) * weight) for one, weight in zip(rows, weights)])

    found = []

    def build():
        tables = {name: ps_train.embedding_table(name, dim, num_rows=sizes[name]) for name, dim in dims.items()}
        found.extend(tables[name].lookup(tf.constant(ids)) for name, ids in features)
        return loss_of(found)

    model = Model(build, num_ps, sorts_ids)
    with model as session:
        for one, (name, ids) in zip(session.run(found), features):
            np.testing.assert_array_equal(one, dense[name][ids])
        pushed = session.run(model.gradients)
        for one in pushed:
            assert len(set(one.indices)) == len(one.indices)
            assert not sorts_ids or list(one.indices) == sorted(one.indices)
        session.run(model.train_op)
        after = session.run(found)
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {name: tf.get_variable(name, initializer=value) for name, value in dense.items()}
        train_op = tf.train.GradientDescentOptimizer(1.0).minimize(
            loss_of([tf.nn.embedding_lookup(variables[name], ids) for name, ids in features]))
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        expected = session.run(variables)
    for one, (name, ids) in zip(after, features):
        np.testing.assert_allclose(one, expected[name][ids], atol=1e-6)


_SPARSE_CASES = {"sum": ("sum", False), "mean": ("mean", False), "sqrtn": ("sqrtn", False),
                 "weighted sum": ("sum", True), "weighted mean": ("mean", True), "weighted sqrtn": ("sqrtn", True)}


@pytest.mark.parametrize("combiner, is_weighted", _SPARSE_CASES.values(), ids=_SPARSE_CASES)
def test_lookup_sparse_gives_the_numbers_of_embedding_lookup_sparse(combiner, is_weighted):
    """With ids that a row has twice, an empty row in the middle, and one at the end, which TensorFlow leaves out."""
    (dense,) = _dense_rows({"items": 6}, {"items": 3}).values()
    indices = np.array([[0, 0], [0, 1], [0, 2], [2, 0], [3, 1]], np.int64)
    ids, weights = np.array([5, 1, 5, 0, 2]), np.array([0.5, 2.0, 1.0, 3.0, 0.25], np.float32)
    found = []

    def build():
        sp_ids, sp_weights = (tf.SparseTensor(indices, values, [5, 3]) for values in (ids, weights))
        table = ps_train.embedding_table("items", 3, num_rows=6)
        found.append(table.lookup_sparse(sp_ids, sp_weights if is_weighted else None, combiner))
        variable = tf.constant(dense)
        found.append(tf.nn.embedding_lookup_sparse(variable, sp_ids, sp_weights if is_weighted else None,
                                                   combiner=combiner))
        found.append(tf.gradients(tf.reduce_sum(tf.square(found[1])), variable)[0])
        return tf.reduce_sum(tf.square(found[0]))

    model = Model(build)
    with model as session:
        assert found[0].shape == [5, 3]
        own, tensorflows, expected = session.run(found)
        np.testing.assert_allclose(own[:4], tensorflows, rtol=1e-5)
        np.testing.assert_array_equal(own[[1, 4]], np.zeros([2, 3]))
        (gradient,) = session.run(model.gradients)
        by_id = np.zeros([6, 3])
        by_id[gradient.indices] = gradient.values
        np.testing.assert_allclose(by_id, expected.toarray() if hasattr(expected, "toarray") else _dense(expected),
                                   rtol=1e-5, atol=1e-8)


def _dense(slices):
    """Returns IndexedSlices values of 6 rows as an array."""
    found = np.zeros([6, 3])
    np.add.at(found, slices.indices, slices.values)
    return found


def test_a_batch_of_sparse_ids_may_be_empty():
    """Every example is zeros, and an update goes through."""
    found = []

    def build():
        sp_ids = tf.SparseTensor(np.zeros([0, 2], np.int64), np.zeros([0], np.int64), [3, 0])
        found.append(ps_train.embedding_table("items", 2).lookup_sparse(sp_ids))
        return tf.reduce_sum(found[0])

    model = Model(build, num_ps=2, sorts_ids=True)
    with model as session:
        np.testing.assert_array_equal(session.run(found[0]), np.zeros([3, 2]))
        session.run(model.train_op)


def test_strings_and_several_hashes():
    """A string has one row of a dynamic table, and the sum of several rows of a fixed one; both are learnt."""
    found = []

    def build():
        words = tf.constant([["tea", "coffee"], ["", "tea"]])
        found.append(ps_train.embedding_table("words", 4).lookup(words))
        hashed = ps_train.embedding_table("hashed", 4, num_rows=50, num_hashes=3)
        found.append(hashed.lookup(words))
        found.append(hashed.lookup(tf.constant([[7, 8], [9, 7]])))
        return tf.add_n([tf.reduce_sum(one) for one in found])

    model = Model(build, num_ps=2)
    with model as session:
        for one in session.run(found):
            np.testing.assert_array_equal(one[0, 0], one[1, 1])
            assert len(np.unique(one[..., 0])) == 3
        before = session.run(found)
        session.run(model.train_op)
        assert all((one < other).all() for one, other in zip(session.run(found), before))


def test_ids_of_unknown_rank_and_of_every_integer_type():
    """A placeholder without a shape gets rows of the ids' shape."""
    found = []

    def build():
        table = ps_train.embedding_table("items", 2, num_rows=9)
        ids = tf.placeholder(tf.int64, None)
        found.extend([ids, table.lookup(ids), table.lookup(tf.constant([[1]], tf.int32)),
                      table.lookup(tf.constant([1], tf.uint8)), table.lookup([1])])
        hashed = ps_train.embedding_table("hashed", 2, num_rows=9, num_hashes=2)
        found.append(hashed.lookup(ids))
        return tf.add_n([tf.reduce_sum(one) for one in found[1:]])

    model = Model(build)
    with model as session:
        for value in (1, [1], [[[1, 2]]], []):
            rows, *others, hashed = session.run(found[1:], {found[0]: value})
            assert rows.shape == hashed.shape == (*np.shape(value), 2)
            assert all((other == others[0]).all() for other in others)
        session.run(model.train_op, {found[0]: [[1, 2]]})


def _bad_ids(build, ids):
    placeholders = []

    def whole():
        placeholders.append(tf.placeholder(tf.int64, [None], name="clicks"))
        return tf.reduce_sum(build(placeholders[0]))

    model = Model(whole, num_ps=2)
    with model as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(model.train_op, {placeholders[0]: ids})
    with raises("bad_id") as explained:
        connection.raise_if_bad_id(caught.value, "worker:0")
    return str(explained.value)


def test_an_id_out_of_range_is_named_with_its_feature():
    """The line has table, feature, id and what is allowed; the feature has the name that the lookup was given."""
    def fixed(ids):
        return ps_train.embedding_table("items", 2, num_rows=10).lookup(ids)

    def named(ids):
        return ps_train.embedding_table("a/b", 2, num_rows=10).lookup(ids, name="clicked [items]")

    def dynamic(ids):
        return ps_train.embedding_table("items", 2).lookup(ids)

    for build, ids, expected in (
            (fixed, [3, 10, 4], "table items: clicks has the id 10; allowed: 0 to 9"),
            (fixed, [3, -4], "table items: clicks has the id -4; allowed: 0 to 9"),
            (named, [11], "table a/b: clicked [items] has the id 11; allowed: 0 to 9"),
            (dynamic, [-2**63], f"table items: clicks has the id {-2**63}; allowed: above {-2**63 + 1}")):
        assert _bad_ids(build, ids).startswith(f"worker:0: {expected}; ")


def test_another_error_is_not_taken_for_a_bad_id():
    """Its message has no mark."""
    connection.raise_if_bad_id(tf.errors.InvalidArgumentError(None, None, "assertion failed: [items] [3]"), "worker:0")


def _bad_weights(weights, indices):
    """Returns the line about these weights of three ids."""
    found = []

    def build():
        found.extend([tf.sparse.placeholder(tf.int64, name="friends"), tf.sparse.placeholder(tf.float32)])
        return tf.reduce_sum(ps_train.embedding_table("items", 2).lookup_sparse(*found, combiner="sum"))

    model = Model(build)
    feed = {"ids": tf.SparseTensorValue([[0, 0], [0, 1], [2, 0]], [5, 6, 7], [3, 2]),
            "weights": tf.SparseTensorValue(np.reshape(indices, [-1, 2]), weights, [3, 2])}
    with model as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run([model.loss, model.train_op], dict(zip(found, feed.values())))
    with raises("bad_weights") as explained:
        connection.raise_if_bad_id(caught.value, "worker:0")
    return str(explained.value)


_WRONG_WEIGHTS = {
    "one": ([1.0], [[0, 0]], "3 ids and 1 weights"),
    "none": ([], [], "3 ids and 0 weights"),
    "too many": ([1.0] * 4, [[0, 0], [0, 1], [2, 0], [2, 1]], "3 ids and 4 weights"),
    "elsewhere": ([1.0] * 3, [[0, 0], [1, 0], [2, 0]], "3 ids and weights at other indices"),
}


@pytest.mark.parametrize("weights, indices, expected", _WRONG_WEIGHTS.values(), ids=_WRONG_WEIGHTS)
def test_weights_that_are_not_those_of_the_ids_stop_the_step(weights, indices, expected):
    """TensorFlow would spread a single weight over all ids. The line has table, feature and the two numbers."""
    assert _bad_weights(weights, indices).startswith(f"worker:0: table items: friends/values has {expected}; ")


def test_ragged_ids_have_the_rows_of_dense_and_sparse_ones():
    """A lookup gives a RaggedTensor, and a sparse lookup takes one, with weights; both are learnt."""
    found = []

    def build():
        ids, weights = (tf.ragged.constant(values) for values in ([[1, 2], [], [3]], [[0.5, 1.0], [], [2.0]]))
        table = ps_train.embedding_table("items", 2, num_rows=9)
        found.extend([table.lookup(ids).to_tensor(), table.lookup([[1, 2], [3, 3]]), table.lookup_sparse(ids),
                      table.lookup_sparse(ids, weights, combiner="sum"),
                      table.lookup_sparse(ids.to_sparse(), weights, combiner="sum"),
                      table.lookup(tf.ragged.constant_value([[1, 2], [], [3]])).to_tensor(),
                      table.lookup_sparse(tf.ragged.constant_value([[1, 2], [], [3]]))])
        return tf.reduce_sum(found[0])

    model = Model(build)
    with model as session:
        ragged, dense, mean, weighted, mixed, of_value, mean_of_value = session.run(found)
        np.testing.assert_array_equal(ragged[0], dense[0])
        np.testing.assert_array_equal(ragged[2], [dense[1, 0], [0, 0]])
        np.testing.assert_allclose(mean, [dense[0].mean(0), [0, 0], dense[1, 0]], rtol=1e-6)
        np.testing.assert_allclose(weighted, [dense[0, 0] / 2 + dense[0, 1], [0, 0], 2 * dense[1, 0]], rtol=1e-6)
        np.testing.assert_array_equal(mixed, weighted)
        np.testing.assert_array_equal(of_value, ragged)
        np.testing.assert_array_equal(mean_of_value, mean)
        (gradient,) = session.run(model.gradients)
        np.testing.assert_array_equal(gradient.values, np.ones([3, 2]))


def _in_cond(table):
    return tf.cond(tf.constant(True), lambda: table.lookup([1]), lambda: tf.zeros([1, 2]))


def _in_while(table):
    return tf.while_loop(lambda x: tf.reduce_sum(x) < 1.0, lambda x: x + table.lookup([1]), [tf.zeros([1, 2])])


def _in_function(table):
    return tf.function(lambda: table.lookup([1]))()


def _in_map(table):
    return tf.map_fn(lambda one: table.lookup(one), tf.constant([1]), dtype=tf.float32)


@pytest.mark.parametrize("build", [_in_cond, _in_while, _in_function, _in_map])
def test_a_lookup_in_a_branch_a_loop_or_a_function_is_refused(build):
    """Its operations are in another graph, or run any number of times."""
    with tf.Graph().as_default():
        registry.install_registry([""], Sgd(1.0)).begin_build()
        table = ps_train.embedding_table("items", 2)
        with raises("lookup_in_control_flow"):
            build(table)


@pytest.mark.parametrize("build", [lambda table: table.lookup([1]), _in_cond, _in_function])
def test_a_table_that_is_kept_from_another_graph_is_refused(build):
    """Issue: of one that was made at import, the error was that of a loop, and no lookup was in one."""
    with tf.Graph().as_default():
        table = ps_train.embedding_table("items", 2)
    with tf.Graph().as_default():
        registry.install_registry([""], Sgd(1.0)).begin_build()
        with raises("table_of_another_graph"):
            build(table)


_OF_ROWS = {
    "the argmax": lambda rows, ids: tf.argmax(rows, axis=-1),
    "through a loop": lambda rows, ids: tf.cast(tf.while_loop(
        lambda x: tf.reduce_sum(x) < 1.0, lambda x: x + 1.0, [rows])[:, 0], tf.int64),
    "a condition": lambda rows, ids: tf.cond(tf.reduce_sum(rows) > 0, lambda: ids, lambda: ids + 1),
    "the rows first": lambda rows, ids: _after(rows, ids),
}


def _after(rows, ids):
    with tf.control_dependencies([rows]):
        return tf.identity(ids)


@pytest.mark.parametrize("choose", _OF_ROWS.values(), ids=_OF_ROWS)
def test_ids_that_depend_on_looked_up_rows_are_refused(choose):
    """In another table or the same one: the rows of all ids of a step travel at once."""
    for other in ("groups", "users"):
        with tf.Graph().as_default():
            ids = tf.placeholder(tf.int64, [None])
            registry.install_registry([""], Sgd(1.0)).begin_build({"user": ids})
            tables = {name: ps_train.embedding_table(name, 2) for name in ("groups", "users")}
            rows = tables["users"].lookup(ids)
            tables["users"].lookup(ids + 1)
            with raises("ids_from_rows") as caught:
                tables[other].lookup(choose(rows, ids), name="best")
            assert str(caught.value).startswith(f"table {other}: the ids of best depend on the rows of user in")


def test_weights_may_depend_on_looked_up_rows():
    """As those of an attention."""
    found = []

    def build():
        table = ps_train.embedding_table("items", 2, num_rows=4)
        rows = table.lookup(tf.constant([1, 2], tf.int64))
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([1, 2], tf.int64), [1, 2])
        weights = tf.SparseTensor(ids.indices, tf.reduce_sum(rows, 1), [1, 2])
        found.extend([rows, table.lookup_sparse(ids, weights, "sum")])
        return tf.reduce_sum(found[1])

    with Model(build) as session:
        rows, combined = session.run(found)
    np.testing.assert_allclose(combined, [(rows * rows.sum(1, keepdims=True)).sum(0)], rtol=1e-5)


def test_rows_looked_up_outside_may_be_used_in_a_branch():
    """Their gradients come through it."""
    def build():
        rows = ps_train.embedding_table("items", 2, num_rows=4).lookup([1, 2])
        return tf.cond(tf.reduce_sum(rows) < 1e6, lambda: tf.reduce_sum(rows * 3), lambda: tf.constant(0.0))

    model = Model(build)
    with model as session:
        (gradient,) = session.run(model.gradients)
        np.testing.assert_array_equal(gradient.values, np.full([2, 2], 3.0))


def test_a_table_that_the_loss_does_not_depend_on_gets_no_gradient():
    """Rows that are looked up and not learnt stay as they are; those of other tables are learnt."""
    found = []

    def build():
        found.extend(ps_train.embedding_table(name, 2, num_rows=4).lookup([1, 2]) for name in ("given", "learnt"))
        return tf.reduce_sum(tf.stop_gradient(found[0]) * found[1])

    model = Model(build, num_ps=2)
    with model as session:
        given, learnt = session.run(found)
        session.run(model.train_op)
        np.testing.assert_array_equal(session.run(found[0]), given)
        np.testing.assert_allclose(session.run(found[1]), learnt - given, rtol=1e-6)


def test_rows_may_go_through_recompute_grad():
    """It looks for the variables that a function reads. A table is none."""
    found = {}

    def build(wrap):
        ids = tf.constant([1, 2, 2], tf.int64)
        found[wrap] = rows = ps_train.embedding_table("items", 2, initial_limit=0.5).lookup(ids)
        weights = tf.get_variable("weights", [2, 2], initializer=tf.ones_initializer())
        return tf.reduce_sum(tf.square(wrap(lambda given: tf.tanh(tf.matmul(given, weights)))(rows) - 1))

    learnt = []
    for wrap in (tf.recompute_grad, lambda function: function):
        model = Model(lambda wrap=wrap: build(wrap), num_ps=2)
        with model as session:
            with model.graph.as_default():
                session.run(tf.global_variables_initializer())
            model.tables.reset(session)
            session.run(model.train_op)
            learnt.append(session.run(found[wrap]))
    np.testing.assert_allclose(*learnt, rtol=1e-6)
