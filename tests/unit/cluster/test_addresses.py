"""The addresses of tasks, right and wrong."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_train.cluster import addresses
from ps_train.errors import ConfigError
from tests.cluster_strategies import ADDRESSES
from tests.errors import codes_of, error_of


@pytest.mark.parametrize("address", [
    "localhost:2222", "host:1", "host:65535", "10.0.0.1:2222", "a-b.c_d.example.com:2222", "example.com.:2222",
    "HOST:2222", "[::1]:2222", "[2001:db8::7]:2222", "[::ffff:10.0.0.1]:2222", "[fe80::1%eth0]:2222",
])
def test_accepts_an_address(address):
    """Names, IPv4 and bracketed IPv6 addresses with a port are returned as they are."""
    assert addresses.parse_address("x", address) == address


@pytest.mark.parametrize(("address", "fault"), [
    ("", ""),
    ("localhost", ""),
    (":2222", ""),
    ("localhost:", ""),
    ("localhost:0", ""),
    ("localhost:65536", ""),
    ("localhost:99999", ""),
    ("localhost:-1", ""),
    ("localhost:+1", ""),
    ("localhost:http", ""),
    ("localhost:02222", ""),
    ("localhost:2_2", ""),
    ("localhost:２２２２", ""),
    ("localhost:" + "9" * 5000, ""),
    ("localhost:2222 ", "space"),
    (" localhost:2222", "space"),
    ("localhost: 2222", "space"),
    ("localhost:2222\n", "space"),
    ("http://localhost:2222", "scheme"),
    ("grpc://localhost:2222", "scheme"),
    ("localhost:2222/path", ""),
    ("user@localhost:2222", ""),
    ("a..b:2222", ""),
    ("x" * 64 + ":2222", ""),
    ("hôst:2222", ""),
    ("a,b:2222", ""),
    ("host\0:2222", ""),
    ("::1:2222", "[::1]:2222"),
    ("localhost:2222:2223", "[::1]:2222"),
    ("[::::]:2222", "[::1]:2222"),
    ("[host]:2222", ""),
    ("[]:2222", ""),
    (None, ""),
    (2222, ""),
    (["localhost:2222"], ""),
    ({"host": "localhost", "port": 2222}, ""),
])
def test_refuses_what_is_no_address(address, fault):
    """TensorFlow would accept or crash on these; the error names the flag, the address and a common mistake."""
    error = error_of(addresses.parse_address, "--ps_hosts", address)
    assert codes_of(error) == ["address_malformed"]
    assert f"--ps_hosts: got {address!r}" in str(error) and fault in str(error)


def test_a_wrong_entry_of_a_list_is_named_by_its_number():
    """Also an empty one."""
    for hosts, entry in (("a:1,b", "entry 1: got 'b'"), ("a:1,", "entry 1: got ''"), ("", "entry 0: got ''")):
        error = error_of(addresses.parse_hosts, "--ps_hosts", hosts)
        assert codes_of(error) == ["address_malformed"] and f"--ps_hosts {entry}" in str(error)


@given(st.lists(ADDRESSES, min_size=1, max_size=5))
def test_valid_hosts_come_back_as_they_were(hosts):
    """Joined again, the addresses are the text that was given, each at its index."""
    parsed = addresses.parse_hosts("--ps_hosts", ",".join(hosts))
    assert parsed == dict(enumerate(hosts))


@given(st.text())
def test_any_text_is_hosts_or_a_config_error(text):
    """No text raises anything but ConfigError; what is accepted has only ports that exist."""
    try:
        parsed = addresses.parse_hosts("--ps_hosts", text)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert ",".join(parsed.values()) == text
        assert all(1 <= int(address.rpartition(":")[2]) <= 65535 for address in parsed.values())


@pytest.mark.parametrize(("tasks", "names"), [
    ({"ps": {0: "a:1", 1: "a:1"}}, "ps:0 and ps:1"),
    ({"ps": {0: "a:1"}, "worker": {0: "b:1", 3: "A:1"}}, "ps:0 and worker:3"),
])
def test_refuses_an_address_that_two_tasks_have(tasks, names):
    """Both tasks are named; host names are the same in capitals."""
    error = error_of(addresses.refuse_duplicates, tasks)
    assert codes_of(error) == ["address_given_twice"] and names in str(error)


def test_tasks_may_share_a_host():
    """Only the whole address must be different."""
    addresses.refuse_duplicates({"ps": {0: "a:1", 1: "a:2"}, "worker": {0: "b:1"}})


@pytest.mark.parametrize(("own", "expected"), [
    ("10.1.2.3", "10.1.2.3:2222"), (None, "port 2222 at any interface of this machine")])
def test_the_address_at_which_others_reach_a_server(monkeypatch, own, expected):
    """The address of the default route; without one only the port."""
    class Probe:
        def __init__(self, *kind):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

        def connect(self, address):
            if own is None:
                raise OSError("Network is unreachable")

        def getsockname(self):
            return own, 40000

    monkeypatch.setattr(addresses.socket, "socket", Probe)
    assert addresses.reachable_at(2222) == expected


@pytest.mark.parametrize("address", ["localhost:2222", "127.0.0.1:2222"])
def test_an_address_of_this_machine_is_no_foreign_one(address):
    """An interface has it."""
    assert addresses.why_not_here(address) == ""


def test_the_address_of_another_machine_is_recognised():
    """No interface has an address that is reserved for documentation (RFC 5737)."""
    assert addresses.why_not_here("192.0.2.77:2222") == "is 192.0.2.77, which is not an address of this machine"


def test_a_name_that_does_not_resolve_is_reported(monkeypatch):
    """With the resolver's reason."""
    def look_up(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert addresses.why_not_here("nowhere:2222") == "does not resolve on this machine (Name or service not known)"


def test_a_resolver_that_does_not_answer_delays_nothing(monkeypatch):
    """The address counts as one of this machine."""
    answers = threading.Event()
    monkeypatch.setattr(addresses, "_LOOKUP_SECS", 0.01)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: answers.wait(60))
    assert addresses.why_not_here("nowhere:2222") == ""
    answers.set()
