"""The mark of a server that has joined, in real servers."""

from __future__ import annotations

from ps_train.cluster.spec import Task
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
