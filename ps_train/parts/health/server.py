"""An HTTP server of three pages: /healthz, /readyz and /metrics."""

from __future__ import annotations

import contextlib
import errno
import http.server
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Callable, NamedTuple

from ps_train.cluster.addresses import host_of
from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError

_CLIENT_SECS = 5.0  # a client that sends nothing holds a thread no longer
_POLL_SECS = 0.1
_TEXT = "text/plain; charset=utf-8"
_LARGEST_PORT = 65535
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # an address that this machine does not have
_log = logging.getLogger(__name__)


class Pages(NamedTuple):
    """What the server shows.

    Attributes:
      waits_for: returns what the task waits for before it does its work, "" if it works.
      metrics: returns the metrics of the task in Prometheus' text format.
      content_type: of the metrics.
    """

    waits_for: Callable[[], str]
    metrics: Callable[[], bytes]
    content_type: str


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers a request."""

    pages: Pages
    timeout = _CLIENT_SECS

    def do_HEAD(self) -> None:
        """Answers as GET without the page, for `curl -I` and load balancers."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answers GET; the base class refuses methods that are not here."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(HTTPStatus.OK, "ok\n")
        elif path == "/readyz":
            waits_for = self.pages.waits_for()
            status = HTTPStatus.SERVICE_UNAVAILABLE if waits_for else HTTPStatus.OK
            self._answer(status, f"waits for {waits_for}\n" if waits_for else "ready\n")
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, self.pages.metrics(), self.pages.content_type)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "allowed: /healthz, /readyz, /metrics\n")

    def _answer(self, status: HTTPStatus, body: str | bytes, content_type: str = _TEXT) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        """Returns the name of the server, without the version of Python."""
        return "ps_train"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's own name)
        """Logs nothing: a probe comes every few seconds."""


class _Server(socketserver.ThreadingTCPServer):
    """Unlike http.server's own, it looks up no name of this machine, which may take seconds."""

    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs what is wrong with a page; prints no traceback if the client has gone away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.warning("health: a page failed, and the client got no answer: %s: %s", type(error).__name__, error,
                         exc_info=True)


@contextlib.contextmanager
def serving(host: str, port: int, pages: Pages) -> Iterator[None]:
    """Serves the pages while its body runs.

    Raises:
      ConfigError: the address is not one of this machine, or the port is in use or does not exist.
    """
    if port > _LARGEST_PORT:
        raise ConfigError("health_address_unusable", f"--health_port: this task would take {port}, since each further "
                          f"task on a machine takes the next port; allowed: up to {_LARGEST_PORT}; give a smaller "
                          "--health_port")
    try:
        servers = _listen(host, port, pages)
    except (OSError, UnicodeError) as error:  # the second for a name that can be none, such as "a..b"
        raise ConfigError("health_address_unusable", f"--health_port={port}: cannot listen at {host}:{port}: "
                          f"{getattr(error, 'strerror', None) or error}; give another --health_port, or a "
                          "--health_host that is an address of this machine") from None
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(_POLL_SECS,), daemon=True, name="health").start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _listen(host: str, port: int, pages: Pages) -> list[_Server]:
    """Returns a server at each address of a host, as `localhost` may be ::1 and 127.0.0.1; raises OSError without one.

    One that this machine does not have, such as ::1 where IPv6 is off, is left out if another one is there.
    """
    handler = type("_PagesHandler", (_Handler,), {"pages": pages})
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    servers: list[_Server] = []
    errors: list[OSError] = []
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            servers.append(type("_FamilyServer", (_Server,), {"address_family": family})(address, handler))
        except OSError as error:
            errors.append(error)
    faults = [error for error in errors if not servers or error.errno not in _NOT_HERE]
    if faults:
        for server in servers:
            server.server_close()
        raise faults[0]
    return servers


def position_on_machine(cluster: Cluster) -> int:
    """Returns how many tasks of the cluster are before this one on its machine, as far as it knows them.

    A worker that is told no other worker, as in an elastic cluster, leaves room for those with a lower number if a ps
    has its host; otherwise its host may be a pod. An evaluator without an address comes after all tasks if several have
    the same host; otherwise they may be pods, and so may it.
    """
    own_host = host_of(cluster.task.address)
    hosts = [host_of(task.address) for task in (*cluster.ps, *cluster.workers)]
    if not own_host:
        return len(hosts) if len({*hosts}) < len(hosts) or hosts[0] == "localhost" else 0
    num_ps = hosts[:len(cluster.ps)].count(own_host)
    if num_ps and cluster.job == "worker" and "worker" in cluster.partial:
        return num_ps + cluster.worker_number
    names = [task.name for task in (*cluster.ps, *cluster.workers) if host_of(task.address) == own_host]
    return names.index(cluster.task.name) if cluster.task.name in names else len(names)
