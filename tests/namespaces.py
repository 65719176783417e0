"""Machines for tests: network namespaces with addresses of their own, on a network that nobody else is on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

_CONNECT = ("import socket, sys\n"
            "try:\n    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)\n"
            "except OSError as error:\n    sys.exit(type(error).__name__)")


class Network:
    """Some machines, each one with the address 10.77.0.N, all of them connected.

    Attributes:
      machines: the names of the namespaces, by N.
    """

    def __init__(self, machines: dict[int, str]) -> None:
        self.machines = machines

    def on(self, number: int) -> list[str]:
        """Returns the words that run the command behind them on a machine."""
        return ["ip", "netns", "exec", self.machines[number]]

    def run(self, number: int, *command: str, **options) -> subprocess.CompletedProcess:
        """Runs a command on a machine; it must end well unless `check` is false."""
        return subprocess.run([*self.on(number), *command], **{"check": True, "capture_output": True, "text": True,
                                                               "timeout": 60, **options})

    def reaches(self, number: int, host: str, port: int) -> bool:
        """Tells whether a machine gets a connection to host:port."""
        return self.run(number, sys.executable, "-c", _CONNECT, host, str(port), check=False).returncode == 0


def require(*tools: str) -> None:
    """Skips the test, with the reason, where this machine cannot have namespaces or lacks one of the tools."""
    missing = [tool for tool in ("ip", *tools) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if os.geteuid():
        pytest.skip("network namespaces need root")
    name = f"pstrain{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _write_hosts(name: str, hosts: Mapping[str, int]) -> None:
    """Gives a namespace its own /etc/hosts: ip-netns(8)."""
    folder = pathlib.Path("/etc/netns", name)
    folder.mkdir(parents=True)
    lines = ["127.0.0.1 localhost", *(f"10.77.0.{number} {host}" for host, number in hosts.items())]
    (folder / "hosts").write_text("".join(f"{line}\n" for line in lines))


@contextlib.contextmanager
def network(*numbers: int, hosts: Mapping[str, int] | None = None) -> Iterator[Network]:
    """Yields a network of these machines; a bridge in a namespace of its own connects them.

    Args:
      hosts: host name -> the number of its machine, for all machines, in place of this machine's /etc/hosts.
    """
    prefix = f"pstrain{os.getpid()}"
    switch, machines = f"{prefix}switch", {number: f"{prefix}m{number}" for number in numbers}
    with contextlib.ExitStack() as stack:
        for name in (switch, *machines.values()):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in machines.items():
            _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            if hosts is not None:
                _write_hosts(name, hosts)
                stack.callback(shutil.rmtree, f"/etc/netns/{name}")
        yield Network(machines)
