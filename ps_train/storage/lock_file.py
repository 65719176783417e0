"""Reads and writes `training.lock` in a train_dir: which process trains there, and is it still alive?

    {"host", "process", "since"    for people
     "machine", "start"            identify the process, even if its process ID is used again
     "token", "count"              identify the training; the count rises while it lives}

A holder on this machine is looked up in the process table. For any other holder, a contender watches for a while
whether the count rises. Clocks of two machines are never compared, so this works on a shared file system.
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

LOCK_NAME = "training.lock"
_POLL_SECS = 0.5
_DIGITS = 12  # of the count: the text keeps its length, so that it can be overwritten in place
_MAX_BYTES = 4096
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"  # each container has its own, with process IDs from 1
_log = logging.getLogger(__name__)


def lock_text(since: str, token: str, count: int) -> bytes:
    """Returns the content of this process's lock."""
    holder = {"host": socket.gethostname(), "process": os.getpid(), "since": since, "machine": _machine(),
              "start": _start_of(os.getpid()), "token": token, "count": f"{count:0{_DIGITS}}"}
    return json.dumps(holder).encode() + b"\n"


def token_of(content: bytes) -> str:
    """Returns the token in a lock, or "" if it has none."""
    return str(_parse(content).get("token", ""))


def make_free(train_dir: str, silent_secs: float, wait: Callable[[float], bool]) -> None:
    """Returns when no training holds the folder; removes the lock of a training that is gone.

    Args:
      silent_secs: a holder on another machine counts as gone if its count stays the same for this long.
      wait: `wait(secs)` waits, and returns whether this process was told to stop.

    Raises:
      ConfigError: a training that is alive holds the folder.
      StoppedError: told to stop.
      OSError: the lock cannot be read or removed.
    """
    path = os.path.join(train_dir, LOCK_NAME)
    while (content := read_lock(path)) is not None:
        if _is_gone(path, content, silent_secs, wait):
            _log.info("%s is gone: its lock on %s is removed", describe_holder(content), train_dir)
            if _move_aside(path, content):
                return
        elif (now := read_lock(path)) is not None:
            raise ConfigError(f"--train_dir: {describe_holder(now)} is training in {train_dir}; wait for its end or "
                              "stop it, or give this training another --train_dir")


def _is_gone(path: str, content: bytes, silent_secs: float, wait: Callable[[float], bool]) -> bool:
    """Tells whether the holder that wrote the content has ended; also false if there is another lock by now."""
    holder = _parse(content)
    if holder.get("machine") and holder["machine"] == _machine():
        return not _runs(holder["process"], holder["start"])
    _log.info("%s has a lock on %s; waiting %g s for a sign of life", describe_holder(content), os.path.dirname(path),
              silent_secs)
    # Counts answers, not only time: a file system that hangs shows no sign of life of any process.
    for _ in range(math.ceil(silent_secs / _POLL_SECS)):
        if wait(_POLL_SECS):
            raise StoppedError(f"told to stop while waiting for a sign of life of {describe_holder(content)}")
        if read_lock(path) != content:
            return False
    return True


def _move_aside(path: str, content: bytes) -> bool:
    """Removes a lock; if it has been replaced by another one, puts that one back and returns false."""
    aside = f"{path}.{secrets.token_hex(8)}"
    try:
        os.rename(path, aside)  # only one contender can move it; a read and a removal could hit a new lock
    except FileNotFoundError:
        return True
    try:
        is_it = read_lock(aside) == content
        if not is_it:
            with contextlib.suppress(OSError):  # if this fails, its holder creates it again
                os.link(aside, path)
        return is_it
    finally:
        os.remove(aside)


def read_lock(path: str) -> bytes | None:
    """Returns the content of the file, or None if there is no file."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_lock(file: int, content: bytes) -> None:
    """Overwrites a lock, and makes the change visible to other machines.

    Args:
      file: file descriptor.

    Raises:
      OSError: the disk is full, or the file system fails.
    """
    os.lseek(file, 0, os.SEEK_SET)
    if os.write(file, content) < len(content):
        raise OSError(None, "the disk took only part of it")
    os.fsync(file)


def _parse(content: bytes) -> dict[str, Any]:
    """Returns the content of a lock as a dict, or {} if it cannot be parsed, as it may be half written."""
    try:
        holder = json.loads(content)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def describe_holder(content: bytes) -> str:
    """Returns the holder of a lock as a noun phrase, such as `process 7 on host, since TIME,`."""
    holder = _parse(content)
    if not holder:
        return "an unknown process"
    return f"process {holder.get('process')} on {holder.get('host')}, since {holder.get('since')},"


def _machine() -> str:
    """Returns an ID of this machine's boot and process namespace, or "" if there is none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink(_PID_NAMESPACE)}"
    except OSError:  # not Linux
        return ""


def _runs(process: int, start: str) -> bool:
    """Tells whether a process of this machine, of any user, exists and started at that time."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists, but belongs to another user
        pass
    return _start_of(process) in (start, "")


def _start_of(process: int) -> str:
    """Returns when a process started, in clock ticks since boot; "" if that is unknown, "ended" for a zombie."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # the fields before may contain spaces (proc(5))
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]
