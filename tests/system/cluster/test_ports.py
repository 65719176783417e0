"""Ports that stay free for a task."""

from __future__ import annotations

import socket
import sys

import pytest

from ps_train.cluster import ports
from ps_train.launch.machines import hold_ports
from tests.children import FIRST_PORT, is_free, ports_of, python, run_to_end
from tests.errors import raises


def test_held_ports_are_taken_until_they_are_closed():
    """While a port is held no server can bind it; once closed it is free again."""
    held = hold_ports(2, FIRST_PORT)
    first, second = ports_of(held)
    assert FIRST_PORT <= first < second
    assert not is_free(first) and not is_free(second)
    for holder in held:
        holder.close()
    assert is_free(first) and is_free(second)


def test_two_holders_never_get_the_same_port():
    """A second launcher takes the next ports."""
    one, other = hold_ports(3, FIRST_PORT), hold_ports(3, FIRST_PORT)
    assert len({*ports_of(one), *ports_of(other)}) == 6
    for holder in [*one, *other]:
        holder.close()


def test_a_port_that_something_listens_on_is_passed_over():
    """An IPv4 listener on the first port counts as taken."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        held = hold_ports(1, port)
        assert ports_of(held)[0] > port
        held[0].close()


def test_too_few_ports_are_a_configuration_error_and_none_stays_held():
    """There are 65535 ports; the error says how many tasks need one."""
    with raises("too_few_ports") as caught:
        hold_ports(3, 65534)
    assert "3 tasks" in str(caught.value)
    assert is_free(65534) and is_free(65535)


def test_the_last_port_is_one_of_them():
    """A --base_port may be chosen so that the last task gets it."""
    held = hold_ports(1, 65535)
    assert ports_of(held) == [65535]
    held[0].close()


def test_a_child_can_bind_its_held_port_and_another_launcher_still_cannot(tmp_path):
    """From choice to listening the port is never free for another launcher, and the child's server gets it."""
    (holder,) = hold_ports(1, FIRST_PORT)
    port = ports_of([holder])[0]
    child = python(tmp_path, "child", f"""
        import os, socket
        from ps_train.cluster import ports
        from ps_train.launch.machines import hold_ports
        ports.release_held_port()
        assert ports.HELD_PORT_VARIABLE not in os.environ
        (next_one,) = hold_ports(1, {port})
        assert next_one.getsockname()[1] != {port}, "another launcher got the port"
        server = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", {port}))
        server.listen()
        print("served")
    """, holder)
    run_to_end(child)
    lines = list(child.new_lines())
    assert (child.exit_code, lines) == (0, ["served"])
    holder.close()
    assert is_free(port)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a launcher and a server cannot share a port")
def test_the_port_of_a_task_that_ended_stays_its_own(tmp_path):
    """Another launcher does not get it meanwhile; the task that is started again serves there."""
    (holder,) = hold_ports(1, FIRST_PORT)
    port = ports_of([holder])[0]
    child = python(tmp_path, "child", f"""
        import socket
        from ps_train.cluster import ports
        ports.release_held_port()
        server = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", {port}))
        server.listen()
        print("served")
    """, holder)
    run_to_end(child)
    (next_one,) = hold_ports(1, port)
    assert ports_of([next_one]) != [port]
    next_one.close()
    child.restart()
    run_to_end(child)
    assert (child.exit_code, list(child.new_lines())) == (0, ["served", "served"])
    holder.close()


def test_release_does_nothing_without_a_launcher(monkeypatch):
    """A task that a person started has no held port."""
    monkeypatch.delenv(ports.HELD_PORT_VARIABLE, raising=False)
    ports.release_held_port()
