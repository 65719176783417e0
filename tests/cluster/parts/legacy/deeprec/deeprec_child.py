"""DeepRec's names in a TF1 script. test_deeprec.py runs these tests in a child process, as the names change the whole
process."""
# ruff: noqa: PLC0415 (these tests check imports)

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

import ps_train
from ps_train.errors import UserCodeError
from ps_train.parts.legacy.names import installation
from tests import plain_graphs

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)
installation.install()
plain_graphs.install()
plain_graphs.are_wanted = True
tf = sys.modules["tensorflow"]

DIM = 4
BATCHES = [[0, 1, 2, 2], [2, 1, 0, 0], [0, 0, 1, 2]]  # every id in each, so that a lazy rule is a plain one
SUFFIXES = ("-keys", "-values", "-versions", "-freqs")


@pytest.fixture(autouse=True)
def new_graph():
    """Each test has a graph of its own."""
    with tf.Graph().as_default():
        yield


def train(table, make_optimizer, batches=BATCHES):
    """Trains rows by the mean of their cubes; returns the rows of the ids 0, 1 and 2, and the global step."""
    ids = tf.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(tf.pow(tf.nn.embedding_lookup(table, ids), 3))
    step = tf.train.get_or_create_global_step()
    train_op = make_optimizer(step).minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in batches:
            session.run(train_op, {ids: batch})
        return session.run([tf.nn.embedding_lookup(table, tf.constant([0, 1, 2], tf.int64)), step])


@pytest.mark.parametrize("make_optimizer", [
    lambda step: tf.train.AdagradOptimizer(0.1),
    lambda step: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    lambda step: tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=1.0),
    lambda step: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.2,
                                        l2_shrinkage_regularization_strength=0.5, beta=5.0),
    lambda step: tf.train.MomentumOptimizer(0.05, 0.9),
    lambda step: tf.train.AdamOptimizer(0.05),
    lambda step: tf.train.AdamAsyncOptimizer(0.05),
    lambda step: tf.contrib.opt.LazyAdamOptimizer(0.05),
    lambda step: type("Own", (tf.train.AdamOptimizer,), {})(0.05),
    lambda step: tf.train.GradientDescentOptimizer(tf.train.exponential_decay(0.1, step, 1, 0.5)),
    lambda step: tf.train.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2, accumulator_decay_rate=0.5),
    lambda step: tf.train.AdagradDecayOptimizerV2(0.1, step, accumulator_decay_step=2, accumulator_decay_rate=0.5),
], ids=["adagrad", "ftrl", "ftrl shrinkage", "ftrl beta", "momentum", "adam", "adamasync", "lazy", "own",
        "tensor rate", "adagraddecay", "adagraddecayv2"])
def test_rows_follow_an_optimizer_as_a_variable_does(make_optimizer):
    """The gradients of an id that comes twice are added, and each step counts once."""
    with tf.Graph().as_default():
        expected, _ = train(tf.get_variable("v", [3, DIM], initializer=tf.constant_initializer(0.5)), make_optimizer)
    rows, step = train(
        tf.get_embedding_variable("v", DIM, initializer=tf.constant_initializer(0.5)), make_optimizer)
    np.testing.assert_allclose(rows, expected, rtol=1e-5)
    assert step == len(BATCHES) and not np.allclose(rows, 0.5)


def adagrad_decay(gradient, num_steps, every, rate, first=0.1):
    """Returns what AdagradDecay adds to a number that always has the same gradient."""
    total, power, value = first, 0, 0.0
    for step in range(1, num_steps + 1):
        if step // every > power:
            total, power = max(total * rate, first), power + 1
        total += gradient**2
        value -= 0.1 * gradient / np.sqrt(total)
    return value


@pytest.mark.parametrize("version", ["", "V2"])
def test_adagrad_decay_forgets_old_gradients(version):
    """A dense variable, against numpy."""
    variable = tf.get_variable("v", [2, 3], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    optimizer = getattr(tf.train, f"AdagradDecayOptimizer{version}")(
        0.1, step, accumulator_decay_step=3, accumulator_decay_rate=0.2)
    train_op = optimizer.minimize(tf.reduce_sum(2 * variable), global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(8):
            session.run(train_op)
        np.testing.assert_allclose(session.run(variable), np.full([2, 3], adagrad_decay(2.0, 8, 3, 0.2)), rtol=1e-5)


def write_checkpoint(path, parts, slot, with_filtered=True):
    """Writes a checkpoint as DeepRec does, by SaveV2; returns the tensors by name."""
    tensors = {"global_step": np.int64(70)}
    for name, (ids, values, versions, freqs, sums) in parts.items():
        for prefix, floats in ((name, values), (f"{name}/{slot}", sums)):
            tensors.update(zip([prefix + suffix for suffix in SUFFIXES], [ids, floats, versions, freqs]))
        if with_filtered:
            tensors.update({f"{name}-keys_filtered": np.int64([10**6 + len(tensors)]),
                            f"{name}-freqs_filtered": np.int64([2]), f"{name}-versions_filtered": np.int64([3])})
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(
            prefix=path, tensor_names=list(tensors), shape_and_slices=[""] * len(tensors),
            tensors=[tf.constant(tensor) for tensor in tensors.values()]))
    return tensors


def random_part(random, group):
    """Returns ids, values, versions, counts and sums of squares of a part; the values have all bits."""
    ids = np.int64([group, group + 4, 2**62 // 4 * 4 + group, 1000 * 7 + group])
    floats = random.integers(0, 2**31 - 2**23, [2, len(ids), DIM], dtype=np.int32).view(np.float32)
    return ids, floats[0], random.integers(1, 70, len(ids)), random.integers(3, 2**31 - 1, len(ids)), floats[1]


def by_id(reader, names):
    """Returns id -> the bytes of its row, its version, its count and its slot, of all parts of a variable."""
    found = {}
    for name in names:
        assert np.array_equal(reader.get_tensor(f"{name}-keys"), reader.get_tensor(f"{name}/Adagrad-keys"))
        columns = [reader.get_tensor(name + suffix) for suffix in ("-values", "-versions", "-freqs", "/Adagrad-values")]
        for number, own in enumerate(reader.get_tensor(f"{name}-keys")):
            found[int(own)] = [column[number].tobytes() for column in columns]
    return found


def make_script(num_parts=3):
    """Builds what a script with a filter and an eviction has; returns the ids, the rows and the Saver."""
    option = tf.EmbeddingVariableOption(
        filter_option=tf.CounterFilter(filter_freq=3), evict_option=tf.GlobalStepEvict(steps_to_live=1000))
    variable = tf.get_embedding_variable(
        "deep/items", DIM, initializer=tf.zeros_initializer(), ev_option=option,
        partitioner=tf.fixed_size_partitioner(num_parts) if num_parts else None)
    ids = tf.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(variable, ids)
    step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows), global_step=step)
    return ids, rows, train_op, tf.train.Saver()


def test_a_checkpoint_of_deeprec_goes_through_a_script_bit_for_bit(tmp_path):
    """Rows, slots, counts and last updates; the number of parts may change; ids are in the order of id % 1000."""
    random = np.random.default_rng(0)
    parts = {f"deep/items/part_{number}": random_part(random, number) for number in range(4)}
    write_checkpoint(f"{tmp_path}/old", parts, "Adagrad")
    _, _, _, saver = make_script()
    with tf.Session() as session:
        saver.restore(session, f"{tmp_path}/old")
        saver.save(session, f"{tmp_path}/new")
    old, new = (tf.train.load_checkpoint(f"{tmp_path}/{name}") for name in ("old", "new"))
    names = [f"deep/items/part_{number}" for number in range(3)]
    assert by_id(new, names) == by_id(old, parts) and len(by_id(new, names)) == 16
    for number, name in enumerate(names):
        groups, offsets = new.get_tensor(f"{name}-keys") % 1000, new.get_tensor(f"{name}-partition_offset")
        assert set(groups % 3) <= {number} and list(groups) == sorted(groups)
        assert [list(groups[begin:end]) for begin, end in zip(offsets, offsets[1:])] == [
            [group] * list(groups).count(group) for group in range(1000)]


def test_the_counts_of_ids_without_a_row_go_on_after_a_restore(tmp_path):
    """An id that DeepRec had seen twice gets its row in the next update, a new one in the third."""
    random = np.random.default_rng(1)
    tensors = write_checkpoint(f"{tmp_path}/old", {"deep/items": random_part(random, 0)}, "Adagrad")
    seen = int(tensors["deep/items-keys_filtered"][0])
    ids, rows, train_op, saver = make_script(num_parts=None)
    with tf.Session() as session:
        saver.restore(session, f"{tmp_path}/old")
        session.run(train_op, {ids: [seen, 77]})
        assert (session.run(rows, {ids: [seen, 77]}) != 0).any(1).tolist() == [True, False]
        for _ in range(2):
            session.run(train_op, {ids: [77]})
        assert session.run(rows, {ids: [77]}).all()


@pytest.mark.parametrize("option, unseen", [({}, 0.0), ({"default_value_no_permission": 0.25}, 0.25)])
def test_an_id_that_a_filter_has_not_admitted_is_read_as_a_constant(option, unseen):
    """In training and later; its row begins with the value of the initializer."""
    variable = tf.get_embedding_variable("v", 2, ev_option=tf.EmbeddingVariableOption(
        filter_option=tf.CounterFilter(3), init_option=tf.InitializerOption(tf.ones_initializer(), **option)))
    ids = tf.placeholder(tf.int64, [None])
    rows, found = tf.nn.embedding_lookup(variable, ids), []
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            found.append(session.run(rows, {ids: [7]}).tolist())
            session.run(train_op, {ids: [7]})
        assert session.run(rows, {ids: [8]}).tolist() == [[unseen, unseen]]
    np.testing.assert_allclose(found, [[[unseen] * 2]] * 3 + [[[0.9] * 2]], rtol=1e-6)


def test_an_older_checkpoint_has_four_tensors_only(tmp_path):
    """And no slots, of another optimizer: rows come, slots are new."""
    random = np.random.default_rng(2)
    part = random_part(random, 0)
    write_checkpoint(f"{tmp_path}/old", {"deep/items": part}, "Other", with_filtered=False)
    ids, rows, _, saver = make_script(num_parts=None)
    with tf.Session() as session:
        saver.restore(session, f"{tmp_path}/old")
        assert session.run(rows, {ids: part[0]}).tobytes() == part[1].tobytes()


@pytest.mark.parametrize("make_optimizer", [
    lambda step: tf.train.AdamOptimizer(0.05),
    lambda step: tf.train.AdamAsyncOptimizer(0.05),
    lambda step: tf.train.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2, accumulator_decay_rate=0.5),
], ids=["adam", "adamasync", "adagraddecay"])
def test_a_rule_goes_on_after_a_restore(tmp_path, make_optimizer):
    """What it corrects or decays by the number of updates does not begin again, as there is a global step."""
    variable = tf.get_embedding_variable("v", DIM, initializer=tf.constant_initializer(0.5))
    ids = tf.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(variable, ids)
    step = tf.train.get_or_create_global_step()
    train_op = make_optimizer(step).minimize(tf.reduce_sum(tf.pow(rows, 3)), global_step=step)
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in BATCHES:
            session.run(train_op, {ids: batch})
        path = saver.save(session, f"{tmp_path}/model")
        session.run(train_op, {ids: [0, 1, 2]})
        expected = session.run(rows, {ids: [0, 1, 2]})
    with tf.Session() as session:
        saver.restore(session, path)
        session.run(train_op, {ids: [0, 1, 2]})
        np.testing.assert_allclose(session.run(rows, {ids: [0, 1, 2]}), expected, rtol=1e-6)


def test_a_checkpoint_without_the_variable_is_refused(tmp_path):
    """By a line that names what was looked for."""
    write_checkpoint(f"{tmp_path}/old", {"deep/others": random_part(np.random.default_rng(3), 0)}, "Adagrad")
    _, _, _, saver = make_script()
    with tf.Session() as session, pytest.raises(Exception, match="neither deep/items-keys nor deep/items/part_0-keys"):
        saver.restore(session, f"{tmp_path}/old")


@pytest.mark.parametrize("option, kept", [
    ({"evict_option": "GlobalStepEvict(steps_to_live=3)"}, [3, 4]),
    ({"evict_option": "L2WeightEvict(l2_weight_threshold=0.45)"}, [1, 3]),  # half the square of 1.0 and 1.1
    ({}, [1, 2, 3, 4])])
def test_a_save_drops_rows(tmp_path, option, kept):
    """Those that were not updated for some steps, or those of which half the sum of squares is small, as in DeepRec."""
    option = {name: eval(f"tf.{value}") for name, value in option.items()}
    variable = tf.get_embedding_variable(
        "v", 1, initializer=tf.zeros_initializer(), ev_option=tf.EmbeddingVariableOption(**option))
    ids, weights = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 1])
    loss = -tf.reduce_sum(weights * tf.nn.embedding_lookup(variable, ids))
    train_op, saver = tf.train.GradientDescentOptimizer(1.0).minimize(loss), tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch, weight in (([1], 1.0), ([2], 0.5), ([3, 4], 0.1), ([3], 1.0), ([4], 0.1), ([4], 0.1)):
            session.run(train_op, {ids: batch, weights: [[weight]] * len(batch)})
        path = saver.save(session, f"{tmp_path}/model")
        assert sorted(tf.train.load_checkpoint(path).get_tensor("v-keys")) == kept
        assert session.run(tf.nn.embedding_lookup(variable, tf.constant([3], tf.int64))) == pytest.approx(1.1)


def test_a_feature_column_looks_up_strings():
    """Twice in a graph, with batch normalisation, whose update operations need the rows."""
    columns = [tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_embedding(name, dtype=tf.string), dimension=DIM, combiner="mean",
        do_fusion=True) for name in ("C1", "C2")]
    features = {"C1": tf.constant(["a", "b", ""]), "C2": tf.constant(["x", "x", "y"])}
    net = tf.feature_column.input_layer(features, columns)
    hidden = tf.layers.batch_normalization(net, training=True)
    loss = tf.reduce_sum(tf.square(hidden - 1))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdagradDecayOptimizer(0.1, tf.train.get_or_create_global_step()).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(net)
        session.run(train_op)
        second = session.run(net)
    assert first[2, :DIM].tolist() == [0.0] * DIM and (first[0, DIM:] == first[1, DIM:]).all()
    assert (second[:, DIM:] != first[:, DIM:]).all() and abs(first).max() <= 2 / np.sqrt(DIM)


def test_all_workers_together_take_each_file_once_in_an_epoch():
    """Two sessions on a server; the position is saved as other variables are."""
    from tensorflow.python.ops.work_queue import WorkQueue

    server = tf.train.Server.create_local_server()
    queue = WorkQueue(["a", "b", "c"], num_epochs=2, prefix="/data/")
    work = queue.take()
    taken = []
    with tf.Session(server.target) as first, tf.Session(server.target) as second:
        first.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                taken += [first.run(work).decode(), second.run(work).decode()]
    assert sorted(taken[:3]) == sorted(taken[3:]) == ["/data/a", "/data/b", "/data/c"]


def test_a_dataset_of_a_work_queue_ends_with_it(tmp_path):
    """As TextLineDataset reads the files that this worker takes."""
    from tensorflow.python.ops.work_queue import WorkQueue

    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    files = WorkQueue(["a", "b"], shuffle=False, prefix=f"{tmp_path}/").input_dataset()
    line = tf.data.make_initializable_iterator(tf.data.TextLineDataset(files))
    following = line.get_next()
    lines = []
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(tf.train.Scaffold(
            local_init_op=line.initializer))) as session:
        while not session.should_stop():
            lines.append(session.run(following).decode())
    assert lines == ["a1", "a2", "b1", "b2"]


def test_a_variable_scope_reuses_an_embedding_variable():
    """As it does a variable."""
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        variable = tf.get_embedding_variable("v", DIM)
        assert tf.get_embedding_variable("v", DIM) is variable and variable.spec.name == "s/v"
    with tf.variable_scope("s"), pytest.raises(ValueError, match="already exists"):
        tf.get_embedding_variable("v", DIM)
    assert tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="s") == [variable]


def test_tf_gradients_and_clipping_take_embedding_variables():
    """As scripts write it that clip by the global norm."""
    variable = tf.get_embedding_variable("v", 1, initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, tf.constant([5, 5, 6], tf.int64)) * 3.0)
    gradients = tf.gradients(loss, tf.trainable_variables())
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    train_op = tf.train.GradientDescentOptimizer(1.0).apply_gradients(zip(clipped, tf.trainable_variables()))
    rows = tf.nn.embedding_lookup(variable, tf.constant([5, 6], tf.int64))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        length = session.run([norm, train_op])[0]
        assert length == pytest.approx(np.sqrt(27))
        np.testing.assert_allclose(session.run(rows)[:, 0], [1 - 6 / length, 1 - 3 / length], rtol=1e-6)


def test_a_sync_replicas_optimizer_updates_rows_once_in_a_step():
    """What it runs on the chief, to initialise and for each update, takes no mini-batch."""
    variable = tf.get_embedding_variable("v", 1, initializer=tf.ones_initializer())
    weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
    batch = tf.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    rows = tf.nn.embedding_lookup(variable, tf.reshape(batch, [1]))
    step = tf.train.get_or_create_global_step()
    optimizer = ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    train_op = optimizer.minimize(tf.reduce_sum(rows) * weight, global_step=step)
    known = tf.nn.embedding_lookup(variable, tf.range(100, dtype=tf.int64))
    hooks = [optimizer.make_session_run_hook(is_chief=True)]
    with tf.train.MonitoredTrainingSession(tf.train.Server.create_local_server().target, hooks=hooks) as session:
        for _ in range(3):
            session.run(train_op)
        found, weight_now, step_now = session.run([known, weight, step])
    np.testing.assert_allclose(found[:3, 0], [1 - 0.1, 1 - 0.09, 1 - 0.08], rtol=1e-6)
    assert (found[3:] == 1).all() and step_now == 3
    np.testing.assert_allclose(weight_now, 0.7, rtol=1e-6)


@pytest.mark.parametrize("build, code", [
    (lambda: tf.get_embedding_variable("v", DIM, regularizer=abs), "bad_embedding_option"),
    (lambda: tf.get_embedding_variable("v", DIM, value_dtype=tf.float64), "bad_embedding_option"),
    (lambda: tf.get_embedding_variable("v", DIM, initializer=tf.random_normal_initializer()), "bad_embedding_option"),
    (lambda: tf.get_embedding_variable("v", DIM, ev_option=tf.EmbeddingVariableOption(
        storage_option=tf.StorageOption(storage_path="/ssd"))), "bad_embedding_option"),
    (lambda: tf.reduce_sum(tf.get_embedding_variable("v", DIM)), "table_is_no_tensor"),
    (lambda: train(tf.get_embedding_variable("v", DIM), lambda step: tf.train.RMSPropOptimizer(0.1)),
     "bad_embedding_optimizer"),
    (lambda: train(tf.get_embedding_variable("v", DIM), lambda step: tf.train.FtrlOptimizer(tf.constant(0.1))),
     "bad_embedding_optimizer"),
    (lambda: train(tf.get_embedding_variable("v", DIM), lambda step: tf.contrib.opt.AdamWOptimizer(0.01)),
     "bad_embedding_optimizer"),
    (lambda: train(tf.get_embedding_variable("v", DIM), lambda step: tf.contrib.opt.NadamOptimizer()),
     "bad_embedding_optimizer"),
    (lambda: tf.feature_column.indicator_column(tf.feature_column.categorical_column_with_embedding(
        "c")).variable_shape, "bad_embedding_column"),
], ids=str)
def test_what_a_table_cannot_do_is_refused(build, code):
    """By a line that says what is allowed."""
    with pytest.raises(UserCodeError) as caught:
        build()
    assert caught.value.code == code and "; " in str(caught.value)


def test_fields_of_deeprec_in_a_config_are_taken():
    """A misspelt one is still an error."""
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.do_smart_stage = True
    config.inter_op_parallelism_threads = 2
    with pytest.raises(AttributeError):
        config.graph_options.optimizer_options.do_smart_stagee = True
    assert config.inter_op_parallelism_threads == 2
