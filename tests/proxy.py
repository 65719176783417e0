"""A TCP proxy between two tasks, for tests of what a network may do to them.

    client -- proxy.address --> Proxy -- localhost:target_port --> server

        up:    what the client sends        down:  what the server sends

A task is told the proxy's address in place of the other task's, as each has a ClusterSpec of its own; the server binds
its real port. TensorFlow pulls tensors over connections of the receiver's, so between two tasks there are two links:
one for the requests of each. The proxy runs in a thread of its own; when one of its methods returns, what it does has
happened. What differs from a real network: a connection to the proxy succeeds also while the server is not there or
the link is down (it is then closed, or silent), and the sender's own TCP never notices that nothing arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

from tests import processes

UP, DOWN = "up", "down"
_CALL_SECS = 10.0
_CHUNK_BYTES = 1 << 16
_MOST_CHUNKS = 64  # under way in one direction of a connection; more makes the sender wait
_PIECE_SECS = 0.02  # a throttled link passes on as much at once as it may in this time
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: closing sends RST


class Proxy:
    """Forwards connections to a port of this machine, and disturbs them when told to.

    Attributes:
      port: where it listens on localhost, IPv4 and, where there is one, IPv6.
      address: the same as `localhost:port`.
      num_bytes: by direction, how many bytes it has delivered.
      num_accepted: how many connections there have been.
    """

    def __init__(self, target_port: int) -> None:
        """Starts to listen; the target need not be there yet."""
        self._target_port = target_port
        listeners = _listen()
        self.port = listeners[0].getsockname()[1]
        self.address = f"localhost:{self.port}"
        self.num_bytes = {UP: 0, DOWN: 0}
        self.num_accepted = 0
        self._delay_secs = 0.0
        self._bytes_per_sec: float | None = None
        self._free_secs = {UP: 0.0, DOWN: 0.0}  # when a throttled direction may take the next piece
        self._links: set[asyncio.Task] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=f"proxy {self.port}")
        self._thread.start()
        self._call(self._start(listeners))

    def cut(self) -> int:
        """Resets all connections, as a router that forgets them; new ones are accepted. Returns how many there were."""
        return self._call(self._cut())

    def drop(self, direction: str | None = None) -> None:
        """Lets nothing more through, in one direction or both: a black hole. It keeps what comes, for `heal`."""
        self._call(self._set_open(direction, is_open=False))

    def heal(self) -> None:
        """Ends `drop`: what was sent meanwhile arrives now, as TCP would send it again."""
        self._call(self._set_open(None, is_open=True))

    def delay(self, secs: float) -> None:
        """Makes what is sent from now on arrive that much later, in each direction; 0 ends it."""
        self._delay_secs = secs

    def throttle(self, bytes_per_sec: float | None) -> None:
        """Limits each direction, all connections together; None ends it."""
        self._bytes_per_sec = bytes_per_sec

    def close(self) -> None:
        """Closes everything: nobody listens any more."""
        if self._loop.is_closed():
            return
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECS)
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECS)

    async def _start(self, listeners: list[socket.socket]) -> None:
        self._is_open = {UP: asyncio.Event(), DOWN: asyncio.Event()}  # Python 3.9 ties an event to the running loop
        await self._set_open(None, is_open=True)
        self._servers = [await asyncio.start_server(self._serve, sock=listener) for listener in listeners]

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut()

    async def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        return len(links)

    async def _set_open(self, direction: str | None, is_open: bool) -> None:
        for way in [direction] if direction else [UP, DOWN]:
            event = self._is_open[way]
            event.set() if is_open else event.clear()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Lives as long as one connection; a reset on one of its sides, or `cut`, resets the other."""
        self.num_accepted += 1
        self._links.add(asyncio.current_task())
        writers, pumps = [to_client], []
        try:
            from_server, to_server = await asyncio.open_connection("localhost", self._target_port)
            writers.append(to_server)
            pumps += self._pump(UP, from_client, to_server) + self._pump(DOWN, from_server, to_client)
            await asyncio.gather(*pumps)
        except (OSError, asyncio.CancelledError):  # a peer has reset it, or `cut`
            for writer in writers:
                with contextlib.suppress(OSError):  # this side is closed already
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        finally:
            self._links.discard(asyncio.current_task())
            for pump in pumps:
                pump.cancel()
            for writer in writers:
                writer.transport.abort()

    def _pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[asyncio.Task]:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until all of it is with the kernel
        # asyncio leaves it out for sockets of `create_server`, and a small message then waits 40 ms for an ACK.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        under_way: asyncio.Queue = asyncio.Queue(_MOST_CHUNKS)
        return [self._loop.create_task(self._take(reader, under_way)),
                self._loop.create_task(self._deliver(way, under_way, writer))]

    async def _take(self, reader: asyncio.StreamReader, under_way: asyncio.Queue) -> None:
        chunk = None
        while chunk != b"":
            chunk = await reader.read(_CHUNK_BYTES)
            await under_way.put((self._loop.time() + self._delay_secs, chunk))

    async def _deliver(self, way: str, under_way: asyncio.Queue, writer: asyncio.StreamWriter) -> None:
        while True:
            due_secs, chunk = await under_way.get()
            await asyncio.sleep(due_secs - self._loop.time())
            if not chunk:
                await self._is_open[way].wait()
                writer.write_eof()
                return
            while chunk:
                size = await self._allowance(way, len(chunk))
                piece, chunk = chunk[:size], chunk[size:]
                await self._is_open[way].wait()
                writer.write(piece)
                await writer.drain()
                self.num_bytes[way] += len(piece)

    async def _allowance(self, way: str, wanted_bytes: int) -> int:
        """Returns how many bytes of a chunk may pass at once, when they may; the link is taken for these only."""
        rate = self._bytes_per_sec
        if rate is None:
            return wanted_bytes
        num_bytes = min(wanted_bytes, max(1, int(rate * _PIECE_SECS)))
        start_secs = max(self._loop.time(), self._free_secs[way])
        self._free_secs[way] = start_secs + num_bytes / rate
        await asyncio.sleep(self._free_secs[way] - self._loop.time())
        return num_bytes


def _listen() -> list[socket.socket]:
    """Returns listening sockets of one free port, for each address that `localhost` may mean."""
    while True:
        (port,) = processes.free_ports(1)
        try:
            listeners = [socket.create_server(("127.0.0.1", port))]
        except OSError:  # somebody was faster
            continue
        with contextlib.suppress(OSError):  # this machine has no IPv6
            listeners.append(socket.create_server(("::1", port), family=socket.AF_INET6))
        return listeners
