"""The file `training.lock` in a train_dir: who trains there, and whether that process is still alive.

    {"host", "process", "since"   for a person
     "machine", "start"           tell the process from any other, also when its number is used again
     "token", "count"             of this one training; the count goes up while it lives}

A process of this machine is looked up in its process table. For any other holder a contender looks for a while whether
the count goes up: no clocks of two machines are compared, so it works on a shared file system too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import socket
from typing import Any, Callable

from ps_train.errors import ConfigError, StoppedError

NAME = "training.lock"
_POLL_SECS = 0.5
_DIGITS = 12  # of the count: the text keeps its length, so it is written over in place
_MOST_BYTES = 4096
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PROCESS_NUMBERS = "/proc/self/ns/pid"  # each container counts its processes from 1
_log = logging.getLogger(__name__)


def text(since: str, token: str, count: int) -> bytes:
    """Returns what this process writes into its lock."""
    holder = {"host": socket.gethostname(), "process": os.getpid(), "since": since, "machine": _machine(),
              "start": _start_of(os.getpid()), "token": token, "count": f"{count:0{_DIGITS}}"}
    return json.dumps(holder).encode() + b"\n"


def token_of(content: bytes) -> str:
    """Returns the token in a lock, "" where it has none."""
    return str(_parse(content).get("token", ""))


def make_free(train_dir: str, silent_secs: float, wait: Callable[[float], bool]) -> None:
    """Returns when no training has the folder; removes the lock of one that is gone.

    Args:
      silent_secs: a holder on another machine is gone when its count stood still for this long.
      wait: waits for so many seconds, and returns whether this process is told to stop.

    Raises:
      ConfigError: a training has it, and is alive.
      StoppedError: told to stop.
      OSError: the lock cannot be read or removed.
    """
    path = os.path.join(train_dir, NAME)
    while (content := read(path)) is not None:
        if _is_gone(path, content, silent_secs, wait):
            _log.info("%s is gone: its lock on %s is removed", describe(content), train_dir)
            if _move_aside(path, content):
                return
        elif (now := read(path)) is not None:
            raise ConfigError(f"--train_dir: {describe(now)} is training in {train_dir}; wait for its end or stop it, "
                              "or give this training another --train_dir")


def _is_gone(path: str, content: bytes, silent_secs: float, wait: Callable[[float], bool]) -> bool:
    """Tells whether the holder that wrote the content has ended; false as well where another lock is there now."""
    holder = _parse(content)
    if holder.get("machine") and holder["machine"] == _machine():
        return not _runs(holder["process"], holder["start"])
    _log.info("%s has a lock on %s; waiting %g s for a sign of life", describe(content), os.path.dirname(path),
              silent_secs)
    # Answers are counted, and not time alone: a file system that hangs shows no sign of anybody's life.
    for _ in range(math.ceil(silent_secs / _POLL_SECS)):
        if wait(_POLL_SECS):
            raise StoppedError(f"told to stop while waiting for a sign of life of {describe(content)}")
        if read(path) != content:
            return False
    return True


def _move_aside(path: str, content: bytes) -> bool:
    """Removes a lock; returns false, and puts it back, where it is another one by now."""
    aside = f"{path}.{secrets.token_hex(8)}"
    try:
        os.rename(path, aside)  # of several contenders one moves it; a read and a removal could hit a new lock
    except FileNotFoundError:
        return True
    try:
        is_it = read(aside) == content
        if not is_it:
            with contextlib.suppress(OSError):  # its holder makes it again
                os.link(aside, path)
        return is_it
    finally:
        os.remove(aside)


def read(path: str) -> bytes | None:
    """Returns what is in the file, or None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write(file: int, content: bytes) -> None:
    """Writes over a lock, so that other machines see it.

    Raises:
      OSError: the disk is full, or the file system fails.
    """
    os.lseek(file, 0, os.SEEK_SET)
    if os.write(file, content) < len(content):
        raise OSError(None, "the disk took only a part of it")
    os.fsync(file)


def _parse(content: bytes) -> dict[str, Any]:
    """Returns what a lock says, {} where it says nothing that can be read: it may be half written."""
    try:
        holder = json.loads(content)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def describe(content: bytes) -> str:
    """Returns who holds a lock: a noun with commas around its addition."""
    holder = _parse(content)
    if not holder:
        return "a process that has not said who it is"
    return f"process {holder.get('process')} on {holder.get('host')}, since {holder.get('since')},"


def _machine() -> str:
    """Returns what tells this machine, and its numbering of processes, from any other; "" where it is not known."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink(_PROCESS_NUMBERS)}"
    except OSError:  # not Linux
        return ""


def _runs(process: int, start: str) -> bool:
    """Tells whether a process of this machine that began then is there; it may be another user's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and another user's
        pass
    return _start_of(process) in (start, "")


def _start_of(process: int) -> str:
    """Returns when a process began, in ticks since the machine did; "" where that is not told, "ended" for a zombie."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # what is before may have blanks (proc(5))
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]
