"""Which variable goes on which ps."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.graph import placement
from tests.errors import raises
from tests.tensorflow_mode import tf

WORKER_DEVICE = "/job:worker/task:1/cpu:0"


def cluster(num_ps: int) -> Cluster:
    """Returns a cluster of that many ps and two workers."""
    return Cluster("worker", 1, {"ps": {index: f"ps{index}:1" for index in range(num_ps)},
                                 "worker": {0: "a:1", 1: "b:1"}})


def place(num_ps: int, shapes: list) -> list[int]:
    """Returns the ps of each of the variables, made in this order."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(num_ps), WORKER_DEVICE):
        variables = [tf.get_variable(f"v{index}", shape) for index, shape in enumerate(shapes)]
        return [tf.DeviceSpec.from_string(variable.device).task for variable in variables]


@pytest.mark.parametrize(("num_ps", "shapes", "expected"), [
    (1, [[10], [20]], [0, 0]),
    (2, [[10], [10], [10], [10]], [0, 1, 0, 1]),
    (2, [[100], [10], [10], [10], [200]], [0, 1, 1, 1, 1]),
    (3, [[50], [20], [20], [20], [20]], [0, 1, 2, 1, 2]),
    (2, [[], [3], []], [0, 1, 0]),
], ids=["one ps", "equal", "one large", "three ps", "scalars"])
def test_a_variable_goes_to_the_ps_with_the_fewest_bytes(num_ps, shapes, expected):
    """The first of equals takes it."""
    assert place(num_ps, shapes) == expected


@pytest.mark.parametrize(("num_ps", "num_rows", "num_needed"), [
    (1, 6_000_000, 2), (2, 12_000_000, 3), (3, 12_000_000, 0)])
def test_a_variable_that_could_not_be_saved_is_refused(num_ps, num_rows, num_needed):
    """TensorFlow would train it where only rows are looked up, and each save would fail."""
    plan = placement.PlacementPlan(partition_bytes=2**30)
    with tf.Graph().as_default(), placement.on_cluster(cluster(num_ps), WORKER_DEVICE, plan):
        tf.get_variable("small", [10])
        tf.get_variable("big", [num_rows, 100], initializer=tf.zeros_initializer())
        variables = tf.global_variables()
    if not num_needed:
        placement.check_sizes(variables)
        return
    with raises("variable_too_large") as error:
        placement.check_sizes(variables)
    assert f"variable big has {num_rows * 400 / 1e9:.1f} GB;" in str(error.value)
    assert f"at least {num_needed} ps" in str(error.value)


def test_bytes_count_and_not_elements():
    """Eight bytes of a double weigh as much as two floats."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE):
        variables = [tf.get_variable("a", [10], tf.float64), tf.get_variable("b", [15], tf.float32),
                     tf.get_variable("c", [10], tf.float32)]
    assert [tf.DeviceSpec.from_string(variable.device).task for variable in variables] == [0, 1, 1]


def test_four_ps_hold_nearly_equal_bytes_of_many_variables():
    """No ps has more than 1.1 times the mean, where round-robin gives the first one twice of it."""
    strategy = placement.LeastBytes(4)
    with tf.Graph().as_default():
        for size in [1000, 10, 10, 10] * 12:
            strategy(tf.get_variable(f"v{len(tf.global_variables())}", [size]).op)
    assert max(strategy.load_bytes) <= 1.1 * sum(strategy.load_bytes) / 4


def test_operations_and_local_variables_stay_on_the_worker():
    """A metric's variables would otherwise be shared by all workers."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE):
        product = tf.constant(1.0) * 2.0
        tf.metrics.mean(product)
        local = tf.local_variables()
    on_worker = tf.DeviceSpec.from_string(WORKER_DEVICE)
    assert tf.DeviceSpec.from_string(product.device) == on_worker
    assert len(local) == 2
    assert {tf.DeviceSpec.from_string(variable.device) for variable in local} == {on_worker}


def test_variables_of_a_keras_metric_stay_on_the_worker():
    """Issue: they are in no collection when they are made, and went to a ps, where all workers added to them."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE):
        metric = tf.keras.metrics.Mean()
        metric.update_state([1.0, 2.0])
        weights = tf.get_variable("weights", [2], trainable=False)
    on_worker = tf.DeviceSpec.from_string(WORKER_DEVICE)
    assert {tf.DeviceSpec.from_string(variable.device) for variable in metric.variables} == {on_worker}
    assert len(metric.variables) == 2 and tf.DeviceSpec.from_string(weights.device).job == "ps"


def test_a_table_of_the_model_goes_to_a_ps_and_counts_nothing():
    """As `replica_device_setter` has it; it has no shape."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)
        after = tf.get_variable("after", [10])
    assert tf.DeviceSpec.from_string(table.resource_handle.device).job == "ps"
    assert tf.DeviceSpec.from_string(after.device).task == 0


def test_a_device_that_the_model_asks_for_is_kept():
    """`with tf.device("/job:ps/task:1")` wins over the plan."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE), tf.device("/job:ps/task:1"):
        assert tf.DeviceSpec.from_string(tf.get_variable("v", [1]).device).task == 1


def test_slots_live_beside_their_variable():
    """Adam's moments are on the ps of the weights, so an update moves nothing between ps."""
    with tf.Graph().as_default(), placement.on_cluster(cluster(3), WORKER_DEVICE):
        weights = [tf.get_variable(f"w{index}", [4]) for index in range(3)]
        optimizer = tf.train.AdamOptimizer()
        optimizer.minimize(tf.add_n([tf.reduce_sum(weight**2) for weight in weights]))
        for weight in weights:
            assert {optimizer.get_slot(weight, name).device for name in ("m", "v")} == {weight.device}


def test_round_robin_deals_by_count():
    """As `replica_device_setter` does by itself."""
    plan = placement.PlacementPlan("round_robin")
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE, plan):
        variables = [tf.get_variable(f"v{index}", [size]) for index, size in enumerate([1000, 1, 1000, 1])]
    assert [tf.DeviceSpec.from_string(variable.device).task for variable in variables] == [0, 1, 0, 1]


def parts_of(num_ps, partition_bytes, shape):
    """Returns (ps, bytes) of each part of a variable of that shape, or of the whole one."""
    plan = placement.PlacementPlan(partition_bytes=partition_bytes)
    with tf.Graph().as_default(), placement.on_cluster(cluster(num_ps), WORKER_DEVICE, plan):
        tf.get_variable("v", shape)
        return [(tf.DeviceSpec.from_string(variable.device).task, placement.variable_bytes(variable.op))
                for variable in tf.global_variables()]


@pytest.mark.parametrize(("num_ps", "partition_bytes", "shape", "expected"), [
    (4, 1000, [1000, 10], [(0, 10000), (1, 10000), (2, 10000), (3, 10000)]),
    (4, 20000, [1000, 10], [(0, 20000), (1, 20000)]),
    (4, 40000, [1000, 10], [(0, 40000)]),
    (4, 100, [3, 1000], [(0, 4000), (1, 4000), (2, 4000)]),
    (2, 1, [], [(0, 4)]),
    (4, 0, [1000, 10], [(0, 40000)]),
], ids=["a part for each ps", "as few as needed", "small enough", "few rows", "scalar", "off"])
def test_a_large_variable_is_cut_into_parts(num_ps, partition_bytes, shape, expected):
    """Equal ones, at most one for each ps."""
    assert parts_of(num_ps, partition_bytes, shape) == expected


def run_without_servers(graph, initialise, tensor):
    """Returns the value of a tensor, in a session that computes the same on this process's devices."""
    nodes = graph.as_graph_def()
    for node in nodes.node:
        node.device = ""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(nodes, name="")
        session.run(initialise.name)
        return session.run(tensor.name)


def values_of(initializer, num_ps, **arguments):
    """Returns the initial value [6, 3] of a variable in as many parts."""
    plan = placement.PlacementPlan(partition_bytes=1)
    with tf.Graph().as_default() as graph, placement.on_cluster(cluster(num_ps), WORKER_DEVICE, plan):
        tf.set_random_seed(5)
        variable = tf.get_variable("v", [6, 3], initializer=initializer, **arguments)
        assert len(tf.global_variables()) == num_ps
        value = tf.convert_to_tensor(variable)
        initialise = tf.global_variables_initializer()
    return run_without_servers(graph, initialise, value)


@pytest.mark.parametrize("initializer", [
    tf.constant_initializer(np.arange(18.0).reshape(6, 3)), tf.orthogonal_initializer(seed=1),
    lambda shape, dtype: tf.reshape(tf.range(18.0), shape), lambda shape, dtype: tf.random.uniform(shape, seed=3)],
    ids=["array", "orthogonal", "function", "function with a seed"])
def test_the_parts_together_begin_with_what_the_whole_would(initializer):
    """What does not know that it makes a part makes the whole, of which the part is taken."""
    np.testing.assert_array_equal(values_of(initializer, 2), values_of(initializer, 1))


@pytest.mark.parametrize("initializer", [
    tf.random_uniform_initializer(seed=7), tf.glorot_uniform_initializer, tf.glorot_normal_initializer(seed=7), None])
def test_each_part_draws_other_numbers(initializer):
    """With a seed, too; and again the same ones in another run with it."""
    value = values_of(initializer, 3)
    assert len(np.unique(value)) == 18
    np.testing.assert_array_equal(values_of(initializer, 3), value)


@pytest.mark.parametrize("regularizer", [
    lambda value: tf.reduce_mean(tf.square(value)), tf.norm, tf.nn.l2_loss], ids=["mean", "norm", "sum"])
def test_parts_have_the_regularization_loss_of_the_whole(regularizer):
    """Once, though the model asks twice. Issue: each part had its own, whose sum is another loss."""
    values = []
    for num_ps in (1, 2):
        plan = placement.PlacementPlan(partition_bytes=1)
        with tf.Graph().as_default() as graph, placement.on_cluster(cluster(num_ps), WORKER_DEVICE, plan):
            for _ in range(2):
                with tf.variable_scope("scope", reuse=tf.AUTO_REUSE, regularizer=regularizer):
                    tf.get_variable("v", [4, 3], initializer=tf.constant_initializer(np.arange(12.0)))
            assert len(tf.global_variables()) == num_ps
            (loss,) = tf.losses.get_regularization_losses()
            values.append(run_without_servers(graph, tf.global_variables_initializer(), loss))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)


def test_a_variable_that_is_made_in_a_loop_has_its_loss_outside():
    """As the cells of `dynamic_rnn` are. Issue: the loss could not be collected, as it was a tensor of the loop."""
    with tf.Graph().as_default(), placement.on_cluster(
            cluster(2), WORKER_DEVICE, placement.PlacementPlan(partition_bytes=64)):
        with tf.variable_scope("scope", regularizer=tf.nn.l2_loss):
            _, output = tf.while_loop(lambda step, _: step < 3, lambda step, state: (
                step + 1, tf.matmul(state, tf.get_variable("v", [8, 8]))), [0, tf.ones([2, 8])])
        assert len(tf.global_variables()) == 2
        loss = tf.reduce_mean(output) + tf.losses.get_regularization_loss()
        assert None not in tf.gradients(loss, tf.trainable_variables())


def test_a_regularizer_may_add_no_loss():
    """As TensorFlow allows it to return None."""
    with tf.Graph().as_default(), placement.on_cluster(
            cluster(2), WORKER_DEVICE, placement.PlacementPlan(partition_bytes=1)):
        tf.get_variable("v", [4, 3], regularizer=lambda value: None)
        assert tf.losses.get_regularization_losses() == []


def test_a_variable_with_a_constraint_is_not_cut(caplog):
    """It holds for the whole, elements that add up to one, for example; and the user reads why the ps has it all."""
    plan = placement.PlacementPlan(partition_bytes=1)
    with tf.Graph().as_default(), placement.on_cluster(cluster(2), WORKER_DEVICE, plan):
        tf.get_variable("v", [6], constraint=lambda value: value / tf.reduce_sum(value))
        assert len(tf.global_variables()) == 1
    assert "v stays in one part" in caplog.text


def test_one_large_variable_among_small_ones_fills_four_ps_alike():
    """The fullest ps has at most 1.1 times the mean."""
    plan = placement.PlacementPlan(partition_bytes=100_000)
    with tf.Graph().as_default(), placement.on_cluster(cluster(4), WORKER_DEVICE, plan):
        tf.get_variable("large", [100_003, 16])
        for index in range(7):
            tf.get_variable(f"small{index}", [1000 * (index + 1)])
        loads = [0] * 4
        for variable in tf.global_variables():
            loads[tf.DeviceSpec.from_string(variable.device).task] += placement.variable_bytes(variable.op)
    assert max(loads) <= 1.1 * sum(loads) / 4


@pytest.mark.parametrize(("shapes", "num_ps", "partition_bytes", "expected"), [
    ([[784, 100], [100], [100, 10], [10]], 2, 0,
     "79,510 parameters in 4 variables (318 kB); 954 kB with the optimizer's slots, on 2 ps"),
    ([[3]], 1, 0, "3 parameters in 1 variable (12 B); 52 B with the optimizer's slots, on 1 ps"),
    ([[1000, 1000], [5]], 4, 1_000_000,
     "1,000,005 parameters in 2 variables (4 MB); 12 MB with the optimizer's slots, on 4 ps"),
])
def test_the_summary_counts_parameters_and_bytes(shapes, num_ps, partition_bytes, expected):
    """With the global step and Adam's slots in addition to the model; a variable in parts counts once."""
    with tf.Graph().as_default(), placement.on_cluster(
            cluster(num_ps), WORKER_DEVICE, placement.PlacementPlan(partition_bytes=partition_bytes)):
        tf.train.create_global_step()
        loss = tf.add_n([tf.reduce_sum(tf.get_variable(f"v{index}", shape)) for index, shape in enumerate(shapes)])
        tf.train.AdamOptimizer().minimize(loss)
        assert placement.model_summary(tf.global_variables(), num_ps) == expected
