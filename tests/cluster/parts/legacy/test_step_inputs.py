"""What an update of SyncReplicasOptimizer needs of the workers' steps, on in-process servers."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import ps_train
from ps_train.parts.legacy.classic.step_inputs import WithStepInputs
from ps_train.runtime.threads import Call
from tests import clusters
from tests.tensorflow_mode import tf

RATES = [0.5, 0.25, 0.125, 1.0]
DEADLINE_SECS = 60


class Worker:
    """A script that feeds its gradients and the learning rate, and counts what a step waits for on the ps."""

    def __init__(self, cluster, index, rule, make_rate):
        self.index, self.target = index, cluster.target("worker", index)
        with tf.Graph().as_default() as self.graph, tf.device(tf.train.replica_device_setter(
                worker_device=f"/job:worker/task:{index}", cluster=tf.train.ClusterSpec(cluster.addresses))):
            step = tf.train.create_global_step()
            self.factor = tf.placeholder(tf.float32, [])
            self.rate = make_rate()
            self.weights = tf.get_variable("weights", [2], initializer=tf.zeros_initializer())
            self.batches = tf.get_variable("batches", [2], initializer=tf.zeros_initializer(), trainable=False)
            counted = self.batches.scatter_nd_add([[index]], [tf.sign(self.factor)])
            optimizer = ps_train.SyncReplicasOptimizer(rule(self.rate * 2), 2, 2)
            with tf.control_dependencies([counted]):
                self.train_op = optimizer.minimize(tf.reduce_sum(self.weights) * self.factor, step)
            self.hook = optimizer.make_session_run_hook(index == 0)

    def train(self):
        """Takes a step with each of the rates; returns the weights and the counts at the end."""
        with self.graph.as_default(), tf.train.MonitoredTrainingSession(
                self.target, self.index == 0, hooks=[self.hook], max_wait_secs=DEADLINE_SECS,
                stop_grace_period_secs=DEADLINE_SECS) as session:
            for number, rate in enumerate(RATES):
                session.run(self.train_op, {self.factor: number + 1 + 2 * self.index, self.rate: rate})
            return session.run([self.weights, self.batches])


@pytest.mark.parametrize("make_rate", [
    lambda: tf.placeholder(tf.float32, []), lambda: tf.placeholder_with_default(7.0, [], "rate")])
@pytest.mark.parametrize("rule", [
    tf.train.GradientDescentOptimizer, functools.partial(tf.train.MomentumOptimizer, momentum=0.5)])
def test_a_rate_that_the_workers_feed_reaches_the_update_and_what_a_step_waits_for_runs_once(
        monkeypatch, rule, make_rate):
    """Issue: the chief's update failed for want of the values that a worker feeds."""
    monkeypatch.setattr(tf.train.SessionManager, "__init__", functools.partialmethod(
        tf.train.SessionManager.__init__, recovery_wait_secs=1))
    cluster = clusters.LocalCluster(1, 2)
    calls = [Call(Worker(cluster, index, rule, make_rate).train, f"worker {index}") for index in range(2)]
    for call in calls:
        call.join(DEADLINE_SECS)
    _, (weights, batches) = [call.result() for call in reversed(calls)]
    expected, accumulated = 0.0, 0.0
    for number, rate in enumerate(RATES):
        accumulated = accumulated * (0.5 if isinstance(rule, functools.partial) else 0.0) + number + 2
        expected -= 2 * rate * accumulated
    np.testing.assert_allclose(weights, [expected] * 2, rtol=1e-6)
    assert batches[0] == len(RATES)


def test_values_of_variables_stay_in_the_update():
    """A rate that follows the global step is that of the update, and costs a step nothing."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        fed = tf.placeholder(tf.float32, [])
        variable = tf.get_variable("weights", initializer=1.0)
        applying = WithStepInputs(tf.train.GradientDescentOptimizer(tf.train.exponential_decay(0.1, step, 10, 0.5)))
        applying.apply_gradients([(tf.constant(1.0), variable)], step)
        assert applying.writes == []
        applying = WithStepInputs(tf.train.GradientDescentOptimizer(fed * fed + fed))
        applying.apply_gradients([(tf.constant(1.0), variable)], step)
        assert [(op.type, op.inputs[1].op.type) for op in applying.writes] == [("AssignVariableOp", "AddV2")]
