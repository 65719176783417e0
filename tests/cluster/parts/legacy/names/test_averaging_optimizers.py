"""Optimizers of tf.contrib.opt whose workers train alone for some steps: on servers in this process, against numpy.

The same script on TensorFlow 1.15.5 had the same numbers, for SGD, momentum and Adam, and the same names.
"""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.names.averaging_optimizers import (
    AGNCustomGetter,
    AGNOptimizer,
    ModelAverageCustomGetter,
    ModelAverageOptimizer,
)
from tests.tensorflow_mode import tf

RATE, PERIOD = 0.1, 3
INITIAL = np.array([1.0, -2.0], np.float32)
AIMS = (np.array([3.0, 0.0], np.float32), np.array([-1.0, 4.0], np.float32))  # of each worker
DEADLINE_SECS = 60


class Worker:
    """The graph and the session of one worker of a cluster."""

    def __init__(self, cluster, number, getter_class, make, *, is_resource=True):
        self.graph = tf.Graph()
        device = f"/job:worker/task:{number}"
        with self.graph.as_default():
            self.getter = getter_class(device)
            with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=device)):
                self.step = tf.train.create_global_step()
                with tf.variable_scope("", custom_getter=self.getter, use_resource=is_resource):
                    self.x = tf.get_variable("x", initializer=INITIAL)
                    tf.get_variable("untrained", initializer=7.0, trainable=False)
                    tf.get_variable("own", initializer=7.0, trainable=False,
                                    collections=[tf.GraphKeys.LOCAL_VARIABLES])
            with tf.device(device):
                self.optimizer = make(tf.train.MomentumOptimizer(RATE, 0.9), number, self.getter)
                self.train_op = self.optimizer.minimize(tf.reduce_sum((self.x - AIMS[number]) ** 2) / 2, self.step)
            self.session = tf.Session(cluster.target("worker", number))
            if number == 0:
                self.session.run(tf.global_variables_initializer())
            self.session.run(tf.local_variables_initializer())

    def devices(self, variables):
        """Returns name -> job, of variables."""
        with self.graph.as_default():
            return {each.op.name: each.device.split("/")[1] for each in variables()}

    def values(self, *names):
        """Returns the values of variables."""
        with self.graph.as_default():
            by_name = {each.op.name: each for each in tf.global_variables() + tf.local_variables()}
        return self.session.run([by_name[name] for name in names])


def make_average(inner, number, getter):
    """Returns the optimizer of a worker of two."""
    return ModelAverageOptimizer(inner, 2, number == 0, getter, interval_steps=PERIOD)


def make_agn(inner, number, getter):
    """Returns the optimizer of a worker of two."""
    del number
    return AGNOptimizer(inner, 2, getter, communication_period=PERIOD)


def run_together(workers):
    """Lets each worker take a step, at the same time."""
    threads = [threading.Thread(target=worker.session.run, args=(worker.train_op,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECS)
        assert not thread.is_alive(), "a worker waits for ever"


both_kinds = pytest.mark.parametrize("is_resource", [True, False])


@both_kinds
def test_model_averaging_equals_numpy(start_servers, is_resource):
    """After three steps of each worker, both go on with the mean, which is the center's value."""
    cluster = start_servers(1, 2)
    workers = [Worker(cluster, number, ModelAverageCustomGetter, make_average, is_resource=is_resource)
               for number in range(2)]
    x, momentum, center = np.stack([INITIAL, INITIAL]), np.zeros((2, 2)), INITIAL
    for step in range(1, 2 * PERIOD + 2):
        run_together(workers)
        momentum = 0.9 * momentum + x - AIMS
        x = x - RATE * momentum
        if step % PERIOD == 0:
            center = x.mean(0)
            x = np.stack([center, center])
        for worker, own, kept in zip(workers, x, momentum):
            found = worker.values("x", "global_center_variable/x", "x/Momentum", "global_step", "local_step")
            np.testing.assert_allclose(found[:3], [own, center, kept], rtol=1e-5)
            assert found[3:] == [step // PERIOD, step]


def test_the_chief_has_its_slots_among_what_is_saved(start_servers, tmp_path):
    """As in TensorFlow 1. Nobody waits for them: they are local variables of each worker."""
    cluster = start_servers(1, 2)
    chief, other = (Worker(cluster, number, ModelAverageCustomGetter, make_average) for number in range(2))
    shared = {"global_center_variable/x": "job:ps", "global_step": "job:ps", "untrained": "job:ps"}
    own = dict.fromkeys(("local_step", "own", "x"), "job:worker")
    for worker, slots in ((chief, ["x/Momentum"]), (other, [])):
        assert worker.devices(tf.global_variables) == shared
        assert worker.devices(tf.local_variables) == {**own, "x/Momentum": "job:worker"}
        with worker.graph.as_default():
            path = tf.train.Saver().save(worker.session, str(tmp_path / "model"))
        assert sorted(name for name, _ in tf.train.list_variables(path)) == sorted([*shared, *slots])


def test_a_chief_that_starts_again_waits_for_nobody(start_servers):
    """While the parameters are in use; its slots were global variables that nobody initialized."""
    cluster = start_servers(1, 2)
    Worker(cluster, 0, ModelAverageCustomGetter, make_average)  # has initialized what is on the ps
    again = Worker(cluster, 1, ModelAverageCustomGetter, lambda inner, _, getter: make_average(inner, 0, getter))
    with again.graph.as_default():
        manager = tf.train.SessionManager(
            local_init_op=tf.local_variables_initializer(), ready_op=tf.report_uninitialized_variables(),
            ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()), recovery_wait_secs=1)
    with manager.wait_for_session(cluster.target("worker", 1), max_wait_secs=10) as session:
        session.run(again.train_op)
    assert again.values("local_step") == [1]


def test_a_worker_waits_for_the_others_at_the_average(start_servers):
    """The chief's third step ends only when the other worker has made its own."""
    cluster = start_servers(1, 2)
    workers = [Worker(cluster, number, ModelAverageCustomGetter, make_average) for number in range(2)]
    chief = workers[0]
    for _ in range(PERIOD - 1):
        chief.session.run(chief.train_op)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (chief.session.run(chief.train_op), done.set()), daemon=True)
    thread.start()
    for _ in range(PERIOD - 1):
        workers[1].session.run(workers[1].train_op)
    assert not done.wait(0.5)
    workers[1].session.run(workers[1].train_op)
    assert done.wait(DEADLINE_SECS)


def test_a_worker_of_a_cluster_warns_of_those_that_are_missing_at_the_average(monkeypatch):
    """The average waits for them without a bound."""
    member = types.SimpleNamespace(update_services=[])
    monkeypatch.setattr(membership, "_current", [member])
    with tf.Graph().as_default():
        getter = ModelAverageCustomGetter("/cpu:0")
        with tf.variable_scope("", custom_getter=getter):
            x = tf.get_variable("x", initializer=INITIAL)
        make_average(tf.train.GradientDescentOptimizer(RATE), 0, getter).minimize(
            tf.reduce_sum(x), tf.train.create_global_step())
    assert [type(service).__name__ for service in member.update_services] == ["MissingWarning"]


def test_the_init_op_takes_over_the_centers_and_the_hook_does_not(start_servers):
    """TensorFlow 1.15's hook makes the operation only."""
    worker = Worker(start_servers(1, 1), 0, ModelAverageCustomGetter, make_average)
    with worker.graph.as_default():
        init_op, hook = worker.optimizer.get_init_op(), worker.optimizer.make_session_run_hook()
        worker.session.run(worker.getter.center_of(worker.x).assign([5.0, 6.0]).op)
        hook.begin()
    hook.after_create_session(worker.session, None)
    np.testing.assert_array_equal(worker.values("x")[0], INITIAL)
    worker.session.run(init_op)
    np.testing.assert_array_equal(worker.values("x")[0], [5, 6])


def test_a_center_begins_with_the_value_of_the_chief(start_servers):
    """Also where it is drawn at random."""
    cluster = start_servers(1, 1)
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as session:
        getter = ModelAverageCustomGetter("/job:worker/task:0")
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")), \
                tf.variable_scope("model", custom_getter=getter):
            x = tf.get_variable("x", [3], initializer=tf.random_normal_initializer())
        session.run(tf.local_variables_initializer())
        session.run(tf.global_variables_initializer())
        own, center = session.run([x, getter.center_of(x)])
        assert getter.center_of(x).op.name == "global_center_variable/model/x"
    np.testing.assert_array_equal(own, center)


@both_kinds
def test_accumulated_gradient_normalization_equals_numpy(start_servers, is_resource):
    """Two workers in turn: their variables, the sums of gradients, the center and its slot."""
    cluster = start_servers(1, 2)
    workers = [Worker(cluster, number, AGNCustomGetter, make_agn, is_resource=is_resource) for number in range(2)]
    for number, worker in enumerate(workers):
        with worker.graph.as_default():
            hook = worker.optimizer.make_session_run_hook(number == 0, number)
            hook.begin()
        hook.after_create_session(worker.session, None)
    center, center_momentum, steps = INITIAL.copy(), np.zeros(2), 0
    x, momentum, total, taken = np.stack([INITIAL, INITIAL]), np.zeros((2, 2)), np.zeros((2, 2)), [0, 0]
    for turn in range(12):
        number = turn % 3 % 2  # the first worker is the faster one
        workers[number].session.run(workers[number].train_op)
        gradient = x[number] - AIMS[number]
        momentum[number] = 0.9 * momentum[number] + gradient
        x[number] -= RATE * momentum[number]
        total[number] += gradient
        taken[number] += 1
        if taken[number] % PERIOD == 0:
            center_momentum = 0.9 * center_momentum + total[number] / PERIOD
            center = center - RATE * center_momentum
            x[number], total[number], steps = center, 0, steps + 1
        found = workers[number].values("x", "grad_variable/x", "x/Momentum", "global_center_variable/x",
                                       "global_center_variable/x/Momentum", "global_step")
        np.testing.assert_allclose(found[:5], [x[number], total[number], momentum[number], center, center_momentum],
                                   rtol=1e-4, atol=1e-5)
        assert found[5] == steps
    assert steps == 3


def test_agn_shares_the_centers_and_their_slots(start_servers):
    """What a worker has alone are local variables."""
    worker = Worker(start_servers(1, 1), 0, AGNCustomGetter, make_agn)
    assert worker.devices(tf.global_variables) == {
        "global_center_variable/x": "job:ps", "global_center_variable/x/Momentum": "job:ps", "global_step": "job:ps",
        "untrained": "job:ps"}
    assert worker.devices(tf.local_variables) == {
        "grad_variable/x": "job:worker", "local_step": "job:worker", "own": "job:ps", "x": "job:worker",
        "x/Momentum": "job:worker"}


def test_agn_has_a_center_for_each_part_of_a_variable():
    """And takes sparse gradients, of which it keeps the dense sum."""
    with tf.Graph().as_default(), tf.Session() as session:
        getter = AGNCustomGetter("/cpu:0")
        with tf.variable_scope("", custom_getter=getter, partitioner=tf.fixed_size_partitioner(2)):
            x = tf.get_variable("x", initializer=tf.constant(np.arange(8.0).reshape(4, 2)))
        optimizer = AGNOptimizer(tf.train.GradientDescentOptimizer(RATE), 1, getter, communication_period=2)
        train_op = optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(x, [0, 0, 3], partition_strategy="div")))
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(optimizer.get_init_op(0))
        session.run(train_op)
        sums = [getter.centers_of(part)[1] for part in tf.trainable_variables()]
        assert [each.op.name for each in sums] == ["grad_variable/x/part_0", "grad_variable/x/part_1"]
        np.testing.assert_array_equal(np.concatenate(session.run(sums)), [[2, 2], [0, 0], [0, 0], [1, 1]])
        session.run(train_op)
        expected = np.arange(8.0).reshape(4, 2) - RATE * np.array([[2, 2], [0, 0], [0, 0], [1, 1]])
        np.testing.assert_allclose(session.run(tf.convert_to_tensor(x)), expected)


@pytest.mark.parametrize("getter_class, make", [
    (ModelAverageCustomGetter, make_average), (AGNCustomGetter, make_agn)])
def test_a_variable_of_elsewhere_is_refused_by_name(getter_class, make):
    """It has no center."""
    with tf.Graph().as_default():
        x = tf.get_variable("x", initializer=INITIAL)
        optimizer = make(tf.train.GradientDescentOptimizer(RATE), 0, getter_class("/job:worker/task:0"))
        with pytest.raises(ValueError, match="x was not made by tf.get_variable below"):
            optimizer.minimize(tf.reduce_sum(x), tf.train.create_global_step())


def test_an_average_needs_gradients_and_the_global_step():
    """These are errors of one line."""
    with tf.Graph().as_default():
        optimizer = make_average(tf.train.GradientDescentOptimizer(RATE), 0, ModelAverageCustomGetter("/cpu:0"))
        with pytest.raises(ValueError, match="has no variable"):
            optimizer.apply_gradients([])
        with pytest.raises(ValueError, match="needs a global_step"):
            optimizer.apply_gradients([(tf.constant(1.0), None)])
