"""A claim: the number with which a process claims to be worker i.

    31 bits from its place (the machine's boot, the network namespace, the port)  |  31 random bits

Only one process at a time can bind a port. If two claims have the same place, the earlier process must therefore be
gone, and the later one need not wait until its heartbeats are overdue. See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import hashlib
import os
import secrets

_BITS = 31
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NETWORK = "/proc/self/ns/net"  # two containers on one machine may use the same port, each in its own network


def new_claim(port: int | None = None) -> int:
    """Returns a number above 0 that no other process has.

    Args:
      port: the port that this process has bound, or None if it has bound none.
    """
    place = None if port is None else _place(port)
    return ((secrets.randbits(_BITS) if place is None else place) << _BITS) + secrets.randbelow(2**_BITS - 1) + 1


def is_same_place(one: int, other: int) -> bool:
    """Tells whether the processes of two claims have bound the same port of the same machine."""
    return one >> _BITS == other >> _BITS


def _place(port: int) -> int | None:
    """Returns a number of _BITS bits for a port of this machine, or None if the machine has no identity to read."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            text = f"{file.read()} {os.readlink(_NETWORK)} {port}"
    except OSError:  # not Linux
        return None
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") >> (256 - _BITS)
