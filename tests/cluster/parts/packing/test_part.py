"""Many small variables as one: the numbers of training without it, and the same checkpoints."""

from __future__ import annotations

import re
import shutil
import threading

import numpy as np
import pytest

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement
from ps_train.errors import UserCodeError
from ps_train.graph import transfer
from ps_train.graph.optimizers import make_optimizer
from ps_train.parts.packing import part as packing
from ps_train.plugins import contracts
from ps_train.storage import saver
from ps_train.training.reporting import End
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.graph.test_transfer import crossings, transfers
from tests.cluster.updates.test_unrolled import all_that_is_kept
from tests.tensorflow_mode import tf

PACKED = transfer.Wire()
PLAIN = transfer.Wire(is_fused=False)
NUM_PACKED = 4  # on each ps; the time of these tests goes into graphs, and grows with the number of their variables


@pytest.fixture(autouse=True)
def pack_a_few(monkeypatch):
    """Lets fewer variables be packed than would be worth it."""
    monkeypatch.setattr(packing, "_MIN_VARIABLES", NUM_PACKED)


def small_ones(features, count):
    """Returns the sum of the features times many small variables, each time by another factor."""
    variables = [tf.get_variable(f"v{index}", [2, 2] if index % 2 else [4], initializer=tf.ones_initializer())
                 for index in range(count)]
    return tf.add_n([tf.linalg.matvec(features, tf.reshape(variable, [4])) / (index + 1.0)
                     for index, variable in enumerate(variables)])


FEW = clusters.model_of(lambda features: small_ones(features, NUM_PACKED))
MANY = clusters.model_of(lambda features: small_ones(features, 2 * NUM_PACKED))


def mixed(features):
    """Beside small variables a large one, a table of which rows are looked up, and one that has no gradient."""
    large = tf.get_variable("large", [4, 2000], initializer=tf.ones_initializer())
    table = tf.get_variable("table", [50, 4], initializer=tf.ones_initializer())
    tf.get_variable("unused", [3], initializer=tf.ones_initializer())
    rows = tf.nn.embedding_lookup(table, tf.cast(tf.abs(features[:, 0]) * 9, tf.int32))
    return (small_ones(features, 2 * NUM_PACKED) + tf.reduce_sum(rows, axis=1)
            + tf.reduce_sum(tf.matmul(features, large), axis=1) / 2000)


def train(cluster, folder, steps, wire, rule="adam", **options):
    """Returns the checkpoint after so many steps of one worker, which continues with a checkpoint that is there."""
    return bare_training.checkpoint_of(cluster, folder, steps, wire=wire, optimizer_name=rule, learning_rate=0.01,
                                       continues=True, **{"model": MANY, **options})


@pytest.mark.parametrize("predict, num_ps", [(mixed, 1), (mixed, 2), (all_that_is_kept, 2)])
def test_several_steps_at_once_equal_as_many_single_ones(tmp_path, start_servers, predict, num_ps):
    """On packed variables, too: the whole checkpoint, slots too, bit by bit."""
    one, four = (bare_training.checkpoint_of(
        start_servers(num_ps, 1), tmp_path / str(num_at_once), 30, steps_per_execution=num_at_once,
        model=clusters.model_of(predict), optimizer_name="adam", learning_rate=0.01) for num_at_once in (1, 4))
    assert one.keys() == four.keys() and one["global_step"] == 30
    for name, value in one.items():
        np.testing.assert_array_equal(four[name], value, err_msg=name)


def assert_same(one, other):
    """Compares two checkpoints: the same variables, with the same values but for the order of a sum."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def begun():
    """Folders of trainings that several tests go on with, by how they were trained."""
    return {}


@pytest.fixture
def begin(tmp_path, tmp_path_factory, start_servers, begun):
    """A function (key, **options of train) -> a copy of the folder of a training of 20 steps."""
    def begin_or_copy(key, **options):
        if key not in begun:
            begun[key] = tmp_path_factory.mktemp("begun")
            train(start_servers(1, 1), begun[key], 20, **options)
        return shutil.copytree(begun[key], tmp_path / f"{len(list(tmp_path.iterdir()))}")

    return begin_or_copy


@pytest.fixture
def plain(start_servers, begin):
    """The checkpoint of FEW after 20 steps of Adam and 20 more, without packs."""
    folder = begin("plain", model=FEW, wire=PLAIN)
    return train(start_servers(1, 1), folder, 40, PLAIN, model=FEW)


MIXED = clusters.model_of(mixed)


# Slots that begin at 0 or 1; at another number; and Adam's powers. Without slots: sgd, in most of the other tests.
@pytest.mark.optimised
@pytest.mark.parametrize("rule, gradients", [("rmsprop", None), ("ftrl", None), ("adam", 1)],
                         ids=["rmsprop-async", "ftrl-async", "adam-sync"])
def test_packed_training_ends_with_the_same_checkpoint(tmp_path, start_servers, rule, gradients):
    """Parameters, slots and what the rule keeps besides, of all kinds of variables side by side."""
    packed, plain = (train(start_servers(2, 1), tmp_path / str(wire.is_fused), 20, wire, rule, gradients=gradients,
                           model=MIXED) for wire in (PACKED, PLAIN))
    assert_same(packed, plain)
    assert min(np.abs(packed[f"v{index}"] - 1).max() for index in range(2 * NUM_PACKED)) > 1e-3, "each was trained"


def rate_of_its_own(_):
    """Reads its rate from a variable of this name."""
    rate = tf.get_variable("rate", [], initializer=tf.constant_initializer(0.01), trainable=False)
    return tf.train.AdamOptimizer(rate)


def rate_in_any_variable(_):
    """Would make another variable, of another name, each time."""
    return tf.train.MomentumOptimizer(tf.Variable(0.01, trainable=False, name="rate"), 0.9)


@pytest.mark.parametrize("make_optimizer", [rate_of_its_own, rate_in_any_variable])
def test_an_optimizer_may_have_variables_of_its_own(tmp_path, start_servers, make_optimizer):
    """They exist once. Issue: from 16 small variables on, the first failed, and the second trained by another rate."""
    packed, plain = (train(start_servers(1, 1), tmp_path / str(wire.is_fused), 10, wire, model=FEW,
                           make_model_optimizer=make_optimizer) for wire in (PACKED, PLAIN))
    assert_same(packed, plain)
    assert [name for name in packed if name.startswith("rate")] == ["rate"]


@pytest.mark.parametrize("first, then", [
    ({"wire": PACKED}, {"wire": PLAIN}), ({"wire": PLAIN}, {"wire": PACKED}), ({"wire": PACKED}, {"wire": PACKED}),
    ({"wire": PACKED}, {"wire": PACKED, "period": Period(5, train_steps=40)}),
    ({"wire": PACKED, "period": Period(5, train_steps=20)}, {"wire": PACKED})],
    ids=["unpacks", "packs", "stays", "to local steps", "from local steps"])
def test_a_checkpoint_continues_in_any_way(start_servers, plain, begin, first, then):
    """20 steps in one way and 20 in another come to where 20 and 20 come without any of it."""
    folder = begin("plain" if first == {"wire": PLAIN} else tuple(first.values()), model=FEW, **first)
    saved = train(start_servers(1, 1), folder, 40, model=FEW, **then)
    assert saved["global_step"] == 40
    assert_same(saved, plain)


def test_in_sync_two_workers_come_to_what_they_come_to_without_packs(tmp_path, start_servers):
    """To the last digit but for the order of a sum."""
    assert_same(*(bare_training.checkpoint_of(start_servers(1, 2), tmp_path / str(wire.is_fused), 20, num_workers=2,
                                              gradients=2, wire=wire, model=FEW) for wire in (PACKED, PLAIN)))


def counting(names):
    """Returns a model whose every variable goes up by 1 with each step at a learning rate of 1."""
    def model_fn(features, labels, mode, params):
        variables = [tf.get_variable(name, [2], initializer=tf.zeros_initializer()) for name in names]
        large = tf.get_variable("large", [5000], initializer=tf.zeros_initializer())
        loss = -tf.add_n([tf.reduce_sum(one) for one in [*variables, large]])
        return ps_train.ModelSpec(loss=loss + 0 * tf.reduce_sum(features))

    return contracts.Model("counting", model_fn, {})


NAMES = [f"v{index:02}" for index in range(2 * NUM_PACKED)]


def test_every_step_of_every_worker_is_in_the_last_checkpoint(tmp_path, start_servers):
    """And in each one before it what is packed is of one moment, though two workers train meanwhile."""
    cluster = start_servers(1, 2)
    saves = saver.SaveSchedule(0, 50, 100, 30.0)
    workers = [clusters.Worker(cluster, index, tmp_path, 600, saves=saves, model=counting(NAMES), learning_rate=1.0)
               for index in range(2)]
    for worker in workers:
        worker.start()
    num_steps = sum(worker.result().local_steps for worker in workers)
    for path in tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths:
        saved = tf.train.load_checkpoint(path)
        assert len({float(element) for name in NAMES for element in saved.get_tensor(name)}) == 1
    last = clusters.read_checkpoint(tmp_path)
    assert {int(np.ravel(last[name])[0]) for name in [*NAMES, "large", "global_step"]} == {num_steps}


def test_a_save_reads_the_packs_together_with_all_else():
    """In one session run, and not the small variables: a checkpoint is of one moment."""
    built = clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=MANY, optimizer_name="adam")
    save = built.graph.get_tensor_by_name(built.savers.saver.saver_def.save_tensor_name)
    read = {op.inputs[0].op.name for op in transfer.upstream([save]) if op.type == "ReadVariableOp"}
    pack = built.update.dense.packed.packs[0].whole.op.name
    assert {pack, f"{pack}/Adam", f"{pack}/Adam_1", "global_step"} <= read
    assert not [name for name in read if re.fullmatch(r"v\d+(/Adam(_1)?)?", name)]


def test_workers_that_make_their_variables_in_another_order_update_the_same_ones(tmp_path, start_servers):
    """Each variable has the steps of both, in either order of creation."""
    cluster = start_servers(1, 2)

    def model(order):
        def model_fn(features, labels, mode, params):
            made = {name: tf.get_variable(name, [2], initializer=tf.zeros_initializer()) for name in order}
            # Each step adds its number to a variable, however old the values are that the step was computed from.
            loss = -tf.add_n([number * tf.reduce_sum(made[name]) for number, name in enumerate(NAMES, 1)])
            return ps_train.ModelSpec(loss=loss + 0 * tf.reduce_sum(features))

        return contracts.Model("ordered", model_fn, {})

    workers = [bare_training.BareTraining(cluster, index, model=model(order), learning_rate=1.0)
               for index, order in enumerate((NAMES, NAMES[::-1]))]
    assert workers[0].graph.update.dense.packed.places() == workers[1].graph.update.dense.packed.places()
    num_steps = sum(outcome.local_steps for outcome in bare_training.train_at_once(workers, 100))
    workers[0].save(tmp_path)
    saved = clusters.read_checkpoint(tmp_path)
    assert [saved[name].tolist() for name in NAMES] == [[number * num_steps] * 2 for number in range(1, len(NAMES) + 1)]


@pytest.mark.parametrize("gradients, dtype", [(None, tf.float32), (1, tf.float64)], ids=["async", "sync"])
def test_another_training_may_follow_on_the_same_servers(tmp_path, start_servers, gradients, dtype):
    """With other variables, of another number or another type."""
    def other(features):
        values = [tf.get_variable(f"w{index}", [4], dtype, initializer=tf.ones_initializer()) for index in range(5)]
        return tf.linalg.matvec(features, tf.cast(tf.add_n(values), tf.float32) / 5)

    cluster = start_servers(1, 1)
    for name, model in (("one", FEW), ("other", clusters.model_of(other))):
        train(cluster, tmp_path / name, 20, PACKED, gradients=gradients, model=model)
        assert clusters.read_checkpoint(tmp_path / name)["global_step"] == 20
        cluster.create_blackboard()


@pytest.mark.optimised
def test_a_step_has_one_update_and_its_transfers_only(start_servers):
    """8 variables on two ps: two updates by Adam, two tensors to the worker and two back."""
    training = bare_training.BareTraining(start_servers(2, 1), model=MANY, optimizer_name="adam")
    built = training.graph
    assert [op.type for op in transfer.upstream([built.steps.single.progress])].count("ResourceApplyAdam") == 2
    assert sorted(crossings(built)) == sorted([("ps", "worker"), ("worker", "ps")] * 2)
    assert sorted(built.update.dense.packed.places()) == sorted(f"v{index}" for index in range(2 * NUM_PACKED))
    assert transfers(training.session, built.steps.single.progress) == {
        ("ps", "worker"): 3, ("worker", "ps"): 2, ("ps", "ps"): 3}


def with_a_few(*terms):
    """Returns a function of the features: a few small variables, and these terms, each with its variables."""
    def predict(features):
        total = small_ones(features, NUM_PACKED)
        for term in terms:
            with tf.variable_scope(term.__name__):
                total += term(features)
        return total

    return predict


def ones(shape=(4,), **options):
    return tf.get_variable("first", shape, initializer=tf.ones_initializer(), **options)


def under_control(features):
    first = ones()
    with tf.control_dependencies([features]):
        value = first.read_value()
    return tf.linalg.matvec(features, value)


def in_a_branch(features):
    first = ones()
    return tf.cond(
        tf.reduce_sum(features) > 0, lambda: tf.linalg.matvec(features, first), lambda: tf.zeros_like(features[:, 0]))


def handed_into_a_branch(features):
    first = tf.identity(ones().read_value())
    return tf.cond(
        tf.reduce_sum(features) > 0, lambda: tf.linalg.matvec(features, first), lambda: tf.zeros_like(features[:, 0]))


def assigned(features):
    first = ones()
    predictions = tf.linalg.matvec(features, first)
    with tf.control_dependencies([predictions]):  # else a step reads it before or after it is assigned
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, first.assign_add(tf.ones([4])))
    return predictions


def bound(features):
    return tf.linalg.matvec(features, ones(constraint=lambda value: tf.clip_by_value(value, -0.5, 0.5)))


def averaged_on_its_ps(features):
    first = ones()
    with tf.device(first.device):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.identity(first.read_value()).op)
    return tf.linalg.matvec(features, first)


def looked_up(features):
    return tf.gather(ones(), tf.cast(tf.abs(features[:, 0]), tf.int32) % 4)


def rows_of_a_sum(features):
    """A table with a row of zeros before its own, which is read whole, and has IndexedSlices as its gradient."""
    table = tf.concat([tf.zeros([1, 4]), ones([50, 4])], 0)
    return tf.reduce_sum(tf.gather(table, tf.cast(tf.abs(features[:, 0]) * 9, tf.int32)), axis=1)


def begins_a_local_one(features):
    first = ones()
    at_begin = tf.Variable(first.read_value(), trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    return tf.linalg.matvec(features, first - at_begin)


def local(features):
    return tf.linalg.matvec(features, ones(collections=[
        tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES]))


OTHER_WAYS = [under_control, in_a_branch, assigned, bound, averaged_on_its_ps, looked_up, rows_of_a_sum,
              begins_a_local_one]


def test_a_variable_that_is_used_in_another_way_stays_alone():
    """The others are packed; and a value that is read outside of a branch and handed into it comes from the pack."""
    built = clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=clusters.model_of(
        with_a_few(*OTHER_WAYS, local, handed_into_a_branch)))
    assert set(built.update.dense.packed.places()) == {
        "handed_into_a_branch/first", *(f"v{index}" for index in range(NUM_PACKED))}


@pytest.mark.parametrize("terms, rule", [
    ([*OTHER_WAYS, handed_into_a_branch], "ftrl"),
    ([local], "sgd"),  # the slots of a local one would have to be on a ps
], ids=["on a ps", "local"])
def test_variables_that_are_used_in_other_ways_are_trained_as_without_packs(tmp_path, start_servers, terms, rule):
    """Beside packed ones, all of them in one model."""
    assert_same(*(train(start_servers(1, 1), tmp_path / str(wire.is_fused), 30, wire, rule,
                        model=clusters.model_of(with_a_few(*terms))) for wire in (PACKED, PLAIN)))


def pack_alone(count=NUM_PACKED, wire=PACKED):
    """Returns so many small variables of a graph without a cluster, the names of what packing adds, and the packing."""
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(ps_tasks=1)):
            loss = tf.reduce_sum(small_ones(tf.ones([8, 4]), count))
        optimizer, variables = make_optimizer("adam", 0.1), tf.global_variables()
        packed = packing.SmallVariables().pack(loss, optimizer.compute_gradients(loss), optimizer, wire)
        added = {variable.op.name for variable in tf.global_variables()} - {variable.op.name for variable in variables}
        assert not tf.local_variables()
        return variables, added, packed


@pytest.mark.parametrize("count, wire, packed", [(15, PACKED, 0), (16, PACKED, 16), (16, PLAIN, 0)])
def test_a_few_are_not_worth_it(monkeypatch, count, wire, packed):
    """Nor is it done where nothing travels together."""
    monkeypatch.undo()
    assert len(pack_alone(count, wire)[-1].places()) == packed


def test_summaries_tell_the_value_of_the_moment(tmp_path, start_servers):
    """The one that a checkpoint has, and not that of the beginning."""
    def predict(features):
        tf.summary.scalar("sum_of_v0", tf.reduce_sum(tf.get_variable("v0", [4], initializer=tf.ones_initializer())))
        with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
            return small_ones(features, NUM_PACKED)

    training = bare_training.BareTraining(start_servers(1, 1), model=clusters.model_of(predict), learning_rate=0.01)
    training.train(3)
    summary = tf.Summary.FromString(training.session.run(training.graph.summary_op))
    summary_value = next(value.simple_value for value in summary.value if value.tag == "sum_of_v0")
    assert summary_value != pytest.approx(4.0, abs=1e-4)
    training.save(tmp_path)
    assert summary_value == pytest.approx(clusters.read_checkpoint(tmp_path)["v0"].sum(), rel=1e-6)


def test_a_restarted_chief_continues_on_what_is_packed(tmp_path, start_servers, plain):
    """And not on the variables, which have the values of the beginning."""
    cluster = start_servers(1, 1)
    stop = threading.Event()
    options = {"wire": PACKED, "model": FEW, "optimizer_name": "adam", "learning_rate": 0.01,
               "dataset": bare_training.IN_ORDER}
    first = clusters.Worker(cluster, 0, tmp_path, 20, stop=stop, **options)
    loop = first.body

    def body(live, write_summary):
        loop(live, write_summary)
        stop.set()
        return first.loop(live, train_steps=30).run()

    first.body = body
    first.start()
    assert first.result().end is End.SIGNAL
    spoil(cluster)
    clusters.remove_checkpoints(tmp_path)
    second = clusters.Worker(cluster, 0, tmp_path, 40, **options)
    second.start()
    assert second.result().first_step == 20
    assert_same(clusters.read_checkpoint(tmp_path), plain)


def spoil(cluster):
    """Writes into a variable that is packed, past the pack."""
    with tf.Graph().as_default(), tf.Session(cluster.target("ps", 0)) as session, tf.device("/job:ps/task:0"):
        session.run(tf.get_variable("v0", [4], initializer=tf.constant_initializer(99.0)).initializer)


def test_after_a_ps_has_lost_everything_the_packs_are_filled_from_the_checkpoint(start_servers, begin):
    """As the variables are: with that, training comes to where it comes without the loss."""
    folder = begin("two packs", wire=PLAIN)
    expected = train(start_servers(2, 1), shutil.copytree(folder, folder.with_name("without loss")), 40, PLAIN)
    cluster = start_servers(2, 1)
    worker = clusters.Worker(cluster, 0, folder, 40, wire=PACKED, model=MANY, optimizer_name="adam",
                             learning_rate=0.01, dataset=bare_training.IN_ORDER)
    sessions = []

    def body(live, write_summary):
        sessions.append(live)
        if len(sessions) == 1:
            worker.loop(live, train_steps=30).run()
            tf.Session.reset(cluster.target("ps", 0))
            cluster.create_blackboard()
        return worker.loop(live).run()

    worker.body = body
    worker.start()
    assert worker.result().global_step == 40
    assert len(sessions) == 2
    assert_same(clusters.read_checkpoint(folder), expected)


def test_a_gradient_that_is_not_finite_is_told_by_its_variable(start_servers):
    """Though it travels together with those of others; and nothing reaches the ps."""
    def predict(features):
        with tf.variable_scope("deep"):
            poisoned = tf.get_variable("poisoned", [4], initializer=tf.zeros_initializer())
        return small_ones(features, NUM_PACKED) + tf.sqrt(tf.reduce_sum(tf.square(poisoned)))  # its gradient is 0 / 0

    training = bare_training.BareTraining(start_servers(1, 1), model=clusters.model_of(predict))
    with pytest.raises(UserCodeError, match="in the step after global step 0: the gradient of deep/poisoned has NaN"):
        training.train(10)


def test_workers_that_would_pack_other_variables_do_not_fit_together():
    """Otherwise each would train on different values."""
    view = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}})
    texts = [agreement.fingerprint_of(view, {}, variables, packed.places())
             for variables, _, packed in (pack_alone(), pack_alone(wire=PLAIN))]
    line = agreement.fingerprint_differences(*texts, their_name="worker:0 (chief)")[0]
    assert re.fullmatch(r"variable v0: here float32\[4\] on ps:0, at worker:0 \(chief\) float32\[4\] on ps:0, "
                        r"in ps_train/packed_0_[0-9a-f]{8}\[0:\], as it has no hooks", line)


def test_what_is_packed_is_in_no_collection():
    """Neither initialised, nor checked, nor saved by TensorFlow, with its slots."""
    _, added, packed = pack_alone()
    assert [one.whole.shape.as_list() for one in packed.packs] == [[4 * NUM_PACKED]]
    assert len(added) == 2 * NUM_PACKED + 2, "the slots that a checkpoint has, and Adam's two powers"
    assert not [name for name in added if "packed" in name]


class _Loading(tf.train.SessionRunHook):
    """Gives the variable v0 a value in each new session, as one that restores a part of the model does."""

    def begin(self):
        (variable,) = (variable for variable in tf.global_variables() if variable.op.name == "v0")
        self._load = variable.assign(tf.fill(variable.shape, 7.0))

    def after_create_session(self, session, coord):
        session.run(self._load)


@pytest.mark.parametrize("hooks", ["training_hooks", "training_chief_hooks"])
def test_what_a_hook_writes_is_trained(tmp_path, start_servers, hooks):
    """Issue: it wrote the small variables, which nobody read any more, so a model began with random biases."""
    def model_fn(features, labels, mode, params):
        return FEW.model_fn(features, labels, mode, params)._replace(**{hooks: [_Loading()]})

    clusters.train_together(start_servers(1, 1), tmp_path, 3, 1, model=contracts.Model("hooked", model_fn, {}),
                            learning_rate=1e-9)
    np.testing.assert_allclose(clusters.read_checkpoint(tmp_path)["v0"], 7.0, atol=0.01)


def test_a_model_may_have_hooks_on_the_chief_only():
    """All workers hold its variables alike. Issue: the others were refused, as only they packed."""
    def model_fn(features, labels, mode, params, config):
        hooks = [tf.train.StepCounterHook(output_dir="")] if config.is_chief else []
        return FEW.model_fn(features, labels, mode, params)._replace(training_hooks=hooks)

    model, cluster = contracts.Model("chiefs", model_fn, {}, takes_config=True), clusters.GraphCluster(1, 2)
    built = [clusters.build_graph(cluster, index, model=model) for index in range(2)]
    assert [graph.update.dense.packed.places() for graph in built] == [{}, {}]
