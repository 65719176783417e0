"""Servers: ports, GPUs, cores."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import types

import pytest

from ps_train.cluster import ports as ports_cluster
from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError
from ps_train.graph import devices
from ps_train.runtime import threads
from ps_train.tasks import setup
from tests import processes


def cluster_at(job: str, index: int, num_workers: int = 4) -> Cluster:
    """Returns a cluster on free ports."""
    ports = processes.free_ports(1 + num_workers)
    return Cluster(job, index, {"ps": {0: f"localhost:{ports[0]}"},
                                "worker": {i: f"localhost:{port}" for i, port in enumerate(ports[1:])}})


def test_a_server_listens_at_its_own_address():
    """The target names it."""
    cluster = cluster_at("worker", 2)
    assert setup.start(cluster, num_gpus=0) == f"grpc://{cluster.task.address}"
    assert processes.is_open(int(cluster.task.address.split(":")[1]))


def test_a_port_in_use_is_named_with_a_way_to_find_its_holder():
    """One line, before TensorFlow tries."""
    cluster = cluster_at("ps", 0)
    port = int(cluster.task.address.split(":")[1])
    with socket.socket(socket.AF_INET6) as holder:
        holder.bind(("", port))
        holder.listen()
        with pytest.raises(ConfigError, match=rf"port {port} of ps:0 localhost:{port} is in use.*sport = :{port}"):
            setup.start(cluster, num_gpus=0)


@pytest.fixture
def have_gpus(monkeypatch):
    """A function that lets TensorFlow find so many GPUs."""
    def found(count):
        monkeypatch.setattr(setup.tf.config, "list_physical_devices",
                            lambda kind: [f"{kind}:{number}" for number in range(count)])

    return found


def test_an_own_address_that_is_another_machines_is_told_and_not_refused(caplog):
    """A wrong index, or a NAT: one line; the server starts."""
    (port,) = processes.free_ports(1)
    task = Cluster("worker", 0, {"worker": {0: f"192.0.2.77:{port}"}}).task
    with caplog.at_level("WARNING"):
        ports_cluster.check_port(task)
    [line] = caplog.messages
    assert line.startswith(f"worker:0 192.0.2.77:{port}: ") and "--task_index" in line


@pytest.mark.parametrize(("job", "index", "num_gpus", "expected"), [
    ("worker", 0, 2, 0), ("worker", 1, 2, 1), ("worker", 3, 2, 1), ("worker", 3, 1, 0), ("worker", 3, None, 3),
    ("worker", 3, 8, 3), ("worker", 0, 0, None), ("ps", 0, 4, None),
])
def test_a_worker_takes_the_gpu_of_its_number_and_a_ps_none(have_gpus, monkeypatch, job, index, num_gpus, expected):
    """task_index % num_gpus, of four; its process sees no other; the server of a task without one makes no device."""
    have_gpus(4)
    shown = []
    monkeypatch.setattr(setup.tf.config, "set_visible_devices", lambda devices, kind: shown.append(devices))
    cluster = cluster_at(job, index)
    assert devices.gpu_index(cluster, num_gpus) == expected
    config = setup._session_config(cluster, num_gpus)
    setup.share_machine(cluster, num_gpus)
    if expected is None:
        assert config.device_count["GPU"] == 0
        assert shown == [[]]
    else:
        assert config.gpu_options.visible_device_list == str(expected)
        assert shown == [f"GPU:{expected}"]


def test_the_workers_of_each_of_two_hosts_take_all_its_gpus(have_gpus):
    """`launch --hosts` deals the tasks out in turn: the workers of a host are all even or all odd."""
    have_gpus(2)
    workers = {index: f"host{index % 2}:{2222 + index // 2}" for index in range(4)}
    taken = [devices.gpu_index(Cluster("worker", index, {"ps": {0: "host0:3000"}, "worker": workers}), None)
             for index in range(4)]
    assert taken == [0, 0, 1, 1]


@pytest.mark.parametrize(("index", "num_gpus", "num_found", "device", "warning"), [
    (0, 2, 0, "CPU:0", "--num_gpus=2: TensorFlow finds no GPU on this machine"),
    (1, 2, 1, "GPU:0", "--num_gpus=2: TensorFlow finds only 1 GPU on this machine"),
    (1, 2, 2, "GPU:1", ""), (0, None, 0, "CPU:0", ""), (0, 0, 4, "CPU:0", ""),
])
def test_a_worker_says_where_it_computes_and_what_was_not_found(
        have_gpus, caplog, monkeypatch, index, num_gpus, num_found, device, warning):
    """--num_gpus without so many GPUs was silent once."""
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    have_gpus(num_found)
    monkeypatch.setattr(setup.tf.train, "Server", lambda *args, **kwargs: types.SimpleNamespace(target="grpc://x"))
    with caplog.at_level(logging.INFO, "ps_train"):
        setup.start(cluster_at("worker", index), num_gpus)
    assert f"worker:{index} computes on /device:{device}" in caplog.messages
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.startswith(warning) for text in warnings] == ([True] if warning else [])


@pytest.mark.parametrize(("workers", "num_cores", "num_threads", "is_crowded"), [
    ({0: "b:1", 1: "c:1"}, 8, 8, False), ({0: "a:2", 1: "b:1"}, 4, 4, False),
    ({0: "a:2", 1: "a:3", 2: "b:1"}, 8, 4, False), ({0: "a:2", 1: "a:3", 2: "b:1"}, 5, 2, True),
    ({0: "a:2", 1: "a:3", 2: "a:4"}, 2, 1, True),
], ids=["alone on its machine", "with one worker", "with two workers", "with few cores", "more workers than cores"])
def test_the_workers_of_one_machine_share_its_cores(monkeypatch, workers, num_cores, num_threads, is_crowded):
    """A part of the cores for one operation; TensorFlow's own variable wins. With few cores, idle threads sleep."""
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    cluster = Cluster("ps", 0, {"ps": {0: "a:1"}, "worker": workers})
    assert setup.share_of_cores(cluster, num_cores) == (num_threads, is_crowded)
    monkeypatch.setattr(threads, "num_cores", lambda: num_cores)
    assert setup.session_threads(cluster).experimental.disable_thread_spinning == is_crowded
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert setup.share_of_cores(cluster, num_cores) == (0, is_crowded)


_COUNT_THREADS = """
import os, sys
from ps_train.runtime import installed
installed.import_tensorflow_quietly()
from tests.tensorflow_mode import tf
from ps_train.tasks import setup
from ps_train.cluster.spec import Cluster
setup.prepare_tensorflow(tf_log=False)
workers = {n: f"{host}:2" for n, host in enumerate("aa")} if sys.argv[1] == "shared" else {0: "a:2"}
setup.share_machine(Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": workers}), num_gpus=0)
with tf.Graph().as_default(), tf.Session() as session:  # as another part of the program would make it
    session.run(tf.reduce_sum(tf.ones([1000, 1000])))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task") or threads.num_cores() < 2, reason="needs /proc and 2 cores")
def test_what_is_decided_first_holds_for_all_later_sessions_of_a_process():
    """With two workers on its machine a task has half of the threads for an operation, in every session."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_NUM_INTRAOP_THREADS"}
    shared, alone = (
        int(subprocess.run([sys.executable, "-c", _COUNT_THREADS, which], env=environment, cwd=processes.REPO,
                           capture_output=True, text=True, timeout=300, check=True).stdout)
        for which in ("shared", "alone"))
    cores = threads.num_cores()
    assert alone - shared == cores - max(1, cores // 2)
