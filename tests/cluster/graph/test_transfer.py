"""Dense variables travel fused, checked against what happens without."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from ps_train.graph import transfer
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.tensorflow_mode import tf

PLAIN = transfer.Wire(is_fused=False)
PS = "/job:ps/"


def crossings(graph):
    """Returns the parameters and gradients that travel between a ps and a worker in a step, as (from, to) jobs."""
    def job(op):
        return tf.DeviceSpec.from_string(op.device).job

    step = transfer.upstream([graph.steps.single.progress, *(op.outputs[0] for op in [graph.steps.single.loss.op])])
    tensors = {tensor: job(op) for op in step for tensor in op.inputs
               if job(op) != job(tensor.op) and tensor.dtype != tf.resource}
    return [(job(tensor.op), to) for tensor, to in tensors.items()
            if tensor.dtype.is_floating and tensor.shape.num_elements() != 1]


def many_variables_model(count=6):
    """Returns a model with that many small variables; its gradients differ from variable to variable."""
    def model_fn(features, labels, mode, params):
        variables = [tf.get_variable(f"v{index}", [4], initializer=tf.ones_initializer()) for index in range(count)]
        factors = [tf.linalg.matvec(features, variable) / (index + 1.0) for index, variable in enumerate(variables)]
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(tf.add_n(factors) - labels)))

    return clusters.contracts.Model("many", model_fn, {})


@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_a_step_makes_one_transfer_each_way_for_each_ps(gradients):
    """Two ps and six variables: two tensors to the worker, two back; without fusing, six each way."""
    cluster = clusters.GraphCluster(2, 1)
    fused = clusters.build_graph(cluster, 0, gradients, model=many_variables_model())
    assert sorted(crossings(fused)) == sorted([("ps", "worker"), ("worker", "ps")] * 2)
    plain = clusters.build_graph(cluster, 0, gradients, model=many_variables_model(), wire=PLAIN)
    assert len(crossings(plain)) == 2 * 6


def test_summaries_cost_a_round_no_transfers():
    """The loss of the single step, which they tell, is computed from what the round has pulled; else by six reads."""
    built = clusters.build_graph(clusters.GraphCluster(2, 1), 0, model=many_variables_model(), period=Period(5))
    besides = set(transfer.upstream([built.summary_op])) - set(transfer.upstream([built.steps.single.progress]))
    types = {op.type for op in besides}
    assert "MatMul" in types or "BatchMatMulV2" in types, "they do compute the loss"
    assert "ReadVariableOp" not in types


def transfers(session, fetches):
    """Returns (from, to) job -> tensors that a session run sends between tasks, as TensorFlow cuts its graph."""
    cut = tf.RunMetadata()
    session.run(fetches, options=tf.RunOptions(output_partition_graphs=True), run_metadata=cut)
    devices = [[tf.DeviceSpec.from_string(node.attr[end].s.decode()) for end in ("send_device", "recv_device")]
               for part in cut.partition_graphs for node in part.node
               if node.op == "_Recv" and not node.attr["client_terminated"].b]
    return collections.Counter((sender.job, receiver.job) for sender, receiver in devices
                               if (sender.job, sender.task) != (receiver.job, receiver.task))


@pytest.mark.optimised
@pytest.mark.parametrize(("num_ps", "period", "gradients", "expected"), [
    (1, 1, None, {("ps", "worker"): 2, ("worker", "ps"): 1}),
    (1, 20, None, {("ps", "worker"): 3, ("worker", "ps"): 2}),
    (1, 1, 1, {("ps", "worker"): 2, ("worker", "ps"): 1}),
    (1, 20, 1, {("ps", "worker"): 3, ("worker", "ps"): 2}),
    (2, 1, None, {("ps", "worker"): 3, ("worker", "ps"): 2, ("ps", "ps"): 3}),
    (2, 20, None, {("ps", "worker"): 4, ("worker", "ps"): 3, ("ps", "ps"): 2}),
    (2, 1, 1, {("ps", "worker"): 3, ("worker", "ps"): 2, ("ps", "ps"): 6})])
def test_a_session_run_makes_no_transfers_but_those_that_it_needs(start_servers, num_ps, period, gradients, expected):
    """Parameters, gradients and progress; a round of local steps besides its length and what it took.

    Of two ps each sends and gets its own, ps 0 waits for the other one's change, and Adam's two powers are on ps 0. In
    sync, with the update in the same run, ps 1 also gets the step of its gradients and the time to update; in
    async it gets the share of a round's change.
    """
    training = bare_training.BareTraining(start_servers(num_ps, 1), gradients=gradients, optimizer_name="adam",
                                          period=Period(period))
    assert transfers(training.session, [training.graph.steps.single.progress, *training.updates]) == expected


@pytest.mark.optimised
@pytest.mark.parametrize("gradients", [None, 1], ids=["async", "sync"])
def test_fused_and_plain_training_end_with_the_same_values(tmp_path, start_servers, gradients):
    """Fifty steps of Adam, bit for bit; the checkpoints have the same variables."""
    assert_equal(*(bare_training.checkpoint_of(
        start_servers(2, 1), tmp_path / str(wire.is_fused), 50, gradients=gradients, wire=wire, optimizer_name="adam",
        model=many_variables_model()) for wire in (transfer.Wire(), PLAIN)))


def assert_equal(one, other, rtol=0.0):
    """Compares two checkpoints."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=rtol, err_msg=name)


@pytest.mark.parametrize(("gradients", "period"), [(None, 1), (1, 1), (None, 5)], ids=["async", "sync", "rounds"])
def test_variables_of_the_old_kind_travel_one_by_one(tmp_path, start_servers, gradients, period):
    """use_resource=False, next to another one: training comes to the same."""
    def model(is_resource):
        def model_fn(features, labels, mode, params):
            weights, bias = (tf.get_variable(name, shape, initializer=tf.zeros_initializer(), use_resource=use)
                             for name, shape, use in (("weights", [4], is_resource), ("bias", [], None)))
            return clusters.ps_train.ModelSpec(
                loss=tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) + bias - labels)))

        return clusters.contracts.Model("of two kinds", model_fn, {})

    assert_equal(*(bare_training.checkpoint_of(
        start_servers(1, 1), tmp_path / str(is_resource), 20, gradients=gradients, model=model(is_resource),
        optimizer_name="adam", period=Period(period)) for is_resource in (False, True)), rtol=1e-6)


def test_a_sparse_variable_is_looked_up_on_its_ps():
    """Only the rows travel, fused or not, and its gradient stays IndexedSlices."""
    def model_fn(features, labels, mode, params):
        table = tf.get_variable("table", [1000, 2], initializer=tf.ones_initializer())
        scale, shift = tf.get_variable("scale", [2]), tf.get_variable("shift", [2])
        rows = tf.nn.embedding_lookup(table, tf.cast(tf.abs(features[:, 0]), tf.int32)) * scale + shift
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.reduce_sum(rows, axis=1) - labels))

    built = clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=clusters.contracts.Model("lookup", model_fn, {}))
    step = transfer.upstream([built.steps.single.progress])
    assert not [tensor for op in step for tensor in op.inputs if tensor.shape == [1000, 2] and PS in tensor.op.device]
    assert "ResourceScatterAdd" in {op.type for op in step}


def test_reads_that_the_model_orders_itself_are_left_alone():
    """A read under `control_dependencies`, or in a branch, sees what it is meant to see."""
    with tf.Graph().as_default(), tf.Session() as session:
        first = tf.get_variable("first", initializer=[1.0, 2.0])
        second = tf.get_variable("second", initializer=[3.0])
        with tf.control_dependencies([first.assign([10.0, 20.0])]):
            after = tf.identity(first.read_value())
        branch = tf.cond(tf.constant(True), lambda: tf.reduce_sum(second), lambda: 0.0)
        loss = tf.reduce_sum(first * after) + branch + tf.reduce_sum(second)
        pairs = transfer.fuse(loss, [(tf.ones([2]), first), (tf.ones([1]), second)], transfer.Wire())[0]
        session.run(tf.global_variables_initializer())
        assert [value.tolist() for value in session.run([gradient for gradient, _ in pairs])] == [[1.0, 1.0], [1.0]]
        reads = [op for op in transfer.upstream([loss]) if op.type == "ReadVariableOp" and op.control_inputs]
        assert reads
        np.testing.assert_array_equal(session.run(after), [10.0, 20.0])


def test_a_transfer_stays_below_the_largest_tensor_that_travels():
    """Up to 1 GiB, of one dtype; a larger variable travels alone. Issue: 2 GiB on a ps were a traceback."""
    rows = 2**20  # 256 bytes each
    with tf.Graph().as_default():
        variables = [tf.get_variable(f"v{number}", shape, initializer=tf.zeros_initializer()) for number, shape in
                     enumerate([[3 * rows, 64], [rows, 64], [1], [5 * rows, 64], [2], [3]])]
        groups = [[variable.op.name for variable in group.variables]
                  for group in transfer.group(variables, transfer.Wire())]
    assert groups == [["v0", "v1"], ["v2"], ["v3"], ["v4", "v5"]]


def push_many(values):
    """Returns what arrives of each of these values, pushed one after the other as bfloat16."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", values[0].shape)
        value = tf.placeholder(tf.float32, values[0].shape)
        together = transfer.Group("", [variable])
        (arrived,) = transfer.push(together, [value], transfer.Wire(tf.bfloat16))
        session.run(tf.local_variables_initializer())
        return [session.run(arrived, {value: one}) for one in values]


def test_what_a_cast_loses_is_sent_later():
    """Each value is rounded; the sum over 100 pushes differs from the exact one by one rounding, not by 100."""
    values = [np.full([3], 0.1 * 1.001, np.float32)] * 100
    arrived = push_many(values)
    assert not np.array_equal(arrived[0], values[0])
    np.testing.assert_allclose(np.sum(arrived, axis=0), np.sum(values, axis=0), atol=2 * 0.1 * 2.0**-8, rtol=1e-6)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38], ids=["inf", "-inf", "nan", "rounded_to_inf"])
def test_what_is_not_finite_is_lost_in_one_push_only(value):
    """Issue: the error of an infinity is NaN, which came with every later push; a dynamic loss scale overflows."""
    values = [np.full([2], 0.1 * 1.001, np.float32) for _ in range(100)]
    values[10][0] = value
    arrived = push_many(values)
    assert not np.isfinite(arrived[10][0])
    np.testing.assert_allclose(np.sum(arrived, axis=0)[1], np.sum(values, axis=0)[1], rtol=0.01)
    np.testing.assert_allclose(np.sum(arrived[11:], axis=0), np.sum(values[11:], axis=0), rtol=0.01)


def test_half_the_bytes_travel_and_the_checkpoint_has_the_ps_own_values(tmp_path, start_servers):
    """The tensors under way are bfloat16; what is saved is not rounded to it, and integers are never cast."""
    training = bare_training.BareTraining(start_servers(2, 1), model=many_variables_model(),
                                          wire=transfer.Wire(tf.bfloat16))
    step = transfer.upstream([training.graph.steps.single.progress])
    travelling = [tensor.dtype for op in step for tensor in op.inputs
                  if ("/job:ps" in op.device) != ("/job:ps" in tensor.op.device) and tensor.shape.num_elements() != 1
                  and tensor.dtype != tf.resource]
    assert set(travelling) == {tf.bfloat16}
    training.train(30)
    training.save(tmp_path)
    saved = clusters.read_checkpoint(tmp_path)
    assert saved["global_step"] == 30
    rounded = saved["v3"].astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)
    assert not np.array_equal(saved["v3"], rounded)


FIRST_PS, WORKER = "/job:ps/task:0/cpu:0", "/job:worker/task:0/cpu:0"


@pytest.fixture
def session(start_servers):
    """Opens a session on a ps and a worker with the graph of the test, once it is asked to."""
    cluster = start_servers(1, 1)
    with tf.Graph().as_default() as graph:
        yield lambda: tf.Session(cluster.target("worker", 0), graph=graph)


def tasks_of(op):
    """Returns the jobs that an operation's inputs come from."""
    return {tf.DeviceSpec.from_string(tensor.op.device).job for tensor in op.inputs}


@pytest.mark.optimised
@pytest.mark.parametrize("value", [2.5, np.arange(6).reshape(2, 3), b"text"], ids=["float", "int array", "bytes"])
def test_a_constant_is_copied_to_each_task_that_reads_it(session, value):
    """Once for a task, however many read it; what is read is the same, bit for bit."""
    with tf.device(WORKER):
        constant = tf.constant(value)
    with tf.device(FIRST_PS):
        readers = [tf.identity(constant), tf.identity(constant)]
    with tf.device(WORKER):
        own = tf.identity(constant)
    transfer.simplify_graph(tf.get_default_graph())
    assert [tasks_of(reader.op) for reader in (*readers, own)] == [{"ps"}, {"ps"}, {"worker"}]
    assert readers[0].op.inputs[0] is readers[1].op.inputs[0]
    with session() as live:
        for read in live.run([*readers, own]):
            np.testing.assert_array_equal(read, value)


@pytest.mark.optimised
def test_a_constant_that_orders_its_reader_or_is_large_stays(session):
    """Its reader may rely on what the constant waits for; and a large one would be there twice."""
    with tf.device(FIRST_PS):
        variable = tf.get_variable("variable", [], initializer=tf.zeros_initializer())
        written = variable.assign(3.0)
    with tf.device(WORKER):
        with tf.control_dependencies([written]):
            ordered = tf.constant(1.0)
        large = tf.constant(np.ones(1000))
    with tf.device(FIRST_PS):
        readers = [tf.identity(ordered), tf.identity(large)]
    transfer.simplify_graph(tf.get_default_graph())
    assert [tasks_of(reader.op) for reader in readers] == [{"worker"}, {"worker"}]


@pytest.mark.optimised
def test_a_loop_reads_from_within_itself(session):
    """A constant that is read in a loop of another task stays where it is, and the loop counts to ten."""
    with tf.device(WORKER):
        limit = tf.constant(10)
    with tf.device(FIRST_PS):
        counted = tf.while_loop(lambda number: number < limit, lambda number: number + 1, [tf.constant(0)])
    transfer.simplify_graph(tf.get_default_graph())
    with session() as live:
        assert live.run(counted) == 10


@pytest.mark.optimised
def test_reads_are_one_only_where_nothing_orders_them(session):
    """Two that may be at any time are one; one before and one after a change see what they saw."""
    with tf.device(FIRST_PS):
        variable = tf.get_variable("variable", [], initializer=tf.ones_initializer())
        early, early_too = variable.read_value() * 1.0, variable.read_value() * 2.0
        with tf.control_dependencies([early, early_too]):
            changed = variable.assign(5.0, read_value=False)
        with tf.control_dependencies([changed]):
            late = variable.read_value() * 3.0
    transfer.simplify_graph(tf.get_default_graph())
    assert early.op.inputs[0].op.inputs[0] is early_too.op.inputs[0].op.inputs[0]
    with session() as live:
        live.run(variable.initializer)
        assert live.run([early, early_too, late]) == [1.0, 2.0, 15.0]
