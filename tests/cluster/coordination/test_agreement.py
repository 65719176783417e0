"""What a worker says while it waits for the ps to describe their cluster."""

from __future__ import annotations

import logging
import socket

from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement
from tests.errors import raises


def test_a_ps_name_that_does_not_resolve_is_named_at_once(stop, monkeypatch, caplog):
    """It is the first wait of a worker, so the line comes there, and not after the whole time limit."""
    def connect(address, timeout):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    cluster = Cluster("worker", 0, {"ps": {0: "nowhere:5000"}, "worker": {0: "localhost:1"}})
    with caplog.at_level(logging.WARNING), raises("timed_out") as caught:
        agreement.check(cluster, 0.3, stop)
    assert "ps:0 nowhere:5000 (its host name does not resolve" in str(caught.value)
    [line] = caplog.messages
    assert "ps:0 nowhere:5000" in line and "Name or service not known" in line and "0.3 s" in line
