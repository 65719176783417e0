"""A finished graph is made cheaper, and computes what it did."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from ps_train.graph import simplify
from tests import clusters
from tests.tensorflow_mode import tf

pytestmark = pytest.mark.optimised

PS, WORKER = "/job:ps/task:0/cpu:0", "/job:worker/task:0/cpu:0"


@pytest.fixture
def session(start_servers):
    """Opens a session on a ps and a worker with the graph of the test, once it is asked to."""
    cluster = start_servers(1, 1)
    with tf.Graph().as_default() as graph:
        yield lambda: tf.Session(cluster.target("worker", 0), graph=graph)


def tasks_of(op):
    """Returns the jobs that an operation's inputs come from."""
    return {tf.DeviceSpec.from_string(tensor.op.device).job for tensor in op.inputs}


@pytest.mark.parametrize("value", [2.5, np.arange(6).reshape(2, 3), b"text"], ids=["float", "int array", "bytes"])
def test_a_constant_is_copied_to_each_task_that_reads_it(session, value):
    """Once for a task, however many read it; what is read is the same, bit for bit."""
    with tf.device(WORKER):
        constant = tf.constant(value)
    with tf.device(PS):
        readers = [tf.identity(constant), tf.identity(constant)]
    with tf.device(WORKER):
        own = tf.identity(constant)
    simplify.simplify_graph(tf.get_default_graph())
    assert [tasks_of(reader.op) for reader in (*readers, own)] == [{"ps"}, {"ps"}, {"worker"}]
    assert readers[0].op.inputs[0] is readers[1].op.inputs[0]
    with session() as live:
        for read in live.run([*readers, own]):
            np.testing.assert_array_equal(read, value)


def test_a_constant_that_orders_its_reader_or_is_large_stays(session):
    """Its reader may rely on what the constant waits for; and a large one would be there twice."""
    with tf.device(PS):
        variable = tf.get_variable("variable", [], initializer=tf.zeros_initializer())
        written = variable.assign(3.0)
    with tf.device(WORKER):
        with tf.control_dependencies([written]):
            ordered = tf.constant(1.0)
        large = tf.constant(np.ones(1000))
    with tf.device(PS):
        readers = [tf.identity(ordered), tf.identity(large)]
    simplify.simplify_graph(tf.get_default_graph())
    assert [tasks_of(reader.op) for reader in readers] == [{"worker"}, {"worker"}]


def test_a_loop_reads_from_within_itself(session):
    """A constant that is read in a loop of another task stays where it is, and the loop counts to ten."""
    with tf.device(WORKER):
        limit = tf.constant(10)
    with tf.device(PS):
        counted = tf.while_loop(lambda number: number < limit, lambda number: number + 1, [tf.constant(0)])
    simplify.simplify_graph(tf.get_default_graph())
    with session() as live:
        assert live.run(counted) == 10


def test_reads_are_one_only_where_nothing_orders_them(session):
    """Two that may be at any time are one; one before and one after a change see what they saw."""
    with tf.device(PS):
        variable = tf.get_variable("variable", [], initializer=tf.ones_initializer())
        early, early_too = variable.read_value() * 1.0, variable.read_value() * 2.0
        with tf.control_dependencies([early, early_too]):
            changed = variable.assign(5.0, read_value=False)
        with tf.control_dependencies([changed]):
            late = variable.read_value() * 3.0
    simplify.simplify_graph(tf.get_default_graph())
    assert early.op.inputs[0].op.inputs[0] is early_too.op.inputs[0].op.inputs[0]
    with session() as live:
        live.run(variable.initializer)
        assert live.run([early, early_too, late]) == [1.0, 2.0, 15.0]


def test_adam_reads_its_powers_once_for_all_variables(start_servers):
    """Of a model with 12 variables: two powers, the variables, the global step."""
    def model_fn(features, labels, mode, params):
        parts = [tf.get_variable(f"v{number}", [4]) for number in range(12)]
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, tf.add_n(parts)) - labels))
        return clusters.ps_train.ModelSpec(loss=loss)

    built = clusters.build_graph(start_servers(1, 1), 0, optimizer_name="adam",
                                 model=clusters.contracts.Model("many", model_fn, {}))
    applied = [op for op in built.graph.get_operations() if op.type == "ResourceApplyAdam"]
    reads = collections.Counter(op.inputs[index].op for op in applied for index in (3, 4))
    assert len(applied) == 12 and sorted(reads.values()) == [12, 12], reads
    assert {op.type for op in reads} == {"ReadVariableOp"}
