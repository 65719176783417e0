"""A claim: the number by which a process says that it is the worker of an index.

    31 bits of where it listens (the machine's start, the network namespace, the port)  |  31 bits drawn

Whoever could bind a port knows that the process which had it before is gone. So a worker that is started again where
it was need not wait until the beats of the one before it are overdue.
"""

from __future__ import annotations

import hashlib
import os
import secrets

_BITS = 31
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NETWORK = "/proc/self/ns/net"  # two containers of a machine have the same ports, each in a network of its own


def new_claim(port: int | None = None) -> int:
    """Returns a number above 0 that no other process has.

    Args:
      port: the port that this process has bound, or None where it has bound none.
    """
    place = None if port is None else _place(port)
    return ((secrets.randbits(_BITS) if place is None else place) << _BITS) + secrets.randbelow(2**_BITS - 1) + 1


def is_same_place(one: int, other: int) -> bool:
    """Tells whether two claims are of processes that have bound the same port of the same machine."""
    return one >> _BITS == other >> _BITS


def _place(port: int) -> int | None:
    """Returns a number of _BITS bits for a port of this machine, or None where the machine cannot be told."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            where = f"{file.read()} {os.readlink(_NETWORK)} {port}"
    except OSError:  # not Linux
        return None
    return int.from_bytes(hashlib.sha256(where.encode()).digest(), "big") >> (256 - _BITS)
