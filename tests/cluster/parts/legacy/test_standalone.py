"""SyncReplicasOptimizer in plain TF1 scripts: the chief's updates and everybody's end, on in-process servers."""

from __future__ import annotations

import functools
import threading
import time

import numpy as np
import pytest

import ps_train
from ps_train.parts.legacy.classic import ending
from ps_train.runtime import waits
from ps_train.runtime.threads import Call
from tests import clusters
from tests.cluster.parts.tensorflow_sync.test_part import by_numpy
from tests.errors import raises
from tests.tensorflow_mode import tf

NUM_STEPS = 8
DEADLINE_SECS = 60


@pytest.fixture(scope="module")
def servers():
    """Servers of one ps and two workers, with nothing of ps_train on them."""
    return clusters.LocalCluster(1, 2)


@pytest.fixture
def cluster(servers):
    """The servers, with nothing left of an earlier test."""
    for task in servers.servers:
        tf.Session.reset(servers.target(*task))
    return servers


@pytest.fixture(autouse=True)
def ask_every_second(monkeypatch):
    """Lets a MonitoredTrainingSession that waits for the chief ask every second; without it, every thirty."""
    monkeypatch.setattr(tf.train.SessionManager, "__init__", functools.partialmethod(
        tf.train.SessionManager.__init__, recovery_wait_secs=1))


class Script:
    """What a plain script builds, as one of two workers with batches of 8: its graph, and the optimizer in it."""

    def __init__(self, cluster, index, step_dtype=tf.int64, is_resource=True, averages=None,
                 optimizer_class=ps_train.SyncReplicasOptimizer, rule=None):
        self.index, self.target = index, cluster.target("worker", index)
        features, labels = clusters.linear_data()
        setter = tf.train.replica_device_setter(
            worker_device=f"/job:worker/task:{index}", cluster=tf.train.ClusterSpec(cluster.addresses))
        with tf.Graph().as_default() as self.graph, tf.device(setter):
            tf.get_variable_scope().set_use_resource(is_resource)
            self.step = tf.get_variable("global_step", [], step_dtype, tf.zeros_initializer(), trainable=False,
                                        collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP])
            self.rows = tf.placeholder(tf.int32, [None])
            weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
            bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
            predictions = tf.linalg.matvec(tf.gather(features, self.rows), weights) + bias
            loss = tf.reduce_mean(tf.square(predictions - tf.gather(labels, self.rows)))
            self.optimizer = optimizer_class(
                rule() if rule else tf.train.GradientDescentOptimizer(0.05), 2, 2, variable_averages=averages,
                variables_to_average=tf.trainable_variables())
            self.train_op = self.optimizer.minimize(loss, self.step)

    def train(self, session):
        """Takes steps until the global step says that it is enough, as scripts do."""
        number = 0
        while session.run(self.step) < NUM_STEPS:
            rows = [self.index + 2 * ((8 * number + row) % 32) for row in range(8)]
            session.run(self.train_op, {self.rows: rows})
            number += 1

    def take_steps(self, num_steps, has_begun, together):
        """Takes so many steps in a plain session, each when the other worker has taken the one before."""
        optimizer = self.optimizer
        with self.graph.as_default():
            tokens_op, init_op = optimizer.get_init_tokens_op(0), tf.global_variables_initializer()
            session = tf.Session(self.target, graph=self.graph)
            if self.index == 0:
                session.run(init_op)
                session.run(optimizer.chief_init_op)
                session.run(tokens_op)
                optimizer.get_chief_queue_runner().create_threads(session, daemon=True, start=True)
                has_begun.set()
            else:
                assert has_begun.wait(DEADLINE_SECS)
                session.run(optimizer.local_step_init_op)
            for number in range(num_steps):
                rows = [self.index + 2 * ((8 * number + row) % 32) for row in range(8)]
                session.run(self.train_op, {self.rows: rows})
                together.wait(DEADLINE_SECS)  # else a worker may take the token that is the other one's

    def supervised(self):
        """Trains as dist_mnist does with --sync_replicas."""
        optimizer = self.optimizer
        with self.graph.as_default():
            tokens_op = optimizer.get_init_tokens_op()
            supervisor = tf.train.Supervisor(
                is_chief=self.index == 0, init_op=tf.global_variables_initializer(), global_step=self.step,
                local_init_op=optimizer.chief_init_op if self.index == 0 else optimizer.local_step_init_op,
                ready_for_local_init_op=optimizer.ready_for_local_init_op, recovery_wait_secs=1, summary_op=None)
            session = supervisor.prepare_or_wait_for_session(self.target)
            if self.index == 0:
                supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
                session.run(tokens_op)
            self.train(session)
            supervisor.stop()

    def supervised_without_init_ops(self):
        """Trains as scripts of before 1.0 do, which know neither chief_init_op nor local_step_init_op."""
        optimizer = self.optimizer
        with self.graph.as_default():
            tokens_op = optimizer.get_init_tokens_op()
            supervisor = tf.train.Supervisor(
                is_chief=self.index == 0, init_op=tf.global_variables_initializer(), global_step=self.step,
                recovery_wait_secs=1, summary_op=None)
            session = supervisor.prepare_or_wait_for_session(self.target)
            if self.index == 0:
                time.sleep(3.0)  # the other worker must wait, although the variables have their values
                supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
                session.run(tokens_op)
            self.train(session)
            supervisor.stop()

    def monitored(self):
        """Trains in a MonitoredTrainingSession."""
        hook = self.optimizer.make_session_run_hook(self.index == 0)
        with self.graph.as_default(), tf.train.MonitoredTrainingSession(
                self.target, self.index == 0, hooks=[hook], max_wait_secs=DEADLINE_SECS,
                stop_grace_period_secs=DEADLINE_SECS) as session:
            self.train(session)


def values_of(cluster, script):
    """Returns name -> value of the variables on the ps."""
    with tf.Session(cluster.target("worker", 0), graph=script.graph) as session:
        return {variable.op.name: session.run(variable) for variable in script.graph.get_collection("variables")}


def train_both(scripts, way):
    """Trains in both workers; each must end, without an error."""
    errors = []

    def work(script):
        try:
            way(script) if callable(way) else getattr(script, way)()
        except Exception as error:  # noqa: BLE001 (the test shows it)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(script,), daemon=True) for script in scripts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECS)
    assert not errors
    assert not [thread for thread in threads if thread.is_alive()], "a worker hangs"


@pytest.mark.parametrize("way, step_dtype, is_resource", [
    ("supervised", tf.int32, False), ("monitored", tf.int64, True), ("supervised_without_init_ops", tf.int64, True),
])
def test_a_plain_script_trains_in_sync_and_ends(cluster, way, step_dtype, is_resource):
    """No process of ps_train is there; the numbers are numpy's, for each kind of variable and of global step."""
    scripts = [Script(cluster, index, step_dtype, is_resource) for index in range(2)]
    train_both(scripts, way)
    values = values_of(cluster, scripts[0])
    assert values["global_step"] == NUM_STEPS
    weights, bias = by_numpy(NUM_STEPS)
    np.testing.assert_allclose(values["weights"], weights, rtol=1e-5)
    np.testing.assert_allclose(values["bias"], bias, rtol=1e-5, atol=1e-7)


def test_fifty_updates_give_what_tensorflows_class_gives():
    """Two workers with different batches, under Adam; variables and slots agree to 1e-6."""
    values = []
    for optimizer_class in (tf.train.SyncReplicasOptimizer, ps_train.SyncReplicasOptimizer):
        cluster = clusters.LocalCluster(1, 2)
        scripts = [Script(cluster, index, optimizer_class=optimizer_class, rule=lambda: tf.train.AdamOptimizer(0.05))
                   for index in range(2)]
        has_begun, together = threading.Event(), threading.Barrier(2)
        train_both(scripts, lambda script: script.take_steps(50, has_begun, together))  # noqa: B023 (used at once)
        values.append(values_of(cluster, scripts[0]))
    theirs, ours = values
    assert ours["global_step"] == theirs["global_step"] == 50
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_updates_of_a_second_optimizer_of_a_graph_are_refused(cluster):
    """Issue: both had the same gate, and every worker waited for ever; one that is not used is none too many."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.train.create_global_step()
        optimizers = [ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 1, 1) for _ in range(2)]
        for number, optimizer in enumerate(optimizers):
            optimizer.minimize(tf.get_variable(f"v{number}", initializer=1.0) ** 2, step)
        init_op = tf.global_variables_initializer()
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(init_op)
            coordinator = tf.train.Coordinator()
            threads = []
            for _ in range(2):  # in a new session, too
                threads += optimizers[1].get_chief_queue_runner().create_threads(session, coordinator, True, True)
            with raises("sync_second_step"):
                optimizers[0].get_chief_queue_runner().create_threads(session, coordinator, True, True)
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=DEADLINE_SECS)


def monitored_alone(optimizer, train):
    """Trains in a MonitoredTrainingSession without a server."""
    with tf.train.MonitoredTrainingSession(hooks=[optimizer.make_session_run_hook(True)],
                                           stop_grace_period_secs=DEADLINE_SECS) as session:
        train(session)


def supervised_alone(optimizer, train):
    """Trains under a Supervisor."""
    supervisor = tf.train.Supervisor(local_init_op=optimizer.chief_init_op, summary_op=None)
    with supervisor.managed_session() as session:
        supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
        train(session)


def coordinated_alone(optimizer, train):
    """Trains with a coordinator, and an end of which only the session knows."""
    init_op, coordinator = tf.global_variables_initializer(), tf.train.Coordinator()
    with tf.Session() as session:
        session.run(init_op)
        threads = optimizer.get_chief_queue_runner().create_threads(session, coordinator, start=True)
        train(session)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=DEADLINE_SECS)


def threaded_alone(optimizer, train):
    """Trains without a coordinator, in a session that ends while an update waits."""
    init_op = tf.global_variables_initializer()
    with tf.Session() as session:
        session.run(init_op)
        optimizer.get_chief_queue_runner().create_threads(session, start=True)
        train(session)


@pytest.mark.parametrize("way", [monitored_alone, supervised_alone, coordinated_alone, threaded_alone])
def test_a_script_of_one_process_needs_no_server(way):
    """Issue: the updates looked for the variables in another session, which had none, and the script hung or failed.

    v = v - 0.1 * 2 v, four times; the thread of the updates ends with the session.
    """
    before = set(threading.enumerate())
    with tf.Graph().as_default():
        step, variable = tf.train.create_global_step(), tf.get_variable("v", initializer=1.0)
        optimizer = ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1, 1)
        train_op, values = optimizer.minimize(variable**2, step), []

        def train(session):
            for _ in range(4):
                session.run(train_op)
            values.append(session.run(variable))

        way(optimizer, train)
    np.testing.assert_allclose(values, [0.8**4], rtol=1e-6)
    for thread in set(threading.enumerate()) - before:
        if thread.name == "updates":
            thread.join(DEADLINE_SECS)
            assert not thread.is_alive()


def test_who_comes_when_the_chief_has_left_is_not_left_waiting(cluster):
    """TensorFlow's class lets it wait for a token for ever."""
    scripts = [Script(cluster, index) for index in range(2)]
    train_both(scripts, "supervised")
    with tf.Session(cluster.target("worker", 1), graph=scripts[1].graph) as session:
        options = tf.RunOptions(timeout_in_ms=DEADLINE_SECS * 1000)
        session.run(scripts[1].optimizer.local_step_init_op, options=options)
        for _ in range(2):
            session.run(scripts[1].train_op, {scripts[1].rows: [0]}, options)
        assert session.run(scripts[1].step) == NUM_STEPS


@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_chief_that_is_stopped_leaves_the_others_waiting_for_it(cluster, monkeypatch, is_stopping):
    """The step that waits ends, and the next ones wait; without a signal training is over, and none waits any more."""
    monkeypatch.setattr(ending, "_noted_signal", threading.Event())
    scripts = [Script(cluster, index) for index in range(2)]
    runner, status = scripts[0].optimizer.get_chief_queue_runner(), scripts[0].optimizer.operations.status
    with scripts[0].graph.as_default():
        init_op = tf.global_variables_initializer()
    with tf.Session(cluster.target("worker", 0), graph=scripts[0].graph) as chief, \
            tf.Session(cluster.target("worker", 1), graph=scripts[1].graph) as worker:
        chief.run(init_op)
        coordinator = tf.train.Coordinator()
        threads = runner.create_threads(chief, coordinator, daemon=True, start=True)
        worker.run(scripts[1].optimizer.local_step_init_op)
        step = Call(lambda: worker.run(scripts[1].train_op, {scripts[1].rows: [0]}), "step")
        waits.until(lambda: chief.run(status.gathered), DEADLINE_SECS, "the step", threading.Event())
        if is_stopping:
            ending._noted_signal.set()
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=DEADLINE_SECS)
        step.join(DEADLINE_SECS)
        assert not step.is_alive() and chief.run(scripts[0].step) == 0
        assert chief.run(runner._is_under_way) == is_stopping


def test_a_worker_is_not_ready_before_the_chief_has_begun(cluster):
    """Its variables are there, but not yet what it would wait for."""
    scripts = [Script(cluster, index) for index in range(2)]
    ready_ops = [script.optimizer.ready_for_local_init_op for script in scripts]
    with scripts[0].graph.as_default():
        init_op = tf.global_variables_initializer()
    with tf.Session(cluster.target("worker", 0), graph=scripts[0].graph) as chief, \
            tf.Session(cluster.target("worker", 1), graph=scripts[1].graph) as worker:
        assert set(worker.run(ready_ops[1])) == {b"global_step", b"weights", b"bias", b"the chief's chief_init_op"}
        chief.run(init_op)
        assert [list(chief.run(ready_ops[0])), list(worker.run(ready_ops[1]))] == [[], [b"the chief's chief_init_op"]]
        chief.run(scripts[0].optimizer.chief_init_op)
        assert list(worker.run(ready_ops[1])) == []


def test_a_fault_in_an_update_stops_the_coordinator(cluster):
    """The script sees it there; the workers are not let go, as a new chief may come."""
    script = Script(cluster, 0)
    coordinator = tf.train.Coordinator()
    with tf.Session(cluster.target("worker", 0), graph=script.graph) as session:
        runner = script.optimizer.get_chief_queue_runner()
        threads = runner.create_threads(session, coordinator, daemon=True, start=True)  # nothing is initialised
        with pytest.raises(tf.errors.OpError):
            coordinator.join(threads, stop_grace_period_secs=DEADLINE_SECS)


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_chief_does_not_wait_for_an_update_that_has_failed(cluster, has_begun):
    """Issue: its step waited for ever, and its script never saw the error. The next chief begins again.

    Nor does a step that begins after the error, as where another worker's gradient was enough for the update.
    """
    script, coordinator = Script(cluster, 0), tf.train.Coordinator()
    runner, status = script.optimizer.get_chief_queue_runner(), script.optimizer.operations.status
    with script.graph.as_default():
        init_op = tf.global_variables_initializer()
    with tf.Session(cluster.target("worker", 0), graph=script.graph) as session:
        def begin_step():
            return Call(lambda: session.run(script.train_op, {script.rows: [0]}), "step")

        session.run(init_op)
        threads = runner.create_threads(session, coordinator, daemon=True, start=True)
        steps = [begin_step()] if has_begun else []
        if steps:
            waits.until(lambda: session.run(status.gathered), DEADLINE_SECS, "the step", threading.Event())
        coordinator.request_stop((ValueError, ValueError("an update has failed"), None))
        with pytest.raises(ValueError, match="an update has failed"):
            coordinator.join(threads, stop_grace_period_secs=DEADLINE_SECS)
        step = steps[0] if steps else begin_step()
        step.join(DEADLINE_SECS)
        assert not step.is_alive() and session.run(script.step) == 0 and not session.run(runner._is_under_way)
        session.run(script.optimizer.chief_init_op)
        assert session.run(runner._is_under_way)


def test_the_constructor_of_before_1_0_is_taken():
    """`replica_id` is an argument, and the clean-up has nothing to do."""
    with tf.Graph().as_default():
        optimizer = ps_train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=2, replica_id=1, total_num_replicas=2)
        assert optimizer.get_clean_up_op().type == "NoOp"
