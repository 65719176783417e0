"""DeepRec's columns, names about speed, and the size of its graph; run by test_deeprec.py in a child process."""
# ruff: noqa: PLC0415 (these tests check imports)

from __future__ import annotations

import numpy as np
import pytest

from ps_train.errors import UserCodeError
from tests.cluster.parts.legacy.deeprec.deeprec_child import DIM, new_graph, tf  # installs the names

assert new_graph  # a fixture: each test has a graph of its own


def column(key, dtype=tf.int64, **kwargs):
    return tf.feature_column.categorical_column_with_embedding(key, dtype=dtype, **kwargs)


def run(*fetches):
    """Initialises everything, and returns the values."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_a_linear_model_has_a_table_of_weights():
    """Weights begin with zeros; Ftrl moves those of the ids in the batch, and no others."""
    features = {"a": tf.constant([[1], [2]], tf.int64), "b": tf.constant([[0.5], [1.0]])}
    logits = tf.feature_column.linear_model(features, [column("a"), tf.feature_column.numeric_column("b")])
    train_op = tf.train.FtrlOptimizer(0.1).minimize(tf.reduce_sum(tf.square(logits - 1)))
    (variable,) = [found for found in tf.trainable_variables() if "/a/" in found.name]
    rows = tf.nn.embedding_lookup(variable, tf.constant([1, 2, 3], tf.int64))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([logits, rows])[0].tolist() == [[0.0], [0.0]]
        session.run(train_op)
        after = session.run(rows)[:, 0]
    assert after[0] > 0 and after[1] > 0 and after[2] == 0


def test_columns_share_a_variable():
    """An id has the same row in both, also in a second layer and in PAI's form, which names the variable."""
    make = tf.feature_column.shared_embedding_columns
    shared = make([column("a"), column("b")], DIM, do_fusion=True)
    named = [tf.feature_column.shared_embedding_column(column(key), DIM, "ids", coalesced_scope=None) for key in "ab"]
    features = {"a": tf.constant([[7], [8]], tf.int64), "b": tf.constant([[8], [7]], tf.int64)}
    nets = [tf.feature_column.input_layer(features, columns) for columns in (shared, named, shared)]
    for first, second in (np.split(net, 2, axis=1) for net in run(*nets)):
        assert np.array_equal(first, second[::-1]) and np.abs(first).sum() > 0
    assert len(tf.get_collection("ps_train/embedding_variables")) == 2
    with pytest.raises(UserCodeError, match="all with them, or none"):
        make([column("a"), tf.feature_column.categorical_column_with_hash_bucket("b", 10)], DIM)


def test_a_column_of_sequences_has_a_row_for_each_step():
    """And zeros behind a sequence; with weights, an example has the weighted mean."""
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([5, 6, 5], tf.int64), [2, 2])
    sequences = tf.feature_column.embedding_column(
        tf.feature_column.sequence_categorical_column_with_embedding("a", dtype=tf.int64), DIM)
    net, lengths = tf.contrib.feature_column.sequence_input_layer({"a": ids}, [sequences])
    weighted = tf.feature_column.embedding_column(
        tf.feature_column.weighted_categorical_column(column("b"), "w"), DIM, initializer=tf.ones_initializer())
    weights = tf.SparseTensor(ids.indices, [3.0, 1.0, 2.0], [2, 2])
    mean = tf.feature_column.input_layer({"b": ids, "w": weights}, [weighted])
    net, lengths, mean = run(net, lengths, mean)
    assert lengths.tolist() == [2, 1] and net.shape == (2, 2, DIM)
    assert np.array_equal(net[0, 0], net[1, 0]) and not net[1, 1].any() and np.abs(net[0, 1]).sum() > 0
    np.testing.assert_allclose(mean, np.ones([2, DIM]), rtol=1e-6)


def clipped_step(variable, how):
    """Takes a step on 8 examples with an id 3, clipped to the norm 1; returns the norm, and row 3 after it."""
    from tensorflow.python.ops.embedding_ops import fused_safe_embedding_lookup_sparse

    sp_ids = tf.SparseTensor([[example, 0] for example in range(8)] + [[7, 1]], tf.constant([3] * 8 + [2], tf.int64),
                             [8, 2])
    rows = {"sparse": lambda: tf.nn.embedding_lookup_sparse(variable, sp_ids, None, combiner="sum"),
            "safe": lambda: tf.nn.safe_embedding_lookup_sparse(variable, sp_ids, combiner="sqrtn"),
            "twice": lambda: [tf.nn.embedding_lookup_sparse(variable, sp_ids, None, combiner="mean") for _ in range(2)],
            "fused": lambda: (tf.nn.embedding_lookup_sparse if isinstance(variable, tf.Variable) else
                              fused_safe_embedding_lookup_sparse)(variable, sp_ids, None, combiner="sum"),
            "dense": lambda: tf.nn.embedding_lookup(variable, sp_ids.values)}[how]()
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    gradients, variables = zip(*optimizer.compute_gradients(tf.reduce_sum(rows)))
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    step = optimizer.apply_gradients(zip(clipped, variables))
    row = tf.nn.embedding_lookup(variable, tf.constant([3], tf.int64))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run([norm, step])[0], session.run(row)[0]


@pytest.mark.parametrize("how", ["sparse", "safe", "twice", "fused", "dense"])
def test_clipping_sees_the_norm_that_a_variable_has(how):
    """Issue: a sparse lookup gave a row for each occurrence of an id, whose norm is smaller than that of their sum."""
    ones = tf.ones_initializer()
    with tf.Graph().as_default():
        norm, row = clipped_step(tf.get_variable("v", [5, 2], initializer=ones), how)
    found_norm, found_row = clipped_step(tf.get_embedding_variable("v", 2, initializer=ones), how)
    np.testing.assert_allclose([found_norm, *found_row], [norm, *row], rtol=1e-6)
    assert norm > 4


def test_fused_and_grouped_lookups_are_lookups():
    """Of embedding variables and of plain ones, in scopes and with settings about speed."""
    from tensorflow.python.ops import variable_scope
    from tensorflow.python.ops.embedding_ops import fused_safe_embedding_lookup_sparse

    tf.config.experimental.enable_distributed_strategy(strategy="localized")
    with tf.feature_column.group_embedding_column_scope(name="g"):
        variables = [variable_scope.get_embedding_variable(name, DIM) for name in "ab"]
    plain = tf.get_variable("plain", [9, DIM])
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([5, 6, 5], tf.int64), [3, 2])
    grouped = tf.nn.group_embedding_lookup_sparse([*variables, plain], [ids] * 3, ["mean", "sum", "mean"])
    single = [tf.nn.safe_embedding_lookup_sparse(variable, ids, combiner=combiner)
              for variable, combiner in zip([*variables, plain], ("mean", "sum", "mean"))]
    fused = [fused_safe_embedding_lookup_sparse(embedding_weights=variables[0], sparse_ids=ids, sparse_weights=None),
             tf.nn.fused_embedding_lookup_sparse(variables[1], ids, combiner="sum"), single[2]]
    dense = tf.nn.group_embedding_lookup(variables, [tf.constant([5], tf.int64)] * 2)
    for made in zip(*run(grouped, single, fused)):
        assert np.array_equal(made[0], made[1]) and np.array_equal(made[0], made[2]) and not made[0][1].any()
    assert [rows.shape for rows in run(*dense)] == [(1, DIM)] * 2
    with pytest.raises(UserCodeError, match="allowed: ids for each variable"):
        tf.nn.group_embedding_lookup(variables, [])
    with pytest.raises(UserCodeError, match="collective"):
        tf.config.experimental.enable_distributed_strategy(strategy="collective")


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("has_weights", [False, True])
def test_a_safe_lookup_leaves_out_what_that_of_a_variable_leaves_out(combiner, has_weights):
    """Ids below 0, such as those that fill up a batch, and but for a sum weights that are not above 0."""
    variable = tf.get_embedding_variable("v", DIM)
    rows = tf.nn.embedding_lookup(variable, tf.range(9, dtype=tf.int64))  # as a plain variable
    indices = [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [3, 0]]
    ids = tf.SparseTensor(indices, tf.constant([5, -1, 6, -3, 7, 8], tf.int64), [5, 3])
    weights = tf.SparseTensor(indices, [0.5, 9.0, -2.0, 1.0, 0.0, 3.0], [5, 3]) if has_weights else None
    expected = tf.nn.safe_embedding_lookup_sparse([rows], ids, weights, combiner)
    found = tf.nn.safe_embedding_lookup_sparse(variable, ids, weights, combiner)
    kept = tf.nn.safe_embedding_lookup_sparse(variable, ids, weights, combiner, prune=False)
    expected, found, kept = run(expected, found, kept)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not found[1].any() and kept[1].any()  # DeepRec's `prune`


def test_a_column_of_integers_trains_no_negative_id():
    """In a layer and in a linear model, as one of a vocabulary does."""
    features = {"a": tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, -1, -1], tf.int64), [2, 2])}
    net = tf.feature_column.input_layer(features, [tf.feature_column.embedding_column(column("a"), DIM)])
    logits = tf.feature_column.linear_model(features, [column("a")])
    loss = tf.reduce_sum(tf.square(net - 1)) + tf.reduce_sum(tf.square(logits - 1))
    train_op = tf.train.AdagradOptimizer(0.1).minimize(loss)
    found = [tf.nn.embedding_lookup(variable, tf.constant([1, -1], tf.int64))
             for variable in tf.get_collection("ps_train/embedding_variables")]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(found)
        assert not session.run(net)[1].any()
        session.run(train_op)
        second = session.run(found)
    for before, after in zip(first, second):
        assert (before[0] != after[0]).all() and np.array_equal(before[1], after[1])


def test_arguments_and_fields_about_speed_are_taken():
    """Those of checkpoints, too; the names that are only in other modules; a storage in memory."""
    from tensorflow.core.framework.embedding import config_pb2
    from tensorflow.python.ops import variables
    from tensorflow.python.training import incremental_saver

    config = tf.ConfigProto()
    config.executor_policy = tf.ExecutorPolicy.USE_INLINE_EXECUTOR
    option = tf.EmbeddingVariableOption(
        storage_option=variables.StorageOption(storage_type=config_pb2.StorageType.DRAM))
    variable = tf.get_embedding_variable("v", DIM, ev_option=option)
    rows = tf.nn.embedding_lookup(variable, tf.constant([1], tf.int64))
    assert tf.train.Saver(incremental_save_restore=True, max_to_keep=3).last_checkpoints == []
    with tf.train.MonitoredTrainingSession(config=config, save_incremental_checkpoint_secs=60) as session:
        assert session.run(rows).shape == (1, DIM)
    with pytest.raises(UserCodeError, match=r"use tf\.train\.Saver"):
        incremental_saver._get_incremental_saver(None)
    with pytest.raises(UserCodeError, match="allowed: DRAM"):
        tf.get_embedding_variable("w", DIM, ev_option=tf.EmbeddingVariableOption(
            storage_option=variables.StorageOption(storage_type=config_pb2.StorageType.SSDHASH)))


def test_the_version_is_that_of_tensorflow_and_has_deeprec():
    """A script asks for the word; the numbers are TensorFlow's, and other packages are as they are."""
    import importlib.metadata

    import pkg_resources

    version = pkg_resources.get_distribution("Tensorflow").version
    assert "deeprec" in version and version == importlib.metadata.version("tensorflow") and "nv" not in version
    assert "deeprec" not in pkg_resources.get_distribution("numpy").version


def operations_of(count):
    """Returns how many operations a graph has with so many variables, their optimizer, Saver and initializer."""
    with tf.Graph().as_default() as graph:
        option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(3))
        features = {str(number): tf.constant([["a"], ["b"]]) for number in range(count)}
        columns = [tf.feature_column.embedding_column(column(key, tf.string, ev_option=option), DIM)
                   for key in features]
        loss = tf.reduce_sum(tf.feature_column.input_layer(features, columns))
        tf.train.AdamAsyncOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
        tf.global_variables_initializer()
        tf.train.Saver()
        return len(graph.get_operations())


def test_a_variable_adds_few_operations():
    """It had 900, and a graph of 26 variables took minutes to its first step."""
    assert operations_of(6) - operations_of(5) < 250
