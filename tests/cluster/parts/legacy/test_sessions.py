"""The sessions of an unchanged script, on in-process servers."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading

import pytest
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client.session import BaseSession

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.parts.legacy.classic import ending, membership, session_repairs, sessions
from ps_train.runtime import waits
from ps_train.runtime.threads import Call
from ps_train.runtime.waits import Timeouts
from tests import processes
from tests.errors import raises
from tests.tensorflow_mode import tf

WORKER_FILTERS = ["/job:ps", "/job:worker/task:0"]


def counter(name="number"):
    """Returns the operation that counts, with its variable on the ps."""
    with tf.device("/job:ps/task:0"):
        return tf.get_variable(name, [], initializer=tf.zeros_initializer()).assign_add(1.0)


@pytest.mark.parametrize("kind", ["Session", "InteractiveSession"])
@pytest.mark.parametrize("filters", [[], WORKER_FILTERS], ids=["no filters", "filters"])
def test_a_remote_session_joins_the_cluster_and_keeps_its_filters(worker, graph, kind, filters):
    """Issue: one with filters, or an interactive one, had no heartbeat, so the ps ended before it."""
    count = counter()
    session = getattr(tf, kind)(worker.target, config=tf.ConfigProto(device_filters=filters))
    try:
        assert worker.board is not None
        assert worker.snapshot().alive() == [0]
        session.run(tf.global_variables_initializer())
        assert session.run(count) == 1.0
        used = list(session._config.device_filters)
        assert used == (filters or ["/job:ps/task:0", "/job:worker/task:0"])
    finally:
        session.close()


def test_a_session_of_a_worker_that_its_graph_names_by_its_job_only_needs_no_other_worker(worker, graph):
    """Issue: `replica_device_setter` names the workers so, and one that had ended kept the others from a session."""
    with tf.device(tf.train.replica_device_setter(cluster=worker.cluster.addresses)):
        total = tf.Variable(1.0) + 1.0
    assert total.device == "/job:worker"
    with tf.Session(worker.target) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(total) == 2.0
        assert list(session._config.device_filters) == ["/job:ps/task:0", "/job:worker/task:0"]


@pytest.mark.parametrize("way", ["plain", "managed", "waiting", "filters"])
def test_a_session_whose_graph_names_another_worker_waits_for_it_in_bounded_time(
        first_of_two, graph, monkeypatch, way):
    """Issue: a plain session waited for ever; a Supervisor's said that it waited for the ps."""
    member, missing = first_of_two, first_of_two.cluster.workers[1]
    with tf.device("/job:ps/task:0" if way == "filters" else missing.device):
        three = tf.constant(3.0)
    filters = ["/job:ps", "/job:worker"] if way == "filters" else []
    config = tf.ConfigProto(device_filters=filters)
    with tf.Session(member.target, config=config) as session:
        assert session.run(three) == 3.0
    member.join()
    member.timeouts = dataclasses.replace(member.timeouts, start_secs=1.0)
    connection_error = reachability.connection_error
    monkeypatch.setattr(reachability, "connection_error", lambda address: (
        ConnectionRefusedError() if address == missing.address else connection_error(address)))
    with raises("timed_out") as caught:
        if way in ("plain", "filters"):
            tf.Session(member.target, config=config)
        elif way == "managed":
            tf.train.SessionManager().prepare_session(member.target, tf.no_op())
        else:
            tf.train.SessionManager().wait_for_session(member.target)
    assert str(missing) in str(caught.value) and "ps:0" not in str(caught.value)


@pytest.mark.parametrize("names_ps", [True, False])
def test_a_session_that_a_ps_opens_looks_for_no_task_that_is_not_there(
    start_servers, replaced, graph, monkeypatch, names_ps):
    """Issue: while its server tried to reach a worker, that worker's first step failed.

    Where the graph names no task yet, the session waits for all of them; there is no worker here.
    """
    cluster = start_servers(1, 1)
    addresses = {"ps": dict(cluster.view("ps", 0).addresses["ps"]),
                 "worker": {0: f"localhost:{processes.free_ports(1)[0]}"}}
    ps = membership.Serving(Cluster("ps", 0, addresses), Timeouts(start_secs=1.0), threading.Event())
    monkeypatch.setattr(membership, "_serving", [ps])
    monkeypatch.setattr(membership, "_current", [])
    if not names_ps:
        with raises("timed_out"):
            tf.Session(cluster.target("ps", 0))
        return
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, tf.int32, shared_name="done")
    with tf.Session(cluster.target("ps", 0)) as session:
        session.run(queue.enqueue(3))
        assert session.run(queue.dequeue()) == 3
        assert list(session._config.device_filters) == ["/job:ps/task:0"]


def test_an_interactive_session_is_the_default_one_until_it_is_closed(worker, graph):
    """Its `close`, too, is that of TensorFlow."""
    count = counter()
    session = tf.InteractiveSession(worker.target)
    tf.global_variables_initializer().run()
    assert count.eval() == 1.0
    session.close()
    assert tf.get_default_session() is None


def test_a_session_manager_of_the_scripts_own_prepares_the_parameters_of_the_cluster(worker, graph):
    """Its arguments by position, too."""
    count = counter()
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    session = manager.prepare_session(worker.target, tf.global_variables_initializer())
    assert worker.board.is_prepared()
    assert session.run(count) == 1.0
    session.close()


def test_a_monitored_session_lists_its_devices(worker, graph):
    """Issue: an AttributeError, as such a session is made by TensorFlow's SessionManager."""
    counter()
    tf.train.create_global_step()
    with tf.train.MonitoredTrainingSession(worker.target) as session:
        names = [device.name for device in session._tf_sess().list_devices()]
    assert {"/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"} <= set(names)


def test_parameters_on_no_device_are_shared_on_the_first_ps(worker, graph):
    """As in TensorFlow 1; a script without a device setter waited for values that only this worker could give."""
    step = tf.get_variable("step", [], initializer=tf.constant_initializer(3.0))
    with tf.device("/cpu:0"):
        weight = tf.get_variable("weight", [], initializer=tf.constant_initializer(4.0))
    with tf.device("/job:worker/task:0"):
        own = tf.get_variable("own", [])
    local = tf.get_variable("local", [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    session = tf.train.SessionManager().prepare_session(worker.target, tf.global_variables_initializer())
    assert session.run([step.assign_add(1.0), weight]) == [4.0, 4.0]
    assert [variable.device for variable in (step, weight, own, local)] == [
        "/job:ps/task:0", "/job:ps/task:0/device:CPU:0", "/job:worker/task:0", ""]
    with tf.Graph().as_default():  # as another worker's, which waits for them
        step, weight = (tf.get_variable(name, []) for name in ("step", "weight"))
        other = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables()).wait_for_session(worker.target)
        assert other.run([step, weight]) == [4.0, 4.0] and step.device == "/job:ps/task:0"
        other.close()
    session.close()


def test_parameters_on_no_device_stay_there_where_there_is_one_task(replaced, graph, monkeypatch):
    """A local server's: the script may use them later in a session without a server."""
    monkeypatch.setattr(membership, "_current", [])
    monkeypatch.setattr(membership, "_outside", [])
    step = tf.get_variable("step", [], initializer=tf.constant_initializer(3.0))
    for target in (tf.train.Server.create_local_server().target, ""):
        with tf.train.SessionManager().prepare_session(target, step.initializer) as session:
            assert session.run(step) == 3.0 and step.device == ""


def test_parameters_on_no_device_stay_there_where_device_filters_hide_the_first_task(replaced, graph, monkeypatch):
    """Each worker then trains its own, as in TensorFlow 1: the session knows no other task."""
    for name in ("_current", "_serving", "_outside"):
        monkeypatch.setattr(membership, name, [])
    server = tf.train.Server({"worker": [f"localhost:{port}" for port in processes.free_ports(2)]}, "worker", 1)
    step = tf.get_variable("step", [], initializer=tf.constant_initializer(3.0))
    session = tf.train.SessionManager().prepare_session(
        server.target, step.initializer, config=tf.ConfigProto(device_filters=["/job:worker/task:1"]))
    assert session.run(step) == 3.0
    session.close()


def test_parameters_on_no_device_are_shared_on_the_first_task_also_if_the_chief_is_another(
        replaced, graph, monkeypatch):
    """A cluster of "ps" and "trainer": the trainers that wait looked on the ps, and the chief had them itself."""
    monkeypatch.setattr(membership, "_current", [])
    monkeypatch.setattr(membership, "_outside", [])
    jobs = ("ps", "trainer", "trainer")
    cluster = {"ps": [], "trainer": []}
    for job, port in zip(jobs, processes.free_ports(3)):
        cluster[job].append(f"localhost:{port}")
    _, chief, other = (tf.train.Server(cluster, job, index) for job, index in zip(jobs, (0, 0, 1)))
    step = tf.get_variable("step", [], initializer=tf.constant_initializer(3.0))
    session = tf.train.SessionManager().prepare_session(chief.target, tf.global_variables_initializer())
    assert step.device == "/job:ps/task:0"
    with tf.Graph().as_default():
        step = tf.get_variable("step", [])
        manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
        with manager.wait_for_session(other.target, max_wait_secs=30) as waited:
            assert waited.run(step) == 3.0
    session.close()


def test_parameters_on_no_device_are_shared_on_the_first_task_of_a_cluster_without_ps(replaced, graph, monkeypatch):
    """As in TensorFlow 1; the other tasks of such a script waited for their own, which nobody initialises."""
    monkeypatch.setattr(membership, "_current", [])
    monkeypatch.setattr(membership, "_outside", [])
    ports = processes.free_ports(2)
    cluster = {"agent": [f"localhost:{port}" for port in ports], "actor": []}
    first, second = (tf.train.Server(cluster, "agent", index) for index in range(2))
    step = tf.get_variable("step", [], initializer=tf.constant_initializer(3.0))
    chief = tf.train.SessionManager().prepare_session(first.target, tf.global_variables_initializer())
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            step = tf.get_variable("step", [])
        with tf.device("/job:agent/task:1"):
            own = tf.get_variable("own", [], collections=["own"])
        manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
        session = manager.wait_for_session(second.target, max_wait_secs=30)
        assert session.run(step) == 3.0
        assert [step.device, own.device] == ["/job:agent/task:0/device:CPU:0", "/job:agent/task:1"]
        session.close()
    chief.close()


def test_a_session_waits_for_the_tasks_of_a_cluster_without_ps_within_a_bound(replaced, graph, monkeypatch):
    """Issue: it waited for ever for one that was never started, or had ended, and TensorFlow's log did not say so."""
    for name in ("_current", "_serving", "_outside"):
        monkeypatch.setattr(membership, name, [])
    cluster = {"local": [f"localhost:{port}" for port in processes.free_ports(2)]}
    server = tf.train.Server(cluster, "local", 0, timeouts=Timeouts(start_secs=0.5))
    total = tf.constant(1.0) + 1.0
    for filters in ([], ["/job:local"], ["/cpu:0"]):
        with raises("timed_out") as caught:
            tf.Session(server.target, config=tf.ConfigProto(device_filters=filters))
        assert f"local:1 {cluster['local'][1]}" in str(caught.value)
    with tf.Session(server.target, config=tf.ConfigProto(device_filters=["/job:local/task:0"])) as session:
        assert session.run(total) == 2.0
    other = tf.train.Server(cluster, "local", 1)
    with tf.Session(other.target) as session:
        assert session.run(total) == 2.0


@pytest.mark.parametrize("has_condition", [True, False], ids=["condition", "no condition"])
def test_the_parameters_are_announced_before_a_local_init_op_that_waits_for_the_other_workers(
        worker, graph, has_condition):
    """Issue: the other workers waited for the end of the chief's local_init_op, and it for them.

    Also where the script does not say when the others may go: TensorFlow lets them go at once then.
    """
    count = counter()
    with tf.device("/job:ps/task:0"):
        tokens = tf.FIFOQueue(2, [tf.bool], [[]], shared_name="tokens_of_the_barrier")
    manager = tf.train.SessionManager(
        local_init_op=tokens.dequeue().op, ready_op=tf.report_uninitialized_variables(),
        ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()) if has_condition else None)
    board, arrive_op = worker.join(), tokens.enqueue(True)
    arrived = []

    def come_as_another_worker():
        worker.wait_until_prepared()
        with sessions._TensorFlowSession(worker.target, graph=graph) as other:
            arrived.append(other.run(count))  # the parameters are there
            other.run(arrive_op)

    other = Call(come_as_another_worker, "another worker")
    session = manager.prepare_session(worker.target, tf.global_variables_initializer())
    other.join(60)
    other.result()
    assert arrived == [1.0] and board.is_prepared()
    session.close()


def test_without_a_condition_for_local_init_op_the_parameters_are_announced_after_it(worker, graph):
    """It may be what initialises them."""
    count = counter()
    manager = tf.train.SessionManager(
        local_init_op=tf.global_variables_initializer(), ready_op=tf.report_uninitialized_variables())
    was_prepared = []
    init_fn = lambda session: was_prepared.append(worker.join().is_prepared())  # noqa: E731 (as scripts have it)
    session = manager.prepare_session(worker.target, init_fn=init_fn)
    assert was_prepared == [False] and worker.board.is_prepared()
    assert session.run(count) == 1.0
    session.close()


def test_parameters_of_a_ps_that_restarts_while_the_chief_prepares_are_not_announced(worker, graph):
    """Its script may initialise for long; the others would wait for the lost parameters, and the chief as well."""
    counter()
    ps = Cluster("ps", 0, worker.cluster.addresses)

    def restart_ps(session):
        with contextlib.closing(blackboard.for_ps(f"grpc://{ps.task.address}", ps)) as board:
            board.create()

    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    with pytest.raises(tf.errors.UnavailableError, match="a ps has restarted while the chief prepared"):
        manager.prepare_session(worker.target, init_op=tf.global_variables_initializer(), init_fn=restart_ps)
    assert not worker.join().is_prepared()


def train_one_step(worker, folder, name="number"):
    """Trains in a new graph and session, as one of several trainings; returns the variable after it."""
    with tf.Graph().as_default():
        count = [counter(name), tf.assign_add(tf.train.get_or_create_global_step(), 1)]
        with tf.train.MonitoredTrainingSession(worker.target, is_chief=True, checkpoint_dir=folder) as session:
            return session.run(count)[0]


@pytest.mark.parametrize("folders", [["fold0", "fold1", "tuned"], [None, None, None]], ids=["folders", "no folders"])
def test_a_second_training_of_a_script_does_not_go_on_with_the_parameters_of_the_first(worker, tmp_path, folders):
    """Issue: it did, as the parameters were in use; where they have other names, it never began."""
    first, second, third = (folder and str(tmp_path / folder) for folder in folders)
    assert train_one_step(worker, first) == 1.0
    assert train_one_step(worker, second) == 1.0
    assert train_one_step(worker, third, name="another") == 1.0


@pytest.mark.parametrize("way", ["one graph", "emptied folder"])
def test_a_new_session_of_the_chief_without_a_checkpoint_begins_a_new_training(worker, tmp_path, graph, way):
    """Issue: the second fold had the parameters and the global step of the first, and ended without a step."""
    folder = None if way == "one graph" else str(tmp_path / "model")
    for _ in range(2):
        if folder:
            assert train_one_step(worker, folder) == 1.0
            shutil.rmtree(folder)
            continue
        count = counter() if not tf.global_variables() else count  # noqa: F821 (of the round before)
        with tf.train.MonitoredTrainingSession(worker.target, is_chief=True) as session:
            assert session.run(count) == 1.0


def restarted(worker):
    """Takes from the membership what the process knows of its trainings, as if it had just been started again."""
    worker.training, worker._number = None, 0


@pytest.mark.parametrize(("way", "first", "second"), [
    ("folders", 2.0, 2.0), ("no folder", 1.0, 1.0), ("first in a folder", 2.0, 1.0), ("other variables", 1.0, 2.0)])
def test_a_restarted_chief_does_not_go_on_with_the_parameters_of_a_later_training(worker, tmp_path, way, first, second):
    """Issue: killed in the second fold, it went on with the second one's parameters and overwrote the first model."""
    trainings = {
        "folders": [("a", "number"), ("b", "number")], "no folder": [(None, "number"), (None, "number")],
        "first in a folder": [("a", "number"), (None, "number")], "other variables": [(None, "one"), ("b", "two")],
    }[way]
    trainings = [(folder and str(tmp_path / folder), name) for folder, name in trainings]
    for folder, name in trainings:
        assert train_one_step(worker, folder, name) == 1.0
    restarted(worker)
    assert [train_one_step(worker, folder, name) for folder, name in trainings] == [first, second]


@pytest.mark.parametrize("way", ["same folder", "new folder", "skips the first"])
def test_a_restarted_chief_goes_on_with_the_parameters_of_its_own_training(worker, tmp_path, way):
    """A folder may have a new name at each start; a script may skip what it has trained."""
    if way == "skips the first":
        assert train_one_step(worker, str(tmp_path / "before")) == 1.0
    folder = str(tmp_path / "first")
    assert train_one_step(worker, folder) == 1.0
    with tf.Graph().as_default(), tf.Session(worker.target) as other:
        assert other.run(counter()) == 2.0  # later than the checkpoint
    restarted(worker)
    assert train_one_step(worker, str(tmp_path / "second") if way == "new folder" else folder) == 3.0


@pytest.mark.parametrize("saves", [True, False])
def test_a_training_that_goes_back_after_the_loss_of_a_ps_says_to_where(worker, tmp_path, caplog, saves):
    """Issue: TensorFlow says it at INFO, which is not shown; a training that began again looked like any other."""
    folder = str(tmp_path) if saves else None
    with tf.Graph().as_default():
        count = [counter(), tf.assign_add(tf.train.get_or_create_global_step(), 1)]
        for _ in range(2):
            with tf.train.MonitoredTrainingSession(worker.target, is_chief=True, checkpoint_dir=folder) as session:
                session.run(count)
            assert "lost its parameters" not in caplog.text
        ps = Cluster("ps", 0, worker.cluster.addresses)
        with contextlib.closing(blackboard.for_ps(f"grpc://{ps.task.address}", ps)) as board:
            board.create()
        with tf.train.MonitoredTrainingSession(worker.target, is_chief=True, checkpoint_dir=folder) as session:
            assert session.run(count) == ([3.0, 3] if saves else [1.0, 1])
    [line] = [line for line in caplog.messages if "a ps has lost its parameters" in line]
    assert (f"from {tmp_path}/model.ckpt-2" if saves else "STARTING AGAIN") in line


class Updates:
    """Stands for the updates of a SyncReplicasOptimizer."""

    def __init__(self):
        self.ends = []

    is_of_training = True

    def check(self):
        pass

    def conclude(self, *, waits_for_others, is_final):
        self.ends.append((waits_for_others, is_final))


def test_the_updates_of_the_first_training_end_with_it(worker):
    """They would apply the gradients of the second one."""
    assert train_one_step(worker, None) == 1.0
    updates = Updates()
    worker.update_services.append(updates)
    assert train_one_step(worker, None) == 1.0
    assert updates.ends == [(False, True)]


def test_a_new_graph_with_the_same_checkpoints_goes_on_with_the_parameters_in_use(worker, tmp_path):
    """Each Estimator.train makes one: to restore a checkpoint would take the other workers' steps back."""
    folder = str(tmp_path)
    assert train_one_step(worker, folder) == 1.0
    with tf.Graph().as_default(), tf.Session(worker.target) as other:
        assert other.run(counter()) == 2.0
    assert train_one_step(worker, folder) == 3.0


def test_a_chief_that_finds_the_parameters_in_use_knows_the_checkpoints_in_the_folder(worker, tmp_path):
    """Issue: it left those that the process before had saved, beside the `max_to_keep` of its own."""
    for _ in range(3):
        with tf.Graph().as_default():
            ops = [counter(), tf.assign_add(tf.train.get_or_create_global_step(), 1)]
            scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=2))
            with tf.train.MonitoredTrainingSession(
                    worker.target, is_chief=True, checkpoint_dir=str(tmp_path), scaffold=scaffold) as session:
                session.run(ops)
    assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["model.ckpt-2", "model.ckpt-3"]
    assert tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths == [
        str(tmp_path / f"model.ckpt-{step}") for step in (2, 3)]


def count_in_another_process(worker):
    """Prepares the parameters and counts to 1, as a chief that ran before did."""
    worker.join().start_run()
    with tf.Graph().as_default(), tf.Session(worker.target) as other:
        count = counter()
        with tf.device("/job:ps/task:0"):
            tf.train.get_or_create_global_step()
        other.run(tf.global_variables_initializer())
        other.run(count)


def test_a_restarted_chief_does_not_take_its_first_training_for_a_second_one(worker, tmp_path):
    """Another process has prepared the parameters, so they are in use."""
    count_in_another_process(worker)
    assert train_one_step(worker, None) == 2.0


def save_own(folder):
    """Writes a checkpoint of the variable "own", of value 5."""
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.get_variable("own", [], initializer=tf.constant_initializer(5.0)).initializer)
        tf.train.Saver().save(session, f"{folder}/model.ckpt", global_step=1)


@pytest.mark.parametrize(("kind", "value"), [
    ("MonitoredTrainingSession", 7.0), ("Supervisor", 7.0), ("with a checkpoint", 5.0)])
def test_a_chief_that_finds_the_parameters_in_use_gives_values_to_its_own_variables(
        worker, tmp_path, caplog, kind, value):
    """Issue: where every worker says that it is the chief, a later one waited in vain for somebody to do so."""
    count_in_another_process(worker)
    if kind == "with a checkpoint":
        save_own(tmp_path)
    worker.timeouts = dataclasses.replace(worker.timeouts, start_secs=10.0)
    with tf.Graph().as_default():
        count = counter()
        with tf.device("/job:ps/task:0"):
            tf.train.get_or_create_global_step()
        with tf.device("/job:worker/task:0"):
            own = tf.get_variable("own", [], initializer=tf.constant_initializer(7.0))
        if kind == "Supervisor":
            opened = tf.train.Supervisor(logdir=None).managed_session(worker.target)
        else:
            opened = tf.train.MonitoredTrainingSession(
                worker.target, checkpoint_dir=str(tmp_path) if kind == "with a checkpoint" else None)
        with opened as session:
            assert session.run([count, own]) == [2.0, value]
    assert "gives values to the 1 that have none, such as 'own'" in caplog.text


@pytest.mark.parametrize("has_trained", [True, False])
def test_a_worker_that_only_joins_after_its_training_has_finished(worker, has_trained):
    """Synchronous updates would wait for its gradients."""
    if has_trained:
        assert train_one_step(worker, None) == 1.0
    worker.join_as_server()
    assert bool(worker.snapshot().finished[0]) is has_trained


def test_the_training_loop_of_slim_makes_synchronous_updates_and_can_be_stopped(worker, graph, tmp_path, monkeypatch):
    """Issue: it refused the optimizer, which is not TensorFlow's, and SIGTERM ended it without a checkpoint."""
    slim = pytest.importorskip("tf_slim")
    monkeypatch.setattr(ending, "_savers", [])
    monkeypatch.setattr(ending, "_stop_requests", [])
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 1, 1)
    train_op = slim.learning.create_train_op(tf.square(weight - 3.0), optimizer, global_step=step)
    loss = slim.learning.train(train_op, str(tmp_path), master=worker.target, number_of_steps=3, save_summaries_secs=0,
                               sync_optimizer=optimizer)
    assert loss < 1e-6
    assert tf.train.latest_checkpoint(tmp_path) is not None
    assert ending._savers and ending._stop_requests


def test_a_local_session_joins_nothing(worker, graph):
    """It is the script's own affair."""
    with tf.Session() as session:
        assert session.run(tf.constant(3)) == 3
    assert worker.board is None


def test_a_step_after_the_last_one_ends_the_block(worker, graph, caplog):
    """TensorFlow raises RuntimeError, though the training is complete; a warning says what the script does."""
    step = tf.train.get_or_create_global_step()
    count, rounds = step.assign_add(1), 0
    with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=2)]) as session:
        while not session.should_stop():
            session.run(count)
            session.run(step)
            rounds += 1
    assert rounds == 1
    assert "runs a step after the last one" in caplog.text


def test_a_script_may_wait_for_the_error_of_a_step_after_the_last_one(worker, graph):
    """Issue: it was an OutOfRangeError only; scripts have `except RuntimeError`, and compare the text."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    session = tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=1)])
    while not session.should_stop():
        try:
            session.run(count)
            session.run(count)
        except RuntimeError as error:
            assert error.args == ("Run called even after should_stop requested.",)
            break
    else:
        pytest.fail("no RuntimeError")
    session.close()


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_a_session_of_the_scripts_own_making_that_saves_ends_after_a_signal(worker, graph, tmp_path, monkeypatch, kind):
    """Issue: SIGTERM ended the process without a checkpoint, as only a MonitoredTrainingSession was asked to stop."""
    monkeypatch.setattr(ending, "_savers", [])
    monkeypatch.setattr(ending, "_stop_requests", [])
    monkeypatch.setattr(ending, "_noted_signal", threading.Event())
    count, rounds = tf.train.get_or_create_global_step().assign_add(1), 0
    saver = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1000)
    with getattr(tf.train, kind)(hooks=[saver]) as session:
        assert ending._stop_requests
        while not session.should_stop():
            session.run(count)
            rounds += 1
            if rounds == 2:
                ending._noted_signal.set()
    assert rounds == 3
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-3")


@pytest.fixture
def stoppable(monkeypatch):
    """A function that does what a signal to stop does at once."""
    for name in ("_stop_requests", "_savers", "_last_savers"):
        monkeypatch.setattr(ending, name, [])
    monkeypatch.setattr(ending, "_noted_signal", threading.Event())
    return lambda: ending._noted_signal.set()


def saving_session(worker, folder, kind):
    """Returns a monitored session that saves when it is opened and at its end, made by TensorFlow or by the script."""
    if kind == "MonitoredTrainingSession":
        return tf.train.MonitoredTrainingSession(worker.target, is_chief=True, checkpoint_dir=folder)
    saver = tf.train.CheckpointSaverHook(folder, save_steps=1000)
    creator = tf.train.ChiefSessionCreator(master=worker.target, checkpoint_dir=folder)
    return tf.train.MonitoredSession(creator, hooks=[saver])


@pytest.mark.parametrize("kind", ["MonitoredTrainingSession", "MonitoredSession"])
def test_a_monitored_session_whose_loop_waits_can_be_saved_by_another_thread(worker, graph, tmp_path, stoppable, kind):
    """Issue: after SIGTERM a chief that waited for its data, whose processes the signal had ended, saved nothing."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    with saving_session(worker, str(tmp_path), kind) as session:
        for _ in range(3):
            session.run(count)
        saved = Call(ending._last_savers[0], "save")
        saved.join(60)
        saved.result()
        assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-3")
        session.run(count)
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-4")
    ending._last_savers[0]()  # of a session that is closed


def test_the_old_names_of_a_supervisors_methods_are_those_of_ours(worker, graph, tmp_path, stoppable):
    """Issue: after SIGTERM a chief whose script calls `sv.PrepareSession` saved nothing: that was TensorFlow's own."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    session = supervisor.PrepareSession(worker.target)
    session.run(count)
    save_all()
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-1")
    supervisor.Stop()
    assert supervisor.StartStandardServices.__func__ is sessions.Supervisor.start_standard_services


def save_all():
    """Does what a signal does if no loop ends."""
    for save in [*ending._savers, *ending._last_savers]:
        save()


@pytest.mark.parametrize("kind", ["MonitoredTrainingSession", "MonitoredSession", "Supervisor"])
def test_a_session_inside_the_loop_of_another_leaves_the_outer_one_its_last_save(
        worker, graph, tmp_path, stoppable, kind):
    """Issue: after an evaluation inside a chief's loop a signal saved nothing. Of two that save, both do."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    folder, inner_folder = str(tmp_path / "outer"), str(tmp_path / "inner")
    if kind == "Supervisor":
        supervisor = tf.train.Supervisor(logdir=folder, save_model_secs=0)
        outer = supervisor.managed_session(worker.target)
    else:
        outer = saving_session(worker, folder, kind)
    with outer as session:
        session.run(count)
        for _ in range(2):
            with tf.Graph().as_default():
                inner_count = tf.train.get_or_create_global_step().assign_add(1)
                with tf.train.MonitoredTrainingSession(checkpoint_dir=inner_folder) as inner:
                    step = inner.run(inner_count)
                    save_all()
                    assert tf.train.latest_checkpoint(inner_folder).endswith(f"model.ckpt-{step}")
            if kind != "Supervisor":
                assert tf.train.latest_checkpoint(folder).endswith("model.ckpt-1")
        session.run(count)
        save_all()
        assert tf.train.latest_checkpoint(folder).endswith("model.ckpt-2")


@pytest.mark.parametrize("is_made_before", [False, True])
def test_a_supervisor_inside_the_loop_of_a_session_leaves_that_its_last_save(
        worker, graph, tmp_path, stoppable, is_made_before):
    """Issue: after an evaluation by a Supervisor inside a loop, a signal saved nothing."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    folder, inner_folder = str(tmp_path / "outer"), str(tmp_path / "inner")

    def make():
        with tf.Graph().as_default():
            inner_count = tf.train.get_or_create_global_step().assign_add(1)
            return tf.train.Supervisor(logdir=inner_folder, save_model_secs=0), inner_count

    made = make() if is_made_before else None
    with saving_session(worker, folder, "MonitoredTrainingSession") as session:
        session.run(count)
        supervisor, inner_count = made or make()
        with supervisor.managed_session() as inner:
            inner.run(inner_count)
            save_all()
            assert tf.train.latest_checkpoint(inner_folder).endswith("model.ckpt-1")
            assert tf.train.latest_checkpoint(folder).endswith("model.ckpt-1")
        session.run(count)
        save_all()
        assert tf.train.latest_checkpoint(folder).endswith("model.ckpt-2") and not ending._savers


def test_a_session_that_a_script_has_left_open_does_not_save_the_parameters_of_its_next_training(
        worker, tmp_path, stoppable):
    """It would overwrite the model of the fold before."""
    folders, opened = [str(tmp_path / name) for name in ("first", "second")], []
    for folder in folders:
        with tf.Graph().as_default():
            count = tf.train.get_or_create_global_step().assign_add(1)
            opened.append(tf.train.MonitoredTrainingSession(worker.target, is_chief=True, checkpoint_dir=folder))
            opened[-1].run(count)
    save_all()
    assert [tf.train.latest_checkpoint(folder)[-1] for folder in folders] == ["0", "1"]
    for session in reversed(opened):
        session.close()


@pytest.mark.parametrize("makes_session", [
    lambda target, folder: tf.train.MonitoredTrainingSession(target, is_chief=True, checkpoint_dir=folder),
    lambda target, folder: tf.train.SessionManager().prepare_session(
        target, saver=tf.train.Saver(), checkpoint_dir=folder)], ids=["MonitoredTrainingSession", "SessionManager"])
def test_a_session_of_the_same_training_inside_its_loop_leaves_it_its_last_save(
        worker, tmp_path, stoppable, makes_session):
    """It finds the parameters in use, and is of no other training, though another object makes it."""
    with tf.Graph().as_default():
        count = tf.train.get_or_create_global_step().assign_add(1)
        with saving_session(worker, str(tmp_path), "MonitoredTrainingSession") as session:
            session.run(count)
            with tf.Graph().as_default():
                tf.train.get_or_create_global_step()
                makes_session(worker.target, str(tmp_path)).close()
            session.run(count)
            save_all()
            assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-2")


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_loop_that_fails_after_a_signal_is_saved(worker, graph, tmp_path, stoppable, is_stopped):
    """The signal may have ended the processes of its data; an error without a signal saves nothing, as ever."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    with contextlib.suppress(EOFError), saving_session(worker, str(tmp_path), "MonitoredTrainingSession") as session:
        for _ in range(3):
            session.run(count)
        if is_stopped:
            stoppable()
        raise EOFError
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-3" if is_stopped else "model.ckpt-0")
    ending._last_savers[0]()


def test_a_worker_that_does_not_save_has_nothing_to_save_after_a_signal(worker, graph, tmp_path, stoppable):
    """Only the chief has a folder."""
    tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession(worker.target, is_chief=True):
        assert ending._stop_requests and not ending._last_savers


def lose_session(*args, **kwargs):
    """Stands for a call whose answer is lost."""
    raise tf.errors.UnavailableError(None, None, "Connection reset by peer")


def test_updates_go_on_after_the_loss_of_their_own_session(worker, graph, monkeypatch):
    """Issue: the script, whose session was not lost, waited for an update for ever; its chief did nothing."""
    with tf.device("/job:ps/task:0"):
        step, weight = tf.train.get_or_create_global_step(), tf.get_variable("weight", initializer=1.0)
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.25), 1)
    train_op = optimizer.minimize(tf.square(weight), step)
    with tf.train.MonitoredTrainingSession(
            worker.target, is_chief=True, hooks=[optimizer.make_session_run_hook(True)]) as session:
        session.run(train_op)
        runner = optimizer.get_chief_queue_runner()
        first = runner._session
        monkeypatch.setattr(first, "run", lose_session)
        waits.until(lambda: runner._service.error, 60, "the loss", threading.Event())
        worker.timeouts = dataclasses.replace(worker.timeouts, heartbeat_secs=0.0)
        done = Call(lambda: [session.run(train_op) for _ in range(3)], "steps")
        done.join(60)
        assert not done.is_alive() and runner._session is not first
        done.result()
        # The new session gives up the gradients that were on their way, with a step of their own.
        steps, weight_now = session.run([step, weight])
        assert steps >= 4 and weight_now <= 0.5**3


def close_monitored(runner, has_begun):
    """Opens and closes a monitored session; returns the threads of its coordinator."""
    tf.train.add_queue_runner(runner)
    session = tf.train.MonitoredTrainingSession()
    threads = list(session._coordinated_creator.coord._registered_threads)
    assert has_begun.wait(60)
    session.close()
    return threads


def stop_supervisor(runner, has_begun):
    """Stops a Supervisor, and closes its session later, as classic scripts do; returns the threads of the runner."""
    supervisor = tf.train.Supervisor(logdir=None)
    session = supervisor.prepare_or_wait_for_session()
    threads = supervisor.start_queue_runners(session, [runner])
    assert has_begun.wait(60)
    supervisor.stop()
    assert session.run(tf.get_default_graph().get_tensor_by_name("three:0")) == 3.0
    session.close()
    return threads


def leave_managed_session(runner, has_begun):
    """Leaves the block of a Supervisor's managed session; returns the threads of the runner."""
    supervisor = tf.train.Supervisor(logdir=None)
    with supervisor.managed_session() as session:
        threads = supervisor.start_queue_runners(session, [runner])
        assert has_begun.wait(60)
    return threads


def test_a_supervisor_leaves_summaries_that_need_feeds_to_the_script(replaced, tmp_path):
    """Issue: its thread failed for want of the feed; then the script found no `summary_op` to run itself."""
    with tf.Graph().as_default():
        fed = tf.placeholder(tf.float32, [], name="loss")
        tf.summary.scalar("loss", fed)
        supervisor = sessions.Supervisor(logdir=str(tmp_path), save_summaries_secs=1)
        with supervisor.managed_session("") as session:
            threads = supervisor.start_standard_services(session)
            assert b"loss" in session.run(supervisor.summary_op, {fed: 1.0})
        assert not any("Summary" in type(thread).__name__ for thread in threads)


def join_coordinator(runner, has_begun):
    """Joins the threads that a script has started itself."""
    coordinator = tf.train.Coordinator()
    with tf.Session() as session:
        threads = runner.create_threads(session, coordinator, daemon=True, start=True)
        assert has_begun.wait(60)
        coordinator.request_stop()
        coordinator.join(threads)
    return threads


@pytest.mark.parametrize("end", [close_monitored, stop_supervisor, leave_managed_session, join_coordinator])
def test_a_queue_runner_that_waits_for_a_gradient_ends_with_the_session(worker, graph, monkeypatch, end):
    """Issue: a script's own copy of TensorFlow's SyncReplicasOptimizer made each training end two minutes late.

    All but the monitored session then failed.
    """
    printed = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setattr(session_repairs, "_QUEUE_RUNNERS_SECS", 0.01)
    tf.constant(3.0, name="three")
    has_begun = threading.Event()
    queue = tf.FIFOQueue(1, [tf.float32], [[]])
    with tf.control_dependencies([tf.py_func(has_begun.set, [], [])]):
        gradient = tf.ConditionalAccumulator(tf.float32, []).take_grad(1)  # nobody sends one
    runner = tf.train.QueueRunner(queue, [queue.enqueue(gradient)])
    ending = Call(lambda: in_graph(graph, end, runner, has_begun), "end")
    ending.join(60)
    assert not ending.is_alive()
    for thread in ending.result():
        thread.join(60)
        assert not thread.is_alive()
    assert printed == []


def in_graph(graph, function, *arguments):
    """Returns what the function returns in another thread than the test's."""
    with graph.as_default():
        return function(*arguments)


def test_a_session_stays_open_for_a_thread_of_the_script(worker, graph, monkeypatch):
    """It may use the session until it notices the end."""
    monkeypatch.setattr(session_repairs, "_QUEUE_RUNNERS_SECS", 0.0)
    count, is_closed, results = counter(), threading.Event(), []
    session = tf.train.MonitoredTrainingSession(worker.target)
    inner, coordinator = session._tf_sess(), session._coordinated_creator.coord
    close = inner.close
    monkeypatch.setattr(inner, "close", lambda: (is_closed.set(), close()))

    def count_at_the_end():
        coordinator.wait_for_stop()
        results.append(is_closed.wait(1.0))
        results.append(inner.run(count))

    thread = threading.Thread(target=count_at_the_end, name="of the script")
    coordinator.register_thread(thread)
    thread.start()
    session.close()
    assert results == [False, 1.0]


def test_without_a_gpu_what_is_put_on_one_runs_on_the_cpu(worker, graph):
    """`tf.device("/gpu:0")` is written into many scripts."""
    with tf.device("/gpu:0"):
        three = tf.identity(tf.constant(1.0) + 2.0)
    with tf.Session() as session:
        assert session.run(three) == 3.0


@pytest.mark.parametrize("message", ["The same RunGraph (Worker) request was received twice. step_id: 1", "another"])
@pytest.mark.parametrize("name", ["run", "make_callable"])
def test_a_step_that_tensorflow_dropped_as_a_duplicate_runs_again(worker, graph, monkeypatch, name, message):
    """Issue: it ended the script of a Supervisor. Any other AbortedError means that the session is lost."""
    count, errors = counter(), [tf.errors.AbortedError(None, None, message)]

    def failing_once(run):
        def result(*args, **kwargs):
            if errors:
                raise errors.pop()
            return run(*args, **kwargs)
        return result

    with tf.Session(worker.target) as session:
        session.run(tf.global_variables_initializer())
        original = getattr(BaseSession, name)
        monkeypatch.setattr(BaseSession, name, failing_once(original) if name == "run" else (
            lambda session, *args: failing_once(original(session, *args))))
        run = session.make_callable(count) if name == "make_callable" else lambda: session.run(count)
        if message == "another":
            with pytest.raises(tf.errors.AbortedError, match="another"):
                run()
        assert run() == 1.0


def test_what_prepares_a_step_is_asked_by_callables_too(graph):
    """Models of Keras train by them; a step of Horovod's would wait for ever for what was not prepared."""
    class Redirection:
        asked = []

        def route(self, graph):
            return sessions.Route("")

        def before_run(self, session, fetches):
            self.asked.append(fetches)

    number = tf.constant(3, name="number")
    sessions.set_redirection(Redirection())
    try:
        with sessions.Session() as session:
            options = config_pb2.CallableOptions(fetch=["number:0"], target=["number"])
            assert session._make_callable_from_options(options)() == [3]
            assert session.make_callable(number)() == 3
    finally:
        sessions.set_redirection(None)
    assert Redirection.asked == [["number:0", "number"], number]


@pytest.mark.parametrize(("text", "code"), [
    ("143", 143), ("<EMPTY MESSAGE>", 0), ("None", 0), ("False", 0), ("-1", -1), ("3 tasks left", "3 tasks left"),
    ("0\n\nAt:\n  script.py(5): end\n", 0)])
def test_a_script_that_a_signal_ends_while_a_step_fails_ends_as_it_says(text, code):
    """Issue: TensorFlow mixes the script's SystemExit and its own error into a RuntimeError; it ended with 1."""
    def fail(message):
        raise RuntimeError(message)

    mixed = ("pybind11::error_already_set: MISMATCH of original and normalized active exception types: "
             f"ORIGINAL UnavailableError REPLACED BY SystemExit: {text}")
    with pytest.raises(SystemExit) as caught:
        sessions.repeated_if_dropped(lambda: fail(mixed))
    assert caught.value.code == code
    with pytest.raises(RuntimeError, match="another"):
        sessions.repeated_if_dropped(lambda: fail("another"))
