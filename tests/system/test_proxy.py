"""The proxy of the fault tests: what each of its faults does to a connection. Times are lower bounds only."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time

import pytest

from tests import processes
from tests.children import wait_until
from tests.proxy import DOWN, UP, Proxy

DEADLINE_SECS = 20
SILENCE_SECS = 0.3  # a fault that does not work is found in this time; one that works is never taken for it


class EchoServer(socketserver.ThreadingTCPServer):
    """Sends back what it gets, and `END` when the client has said all; notes both."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("localhost", port), _Echo)
        self.received, self.num_ended, self.lock = b"", 0, threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def __exit__(self, *exc_info):
        self.shutdown()
        self.server_close()


class _Echo(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            while data := self.request.recv(1 << 16):
                self.server.received += data
                self.request.sendall(data)
            self.request.sendall(b"END")
        with self.server.lock:  # each connection has a thread
            self.server.num_ended += 1


@pytest.fixture
def server():
    """An EchoServer."""
    with EchoServer() as started:
        yield started


@pytest.fixture
def proxy(server):
    """A Proxy in front of it."""
    with Proxy(server.port) as started:
        yield started


@contextlib.contextmanager
def connected(proxy, host="localhost"):
    with socket.create_connection((host, proxy.port), DEADLINE_SECS) as client:
        yield client


def receive(client, count):
    data = b""
    while len(data) < count and (chunk := client.recv(count - len(data))):
        data += chunk
    return data


def echo(client, data):
    client.sendall(data)
    return receive(client, len(data))


def ends(client):
    """Waits until the connection has ended, by a reset or by its end; anything else it receives is a failure."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_silent(client):
    client.settimeout(SILENCE_SECS)
    try:
        client.recv(1)
    except socket.timeout:  # TimeoutError since Python 3.10
        return True
    finally:
        client.settimeout(DEADLINE_SECS)
    return False


def test_bytes_go_both_ways_and_are_counted(proxy):
    """A megabyte comes back as it was, over several connections, by the name `localhost` and by its address."""
    data = bytes(range(256)) * 4096
    with connected(proxy) as client, connected(proxy, "127.0.0.1") as other:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert receive(client, len(data)) == data
        sender.join(DEADLINE_SECS)
        assert echo(other, b"hello") == b"hello"
    wait_until(lambda: proxy.num_bytes == {UP: len(data) + 5, DOWN: len(data) + 5 + 2 * len("END")}, "all are counted")
    assert proxy.num_accepted == 2


def test_an_end_is_passed_on_and_answers_still_come(proxy, server):
    """A client that has said all it has to say gets the rest of the answer; then nothing of it stays."""
    with connected(proxy) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert receive(client, 100) == b"helloEND"
    wait_until(lambda: proxy.cut() == 0, "the connection is forgotten")
    assert server.num_ended == 1


def test_cut_resets_both_sides_and_new_connections_work(proxy, server):
    """Each peer sees the end at once; the next connection is a new one."""
    with connected(proxy) as client, connected(proxy) as other:
        assert (echo(client, b"1"), echo(other, b"2")) == (b"1", b"2")
        assert proxy.cut() == 2
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert ends(other)
    wait_until(lambda: server.num_ended == 2, "the server sees the end of both")
    with connected(proxy) as client:
        assert echo(client, b"3") == b"3"


@pytest.mark.parametrize(("direction", "arrives"), [(None, b""), (UP, b""), (DOWN, b"lost?")])
def test_a_black_hole_keeps_what_is_sent_until_it_heals(proxy, server, direction, arrives):
    """Nothing comes and nothing ends; in the other direction all goes on; `heal` delivers, in order."""
    with connected(proxy) as client:
        assert echo(client, b"before") == b"before"
        proxy.drop(direction)
        client.sendall(b"lost?")
        if arrives:
            wait_until(lambda: server.received == b"before" + arrives, "the server gets it")
        assert is_silent(client)
        assert server.received == b"before" + arrives
        proxy.heal()
        assert receive(client, 5) == b"lost?"
        assert echo(client, b"after") == b"after"


def test_a_connection_made_in_a_black_hole_is_silent_until_it_heals(proxy):
    """Also one that is new; and the end of a connection does not get through either."""
    proxy.drop()
    with connected(proxy) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert is_silent(client)
        proxy.heal()
        assert receive(client, 100) == b"helloEND"


def test_cut_ends_connections_in_a_black_hole_too(proxy):
    """As when a router that has lost its way is started again; what was under way is lost."""
    with connected(proxy) as client:
        assert echo(client, b"before") == b"before"
        proxy.drop()
        client.sendall(b"lost!")
        assert proxy.cut() == 1
        assert ends(client)
        proxy.heal()
    with connected(proxy) as client:
        assert echo(client, b"after") == b"after"


def test_a_delay_is_added_in_each_direction(proxy):
    """A round trip takes twice as long, however much is under way."""
    with connected(proxy) as client:
        proxy.delay(0.2)
        start_secs = time.monotonic()
        assert echo(client, b"hello") == b"hello"
        assert time.monotonic() - start_secs >= 0.4
        proxy.delay(0)
        assert echo(client, b"again") == b"again"


def test_a_throttled_link_is_as_slow_as_told_over_all_connections(proxy):
    """2 x 10 kB at 40 kB/s take half a second; without the limit a megabyte passes."""
    proxy.throttle(40_000)
    with connected(proxy) as client, connected(proxy) as other:
        start_secs = time.monotonic()
        for each in (client, other):
            each.sendall(b"x" * 10_000)
        assert [len(receive(each, 10_000)) for each in (client, other)] == [10_000] * 2
        assert time.monotonic() - start_secs >= 0.5
        proxy.throttle(None)
        assert len(echo(client, b"x" * 100_000)) == 100_000


def test_a_small_message_takes_a_throttled_link_for_its_own_size_only(proxy):
    """100 bytes at 1 MB/s take it for 0.1 ms, and not for the whole piece that might have passed."""
    proxy.throttle(1_000_000)
    start_secs = proxy._loop.time()
    assert proxy._call(proxy._allowance(UP, 100)) == 100
    assert proxy._free_secs[UP] <= proxy._loop.time()  # it is free again: the wait was for these bytes
    assert proxy._free_secs[UP] >= start_secs + 0.0001
    assert proxy._call(proxy._allowance(UP, 1_000_000)) == 20_000


def test_nobody_behind_the_proxy_ends_the_connection_and_later_it_works():
    """The server may come after the proxy, and may go and come back."""
    (port,) = processes.free_ports(1)
    with Proxy(port) as proxy:
        with connected(proxy) as client:
            assert ends(client)
        with EchoServer(port), connected(proxy) as client:
            assert echo(client, b"hello") == b"hello"


def test_close_ends_connections_and_frees_the_port(server):
    """Nothing listens any more, and no thread stays; closing again does nothing."""
    proxy = Proxy(server.port)
    with connected(proxy) as client:
        assert echo(client, b"hello") == b"hello"
        proxy.close()
        proxy.close()
        assert ends(client)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), DEADLINE_SECS)
    assert not [thread for thread in threading.enumerate() if thread.name == f"proxy {proxy.port}"]
