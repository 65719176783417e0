"""The mark of a server that has joined, in real servers."""

from __future__ import annotations

import socket
import threading

from ps_train.cluster.spec import Task
from ps_train.coordination import sessions
from ps_train.parts.legacy.classic import clients
from tests import processes
from tests.tensorflow_mode import tf


def test_a_mark_is_in_the_server_of_its_task_only():
    """Other tasks find it there; one that is not there has none."""
    addresses = [f"localhost:{port}" for port in processes.free_ports(3)]
    servers = [tf.train.Server({"local": addresses}, "local", index) for index in range(2)]
    first, second, missing = (Task("local", index, address) for index, address in enumerate(addresses))
    assert len(servers) == 2 and not clients.has_joined(first)
    assert clients.mark_as_joined(first) and clients.has_joined(first)
    assert not clients.has_joined(second) and not clients.has_joined(missing)


def test_two_servers_end_with_their_client_and_do_not_wait_for_each_other(monkeypatch):
    """The client is no more than a port here, which closes as that of a process that ends."""
    monkeypatch.setattr(sessions, "_RUN_TIMEOUT_SECS", 2.0)
    addresses = [f"localhost:{port}" for port in processes.free_ports(3)]
    servers = [tf.train.Server({"local": addresses}, "local", index) for index in (1, 2)]
    tasks = [Task("local", index, address) for index, address in enumerate(addresses)]
    waits = [threading.Thread(target=clients.wait_for_clients, args=(
        own, [task for task in tasks if task != own], threading.Event(), 1.0), daemon=True) for own in tasks[1:]]
    for wait in waits:
        wait.start()
    waits[0].join(8.0)
    assert len(servers) == 2 and all(wait.is_alive() for wait in waits)
    with socket.create_server(("localhost", int(addresses[0].rpartition(":")[2]))):
        waits[0].join(8.0)
        assert all(wait.is_alive() for wait in waits)
    for wait in waits:
        wait.join(30.0)
    assert not any(wait.is_alive() for wait in waits)
