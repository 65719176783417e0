"""Parses and checks the addresses of tasks, "host:port".

TensorFlow accepts some malformed addresses silently and crashes on others; here each gets an error that says why.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Any

from ps_train.errors import ConfigError
from ps_train.runtime.threads import Call

_LOOKUP_SECS = 2.0  # a resolver that gets no answer may try for half a minute
_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\]]+)\]|(?P<host>[\w-]{1,63}(\.[\w-]{1,63})*\.?)):(?P<port>[1-9][0-9]{0,4})",
                      re.ASCII)


def host_of(address: str) -> str:
    """Returns the host of "host:port", without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> int:
    """Returns the port of "host:port"."""
    return int(address.rpartition(":")[2])


def parse_hosts(name: str, hosts: str) -> dict[int, str]:
    """Returns index -> "host:port" of a comma-separated list; `name` names the list in errors.

    Raises:
      ConfigError: an entry is not host:port with a port from 1 to 65535, or the list is empty.
    """
    return {index: parse_address(f"{name} entry {index}", entry) for index, entry in enumerate(hosts.split(","))}


def parse_address(name: str, address: Any) -> str:
    """Returns the address unchanged if it is "host:port" or "[ipv6]:port" with a port from 1 to 65535.

    Raises:
      ConfigError: it has another form; the error names a common mistake.
    """
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or int(match["port"]) > 65535 or not _is_ipv6(match["ipv6"] or "::1"):
        raise ConfigError("address_malformed", f"{name}: got {address!r}{_common_mistake(address)}; "
                          "allowed: host:port with a port from 1 to 65535, such as localhost:2222")
    return address


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _common_mistake(address: Any) -> str:
    """Returns the common mistake in an address as the end of a clause, or ""."""
    text = address if isinstance(address, str) else ""
    if re.search(r"\s", text):
        return ", which contains a space"
    if "://" in text:
        return ", which has a scheme"
    if text.count(":") > 1:
        return "; an IPv6 address is written [::1]:2222"
    return ""


def reachable_at(port: int) -> str:
    """Returns the address at which other machines reach a server here that listens on every interface.

    TensorFlow's servers do.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation (RFC 5737); connecting UDP sends nothing
        except OSError:  # the routing table has no default route, but there may be other interfaces
            return f"port {port} at any interface of this machine"
        return f"{probe.getsockname()[0]}:{port}"


def why_not_here(address: str) -> str:
    """Returns why host:port is not an address of this machine, as a predicate; "" if it is or may be one."""
    host = host_of(address)
    lookup = Call(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM), f"look up {host}")
    lookup.join(_LOOKUP_SECS)
    if lookup.is_alive():
        return ""
    try:
        resolved = lookup.result()
    except socket.gaierror as error:
        return f"does not resolve on this machine ({error.strerror})"
    except OSError:
        return ""
    if any(_can_bind(family, socket_address) for family, *_, socket_address in resolved):
        return ""
    numbers = sorted({socket_address[0] for *_, socket_address in resolved})
    return f"is {', '.join(numbers)}, which is not an address of this machine"


def _can_bind(family: int, socket_address: tuple) -> bool:
    """Returns whether an interface of this machine has the address, or may have it."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(socket_address)  # the port is 0, which means any free port
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def refuse_duplicates(addresses: Mapping[str, Mapping[int, str]]) -> None:
    """Raises ConfigError if two tasks of job -> index -> address share an address; the case of a host is ignored."""
    owners: dict[str, str] = {}
    for job, tasks in addresses.items():
        for index, address in tasks.items():
            owner = owners.setdefault(address.lower(), f"{job}:{index}")
            if owner != f"{job}:{index}":
                raise ConfigError("address_given_twice", f"{owner} and {job}:{index} have the same address "
                                  f"{address}; give each task another one")
