"""What lies between the tasks of a cluster: nothing, or a proxy in each direction between each worker and each ps.

TensorFlow pulls: parameters flow over connections that a worker opens, gradients over connections that a ps opens. So
each worker is told proxies in place of the ps, and each ps is told proxies in place of the workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from tests.processes import free_ports
from tests.proxy import Proxy


class Link(NamedTuple):
    """A network between a worker and a ps.

    Attributes:
      bytes_per_sec: in each direction; None for as much as the proxy can.
      delay_secs: in each direction.
    """

    bytes_per_sec: float | None = None
    delay_secs: float = 0.0


class Wires:
    """The addresses of a cluster on this machine, as each of its tasks is told them."""

    def __init__(self, num_ps: int, num_workers: int, link: Link | None = None) -> None:
        """Chooses free ports and, where there is a link, starts its proxies; `close` ends them."""
        ports = free_ports(num_ps + num_workers)
        self.ps = [f"localhost:{port}" for port in ports[:num_ps]]
        self.workers = [f"localhost:{port}" for port in ports[num_ps:]]
        self._proxies: dict[tuple[str, str], Proxy] = {}  # (address of who is told, address in whose place) -> proxy
        self._stack = contextlib.ExitStack()
        if link is not None:
            for ps in self.ps:
                for worker in self.workers:
                    self._put_between(worker, ps, link)
                    self._put_between(ps, worker, link)

    def _put_between(self, teller: str, other: str, link: Link) -> None:
        proxy = self._stack.enter_context(Proxy(int(other.rpartition(":")[2])))
        proxy.throttle(link.bytes_per_sec)
        proxy.delay(link.delay_secs)
        self._proxies[teller, other] = proxy

    def hosts(self, job: str, index: int) -> Mapping[str, str]:
        """Returns "ps" and "worker" -> the addresses that this task is told, joined by commas."""
        own = (self.ps if job == "ps" else self.workers)[index]
        return {name: ",".join(self._told(own, other) for other in others)
                for name, others in (("ps", self.ps), ("worker", self.workers))}

    def _told(self, own: str, other: str) -> str:
        proxy = self._proxies.get((own, other))
        return proxy.address if proxy else other

    def num_bytes(self) -> int | None:
        """Returns what the proxies have delivered, in all; None where there are none."""
        if not self._proxies:
            return None
        return sum(sum(proxy.num_bytes.values()) for proxy in self._proxies.values())

    def close(self) -> None:
        """Ends the proxies."""
        self._stack.close()
