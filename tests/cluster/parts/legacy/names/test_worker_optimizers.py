"""Optimizers of tf.contrib.opt for several workers: on servers in this process, and against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names.worker_optimizers import (
    DropStaleGradientOptimizer,
    ElasticAverageCustomGetter,
    ElasticAverageOptimizer,
)
from tests.tensorflow_mode import tf

RATE, RHO, MOVING_RATE, PERIOD = 0.1, 0.5, 0.25, 2
INITIAL = np.array([1.0, -2.0], np.float32)
AIMS = (np.array([3.0, 0.0], np.float32), np.array([-1.0, 4.0], np.float32))  # of each worker


class Delayed(tf.train.GradientDescentOptimizer):
    """While it computes gradients, other workers take steps: as many as `others` says."""

    def __init__(self, others):
        super().__init__(RATE)
        self._others = others

    def compute_gradients(self, loss, *args, **kwargs):
        with tf.control_dependencies([tf.train.get_global_step().assign_add(self._others)]):
            return super().compute_gradients(tf.identity(loss), *args, **kwargs)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_gradient_that_is_too_old_is_left_out_and_counted(is_sparse):
    """With staleness=2: those of 0, 2, 3, 5 and 1 steps ago; only those that count raise the step themselves."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step()
        x = tf.get_variable("x", initializer=INITIAL)
        others = tf.placeholder(tf.int64, [])
        optimizer = DropStaleGradientOptimizer(Delayed(others), staleness=2)
        value = tf.gather(x, [0, 1]) if is_sparse else x
        train_op = optimizer.minimize(tf.reduce_sum(value), step)
        counter = next(each for each in tf.global_variables() if each.op.name == "stale_counter")
        session.run(tf.global_variables_initializer())
        found = []
        for late in (0, 2, 3, 5, 1):
            session.run(train_op, {others: late})
            found.append(session.run([x[0], counter, step]))
        assert optimizer.get_slot_names() == [] and optimizer.variables() == []
    np.testing.assert_allclose(found, [[0.9, 0, 1], [0.8, 0, 4], [0.8, 1, 7], [0.8, 2, 12], [0.7, 2, 14]], rtol=1e-6)


def test_a_stale_gradient_needs_the_global_step():
    """It is an error of one line."""
    with tf.Graph().as_default():
        tf.train.create_global_step()
        x = tf.get_variable("x", initializer=INITIAL)
        with pytest.raises(ValueError, match="pass the global step"):
            DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(RATE), 2).minimize(tf.reduce_sum(x))


class Worker:
    """The graph and the session of one worker of a cluster."""

    def __init__(self, cluster, number, *, synchronous=False):
        self.graph = tf.Graph()
        device = f"/job:worker/task:{number}"
        with self.graph.as_default():
            getter = ElasticAverageCustomGetter(device)
            with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=device)):
                self.step = tf.train.create_global_step()
                with tf.variable_scope("", custom_getter=getter):
                    self.x = tf.get_variable("x", initializer=INITIAL)
                    tf.get_variable("untrained", initializer=7.0, trainable=False)
            loss = tf.reduce_sum((self.x - AIMS[number]) ** 2) / 2
            with tf.device(device):
                self.optimizer = optimizer = ElasticAverageOptimizer(
                    tf.train.MomentumOptimizer(RATE, 0.9), num_worker=2, ea_custom_getter=getter,
                    communication_period=PERIOD, moving_rate=MOVING_RATE, rho=RHO, synchronous=synchronous)
                self.train_op = optimizer.minimize(loss, self.step)
            self.center, _ = getter.centers_of(self.x)
            self.saver = optimizer.swapping_saver()
            self.hook = optimizer.make_session_run_hook(number == 0, number)
            self.hook.begin()
            self.session = tf.Session(cluster.target("worker", number))
            if number == 0:
                self.session.run(tf.global_variables_initializer())
            self.session.run(tf.local_variables_initializer())

    def start(self):
        """Takes over the centers."""
        self.hook.after_create_session(self.session, None)
        return self


class Oracle:
    """Elastic averaging of one variable, by numpy."""

    def __init__(self, aim, center):
        self.x, self.copy, self.momentum, self.steps = center.copy(), center.copy(), np.zeros(2, np.float32), 0
        self._aim = aim

    def train(self, center):
        """Takes a step, which may change the center in place; returns whether it did."""
        gradient = self.x - self._aim + RHO * (self.x - self.copy)
        self.momentum = 0.9 * self.momentum + gradient
        self.x -= RATE * self.momentum
        self.steps += 1
        if self.steps % PERIOD:
            return False
        self.copy = center.copy()
        change = MOVING_RATE * (self.x - self.copy)
        self.x -= change
        center += change
        return True


def test_elastic_averaging_equals_numpy(start_servers):
    """Two workers in turn: their variables, the center, the global step and which variables are shared."""
    cluster = start_servers(1, 2)
    workers = [Worker(cluster, number) for number in range(2)]
    for worker in workers:
        worker.start()
        with worker.graph.as_default():
            assert sorted(each.op.name for each in tf.global_variables()) == [
                "global_center_variable/x", "global_step", "untrained"]
            assert worker.x.device.startswith("/job:worker") and "/job:ps" in worker.center.device
    center, step = INITIAL.copy(), 0
    oracles = [Oracle(aim, center) for aim in AIMS]
    for turn in range(10):
        number = turn % 3 % 2  # the first worker is the faster one
        workers[number].session.run(workers[number].train_op)
        step += oracles[number].train(center)
        for worker, oracle in zip(workers, oracles):
            found = worker.session.run([worker.x, worker.center, worker.step])
            np.testing.assert_allclose(np.concatenate(found[:2]), np.concatenate([oracle.x, center]), rtol=1e-5)
            assert found[2] == step
    assert step == 4


def test_the_swapping_saver_saves_the_center_under_the_variable_s_name(start_servers, tmp_path):
    """So a graph without the optimizer restores what the workers have trained together."""
    worker = Worker(start_servers(1, 1), 0).start()
    for _ in range(3):
        worker.session.run(worker.train_op)
    center, own = worker.session.run([worker.center, worker.x])
    with worker.graph.as_default():
        for number, saver in enumerate((worker.saver, worker.optimizer.swapping_saver({"x": worker.x}))):
            path = saver.save(worker.session, str(tmp_path / f"model{number}"))
            np.testing.assert_array_equal(tf.train.load_checkpoint(path).get_tensor("x"), center)
    assert np.abs(center - own).min() > 0.01


def test_the_parts_of_a_variable_are_saved_as_one(tmp_path):
    """A graph without parts restores them."""
    with tf.Graph().as_default(), tf.Session() as session:
        getter = ElasticAverageCustomGetter("/cpu:0")
        with tf.variable_scope("", custom_getter=getter, partitioner=tf.fixed_size_partitioner(2)):
            x = tf.get_variable("x", initializer=tf.constant(np.arange(4.0)))
        optimizer = ElasticAverageOptimizer(tf.train.GradientDescentOptimizer(RATE), 1, getter)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run([part.assign_add([10.0, 10.0]) for part in tf.trainable_variables()])
        for number, variables in enumerate((None, [x])):
            path = optimizer.swapping_saver(variables).save(session, str(tmp_path / f"model{number}"))
            np.testing.assert_array_equal(tf.train.load_checkpoint(path).get_tensor("x"), np.arange(4.0))


def test_synchronous_workers_wait_for_each_other_before_their_first_step(start_servers):
    """The first one's call ends only when the second one has made its own."""
    cluster = start_servers(1, 2)
    workers = [Worker(cluster, number, synchronous=True) for number in range(2)]
    for worker in workers:
        worker.session = tf.Session(worker.session.sess_str, worker.graph,
                                    tf.ConfigProto(operation_timeout_in_ms=500))
    with pytest.raises(tf.errors.DeadlineExceededError):
        workers[0].start()
    workers[1].start()  # the first one's token is there


def test_a_variable_of_elsewhere_is_refused_by_name():
    """It has no center."""
    with tf.Graph().as_default():
        getter = ElasticAverageCustomGetter("/job:worker/task:0")
        x = tf.get_variable("x", initializer=INITIAL)
        optimizer = ElasticAverageOptimizer(tf.train.GradientDescentOptimizer(RATE), 1, getter)
        with pytest.raises(ValueError, match="x was not made by tf.get_variable below"):
            optimizer.compute_gradients(tf.reduce_sum(x))


@pytest.mark.parametrize("partitions", [None, 2])
def test_partitioned_variables_have_a_center_for_each_part(partitions):
    """And those that are used again have the same one."""
    with tf.Graph().as_default():
        getter = ElasticAverageCustomGetter("/job:worker/task:0")
        partitioner = tf.fixed_size_partitioner(partitions) if partitions else None
        with tf.variable_scope("model", custom_getter=getter, partitioner=partitioner):
            tf.get_variable("x", [4])
        names = [each.op.name for each in tf.trainable_variables()]
        centers = [getter.centers_of(each)[0].op.name for each in tf.trainable_variables()]
        with tf.variable_scope("model", custom_getter=getter, partitioner=partitioner, reuse=True):
            tf.get_variable("x", [4])
    assert len(names) == (partitions or 1)
    assert centers == [f"global_center_variable/{name}" for name in names]
