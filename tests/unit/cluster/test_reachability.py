"""Waiting for tasks: which are there, which are missing, and which host names do not resolve."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time

import pytest

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.errors import BlackboardError, ClusterLostError, StoppedError
from tests.errors import raises


@contextlib.contextmanager
def _takes(least_secs, most_secs):
    start_secs = time.monotonic()
    yield
    assert least_secs <= time.monotonic() - start_secs <= most_secs


@contextlib.contextmanager
def _listener(family=socket.AF_INET, host="localhost"):
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen()
        yield listener.getsockname()[1]


def _closed_port():
    with _listener() as port:
        return port


def test_tasks_that_accept_connections_are_there(stop):
    """A task is there when its port accepts a connection."""
    with _listener() as one, _listener() as other, _takes(0, 5):
        reachability.wait_for_tasks([Task("ps", 0, f"localhost:{one}"), Task("ps", 1, f"localhost:{other}")], 10, stop)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_task_may_have_an_ipv6_address(stop):
    """The brackets of an IPv6 address are no part of the host."""
    try:
        listening = _listener(socket.AF_INET6, "::1")
        port = listening.__enter__()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    reachability.wait_for_tasks([Task("ps", 0, f"[::1]:{port}")], 10, stop)
    listening.__exit__(None, None, None)


def test_missing_tasks_are_named_and_others_are_not(stop):
    """The error names every task that is missing, with its address, and no other."""
    closed = [_closed_port(), _closed_port()]
    with _listener() as there:
        tasks = [Task("ps", 0, f"localhost:{closed[0]}"), Task("ps", 1, f"localhost:{there}"),
                 Task("ps", 2, f"localhost:{closed[1]}")]
        with raises("timed_out", kind=ClusterLostError) as caught:
            reachability.wait_for_tasks(tasks, 0.3, stop)
    assert f"0.3 s for ps:0 localhost:{closed[0]}, ps:2 localhost:{closed[1]};" in str(caught.value)


def test_a_task_that_comes_later_is_waited_for(stop):
    """The wait ends soon after the port opens."""
    port = _closed_port()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def open_port():
        listener.bind(("localhost", port))
        listener.listen()

    with listener, _takes(0.4, 30):
        threading.Timer(0.4, open_port).start()
        reachability.wait_for_tasks([Task("ps", 0, f"localhost:{port}")], 60, stop)


def test_an_unknown_host_is_named_as_such_at_once_and_waited_for(stop, monkeypatch, caplog):
    """A warning says it before the time is over, and so does the error; the name of a pod may appear later."""
    def connect(address, timeout):
        if address[0] == "nowhere":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    tasks = [Task("ps", 0, "nowhere:5000"), Task("ps", 1, "there:5000")]
    with caplog.at_level(logging.WARNING), raises("timed_out") as caught:
        reachability.wait_for_tasks(tasks, 0.5, stop)
    assert re.search(r"ps:0 nowhere:5000 \(.* does not resolve .*\), ps:1 there:5000;", str(caught.value))
    [line] = caplog.messages
    assert "ps:0 nowhere:5000" in line and "Name or service not known" in line and "0.5 s" in line


def test_the_error_says_why_a_task_that_accepts_connections_is_not_ready(stop):
    """With the last reason, such as a proxy between; a task that became ready meanwhile is not named."""
    answers = iter(["an earlier fault", "the proxy refuses"])
    with _listener() as one, _listener() as other:
        silent, ready = Task("ps", 0, f"localhost:{one}"), Task("ps", 1, f"localhost:{other}")

        def is_ready(task):
            if task is silent:
                raise BlackboardError("ps_unreachable", next(answers, "the proxy refuses"))
            return True

        with raises("timed_out") as caught:
            reachability.wait_for_tasks([silent, ready], 0.5, stop, is_ready)
    assert f"0.5 s for ps:0 localhost:{one} (the proxy refuses); is it started" in str(caught.value)


def test_unreachable_tasks_do_not_delay_a_signal(stop, monkeypatch):
    """Once `stop` is set, no further task is tried."""
    tried = []

    def connection_error(address):
        tried.append(address)
        stop.set()
        return ConnectionRefusedError()

    monkeypatch.setattr(reachability, "connection_error", connection_error)
    with raises("stopped", kind=StoppedError):
        reachability.wait_for_tasks([Task("ps", index, f"host:{index + 1}") for index in range(9)], 30, stop)
    assert tried == ["host:1"]
