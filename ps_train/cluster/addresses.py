"""The addresses of tasks, "host:port": what TensorFlow would accept silently or crash on is refused here."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Any

from ps_train.errors import ConfigError
from ps_train.runtime.threads import Call

_LOOKUP_SECS = 2.0  # a resolver that does not answer may take half a minute to give up
_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\]]+)\]|(?P<host>[\w-]{1,63}(\.[\w-]{1,63})*\.?)):(?P<port>[1-9][0-9]{0,4})",
                      re.ASCII)


def host_of(address: str) -> str:
    """Returns the host of "host:port", without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> int:
    """Returns the port of "host:port"."""
    return int(address.rpartition(":")[2])


def parse_hosts(what: str, text: str) -> dict[int, str]:
    """Returns index -> "host:port" of a comma-separated list; `what` names it in errors.

    Raises:
      ConfigError: an entry is not host:port with a port from 1 to 65535, or the list is empty.
    """
    return {index: parse_address(f"{what} entry {index}", entry) for index, entry in enumerate(text.split(","))}


def parse_address(what: str, address: Any) -> str:
    """Returns the address unchanged if it is "host:port" or "[ipv6]:port" with a port from 1 to 65535.

    Raises:
      ConfigError: it is not; the text says what is wrong where that can be told.
    """
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or int(match["port"]) > 65535 or not _is_ipv6(match["ipv6"] or "::1"):
        raise ConfigError(f"{what}: got {address!r}{_fault(address)}; "
                          "allowed: host:port with a port from 1 to 65535, such as localhost:2222")
    return address


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _fault(address: Any) -> str:
    """Says what is wrong with an address, "" where that is plain to see."""
    text = str(address)
    if re.search(r"\s", text):
        return ", which has a blank"
    if "://" in text:
        return ", which has a scheme"
    if text.count(":") > 1:
        return "; an IPv6 address is written [::1]:2222"
    return ""


def reachable_at(port: int) -> str:
    """Says where other machines reach a server that listens on every interface of this one, as TensorFlow's does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documents (RFC 5737); UDP sends nothing to connect
        except OSError:  # no way out that the routing table knows of: there may be other interfaces
            return f"port {port} at any interface of this machine"
        return f"{probe.getsockname()[0]}:{port}"


def why_not_here(address: str) -> str:
    """Says why host:port seems to be no address of this machine; "" where it is one, or that cannot be told."""
    host = address.rpartition(":")[0].strip("[]")
    lookup = Call(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM), f"look up {host}")
    lookup.join(_LOOKUP_SECS)
    if lookup.is_alive():
        return ""
    try:
        found = lookup.result()
    except socket.gaierror as error:
        return f"does not resolve on this machine ({error.strerror})"
    except OSError:
        return ""
    numbers = sorted({place[0] for *_, place in found})
    if any(_can_bind(family, place) for family, *_, place in found):
        return ""
    return f"is {', '.join(numbers)}, which is no address of this machine"


def _can_bind(family: int, place: tuple) -> bool:
    """Tells whether an interface of this machine has the address, or that cannot be told."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(place)  # the port is 0: any that is free
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def refuse_duplicates(addresses: Mapping[str, Mapping[int, str]]) -> None:
    """Raises ConfigError if two tasks of job -> index -> address have the same one; host names ignore case."""
    owners: dict[str, str] = {}
    for job, tasks in addresses.items():
        for index, address in tasks.items():
            owner = owners.setdefault(address.lower(), f"{job}:{index}")
            if owner != f"{job}:{index}":
                raise ConfigError(f"address {address} is given to both {owner} and {job}:{index}; "
                                  "each task needs its own")
