"""Servers, and the life of a ps."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest

from ps_train import blackboard, server
from ps_train.cluster import Cluster
from ps_train.errors import ConfigError, PsTrainError
from ps_train.snapshot import State
from tests import processes


def cluster_at(job: str, index: int, num_workers: int = 4) -> Cluster:
    """Returns a cluster on free ports."""
    ports = processes.free_ports(1 + num_workers)
    return Cluster(job, index, {"ps": {0: f"localhost:{ports[0]}"},
                                "worker": {i: f"localhost:{port}" for i, port in enumerate(ports[1:])}})


def test_a_server_listens_at_its_own_address():
    """The target names it."""
    cluster = cluster_at("worker", 2)
    assert server.start(cluster, num_gpus=0) == f"grpc://{cluster.task.address}"
    assert processes.is_open(int(cluster.task.address.split(":")[1]))


def test_a_port_in_use_is_named_with_a_way_to_find_its_holder():
    """One line, before TensorFlow tries."""
    cluster = cluster_at("ps", 0)
    port = int(cluster.task.address.split(":")[1])
    with socket.socket(socket.AF_INET6) as holder:
        holder.bind(("", port))
        holder.listen()
        with pytest.raises(ConfigError, match=rf"port {port} of ps:0 localhost:{port} is in use.*sport = :{port}"):
            server.start(cluster, num_gpus=0)


@pytest.mark.parametrize(("job", "index", "num_gpus", "expected"), [
    ("worker", 0, 2, 0), ("worker", 1, 2, 1), ("worker", 3, 2, 1), ("worker", 3, 1, 0),
    ("worker", 0, 0, None), ("ps", 0, 4, None),
])
def test_a_worker_takes_the_gpu_of_its_number_and_a_ps_none(job, index, num_gpus, expected):
    """task_index % num_gpus; the server of a task without one is told to make no GPU device."""
    cluster = cluster_at(job, index)
    assert server.gpu_index(cluster, num_gpus) == expected
    config = server._session_config(cluster, num_gpus)
    if expected is None:
        assert config.device_count["GPU"] == 0
    else:
        assert config.gpu_options.visible_device_list == str(expected)
        assert config.gpu_options.allow_growth


def _serve(cluster, stop, idle_secs=60):
    """Runs a ps's life in a thread, up to its loop; returns it and the list that gets the error it ended with."""
    errors, is_up = [], threading.Event()

    def run():
        try:
            with contextlib.closing(blackboard.of_ps(cluster.target("ps", 0), cluster.view("ps", 0))) as board:
                put_up = board.put_up
                board.put_up = lambda: (put_up(), is_up.set())
                server.Life(board, lambda: board, beat_timeout_secs=5, idle_timeout_secs=idle_secs,
                            stop_timeout_secs=20, stop=stop).run()
        except PsTrainError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(30)
    return thread, errors


def test_a_ps_serves_until_training_is_done(start_servers, stop):
    """Running and stopping do not end it, done does."""
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        for state in (State.RUNNING, State.STOPPING):
            board.announce(state)
            thread.join(3 * server._POLL_SECS)
            assert thread.is_alive(), state
        board.announce(State.DONE)
    thread.join(10)
    assert not thread.is_alive()
    assert errors == []


def test_a_ps_waits_for_a_worker_that_does_not_know_yet_that_training_is_done(start_servers, stop, monkeypatch):
    """It ends when that worker has heard of it, and without it after a while."""
    monkeypatch.setattr(server, "_LATE_SECS", 60.0)
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(0, claim=5)
        board.announce(State.DONE)
        thread.join(2 * server._LINGER_SECS)
        assert thread.is_alive()
        board.report_finished(0)
        thread.join(10)
        assert not thread.is_alive()
    monkeypatch.setattr(server, "_LATE_SECS", 0.5)
    thread, errors_without_it = _serve(cluster, stop)
    with contextlib.closing(blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(0, claim=6)
        board.announce(State.DONE)
    thread.join(10)
    assert (thread.is_alive(), errors, errors_without_it) == (False, [], [])


def test_a_ps_obeys_a_signal(start_servers, stop):
    """A set stop event ends it with the error of that exit code."""
    thread, errors = _serve(start_servers(1, 1), stop)
    stop.set()
    thread.join(10)
    assert [error.exit_code for error in errors] == [143]


def test_a_ps_without_any_worker_ends_by_itself(start_servers, stop):
    """Exit code 138 after the idle time-out, and not before a worker that is there has left."""
    cluster = start_servers(1, 1)
    with contextlib.closing(blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.claim(0, claim=5)
        thread, errors = _serve(cluster, stop, idle_secs=0.1)
        assert board.snapshot().claims[0] == 0
    thread.join(20)
    assert [error.exit_code for error in errors] == [138]
    assert "no worker was there for 0.1 s" in str(errors[0])


def test_a_ps_ends_when_the_chief_gave_up(start_servers, stop):
    """Exit code 138, and the message says whose log to read."""
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.announce(State.FAILED)
    thread.join(10)
    assert [error.exit_code for error in errors] == [138]
    assert "the chief gave up" in str(errors[0])


@pytest.mark.parametrize(("workers", "num_cores", "expected"), [
    ({0: "b:1", 1: "c:1"}, 8, 0), ({0: "a:2", 1: "b:1"}, 8, 0), ({0: "a:2", 1: "a:3", 2: "b:1"}, 8, 4),
    ({0: "a:2", 1: "a:3", 2: "a:4"}, 2, 1),
], ids=["alone on its machine", "with one worker", "with two workers", "more workers than cores"])
def test_the_workers_of_one_machine_share_its_cores(monkeypatch, workers, num_cores, expected):
    """Each of its tasks takes such a share for one operation, at least one thread; TensorFlow's own variable wins."""
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    cluster = Cluster("ps", 0, {"ps": {0: "a:1"}, "worker": workers})
    assert server.threads_of_an_operation(cluster, num_cores) == expected
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert server.threads_of_an_operation(cluster, num_cores) == 0


_COUNT_THREADS = """
import os, sys
from ps_train import logs
logs.import_tensorflow_quietly()
import tensorflow.compat.v1 as tf
from ps_train import server, task
from ps_train.cluster import Cluster
task.prepare_tensorflow(tf_log=False)
server.share_cores(Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {n: f"{host}:2" for n, host in enumerate("aa")}
                                         if sys.argv[1] == "shared" else {0: "a:2"}}))
with tf.Graph().as_default(), tf.Session() as session:  # as another part of the program would make it
    session.run(tf.reduce_sum(tf.ones([1000, 1000])))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task") or server._num_cores() < 2, reason="needs /proc and 2 cores")
def test_what_is_decided_first_holds_for_all_later_sessions_of_a_process():
    """With two workers on its machine a task has half of the threads for an operation, whoever makes the session."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_NUM_INTRAOP_THREADS"}
    shared, alone = (
        int(subprocess.run([sys.executable, "-c", _COUNT_THREADS, which], env=environment, cwd=processes.REPO,
                           capture_output=True, text=True, timeout=60, check=True).stdout)
        for which in ("shared", "alone"))
    cores = server._num_cores()
    assert alone - shared == cores - max(1, cores // 2)
