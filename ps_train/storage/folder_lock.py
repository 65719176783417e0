"""Holds the lock of a train_dir, `training.lock`: only one training at a time saves there.

    create training.lock (O_EXCL) --> held: raise its count every second --> remove
       | the file exists
       v
    its holder is alive: refuse       its holder has ended: move its lock aside, then create

    {"host", "process", "since"    for people
     "machine", "start"            identify the process, even if its process ID is used again
     "token", "count"              identify the training; the count rises while it lives}

A holder on this machine is looked up in the process table. For any other holder, a contender watches for a while
whether the count rises. Clocks of two machines are never compared, so this works on a shared file system. A holder that
was suspended for so long that another training took its folder notices that before it saves.
docs/decisions/checkpoints.md says why this is not `flock`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

from ps_train.errors import ConfigError, FolderLostError, StoppedError

_BEAT_SECS = 1.0
_RELEASE_SECS = 2.0  # a file system that hangs must not delay the end
_log = logging.getLogger(__name__)
LOCK_NAME = "training.lock"
_POLL_SECS = 0.5
_DIGITS = 12  # of the count: with a fixed length the content can be overwritten in place
_MAX_BYTES = 4096
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"  # each container has its own, with process IDs from 1


class FolderLock:
    """The lock of one process that saves to a train_dir."""

    def __init__(self, train_dir: str, silent_secs: float, stop: threading.Event) -> None:
        """Prepares the lock; nothing is written yet.

        Args:
          silent_secs: a holder on another machine counts as ended if its count stays the same for this long.
          stop: ends that wait; this object sets it when the folder is lost.
        """
        self._train_dir = train_dir
        self._path = os.path.join(train_dir, LOCK_NAME)
        self._silent_secs = silent_secs
        self._stop = stop
        self._token = secrets.token_hex(8)
        self._file: int | None = None  # the lock that this process created, even if it was moved since
        self._count = 0
        self._since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self._lost: FolderLostError | None = None
        self._mutex = threading.Lock()
        self._released = threading.Event()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Holds the lock while its body runs; if the lock cannot be written, warns and runs the body without it.

        Raises:
          ConfigError: another training holds the lock.
          FolderLostError: another training took the folder, so this one was stopped.
          StoppedError: stopped while waiting to see whether the holder is alive.
        """
        self._acquire()
        thread = threading.Thread(target=self._keep, daemon=True, name="folder lock")
        thread.start()
        try:
            yield
        except StoppedError as error:
            if self._lost is not None:
                raise self._lost from error
            raise
        finally:
            self._released.set()
            thread.join(_RELEASE_SECS)

    def check(self) -> None:
        """Checks that no other training has taken the folder; call this before changing files in it.

        Raises:
          FolderLostError: another training has taken the folder.
        """
        with self._mutex:
            self._check()

    def _acquire(self) -> None:
        try:
            while not self._create():
                make_free(self._train_dir, self._silent_secs, self._stop.wait)
        except OSError as error:
            _log.warning("cannot write %s: %s; a second training in this folder would not be noticed", self._path,
                         error.strerror)

    def _create(self) -> bool:
        """Creates the lock file; returns false if one exists already."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            write_lock(file, self._content())
        except OSError:
            os.close(file)
            os.remove(self._path)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file = file
        return True

    def _content(self) -> bytes:
        return lock_text(self._since, self._token, self._count)

    def _keep(self) -> None:
        """Shows every second that this process is alive, and removes the lock at the end."""
        self._keep_alive()
        with self._mutex:
            self._release()

    def _keep_alive(self) -> None:
        is_failing = False
        while not self._released.wait(_BEAT_SECS):
            try:
                with self._mutex:
                    self._show_life()
                is_failing = False
            except FolderLostError:
                return
            except OSError as error:
                if not is_failing and self._file is not None:
                    _log.warning("cannot write %s: %s; training goes on, and the next try is in %g s", self._path,
                                 error.strerror, _BEAT_SECS)
                is_failing = True

    def _show_life(self) -> None:
        if self._file is None:  # the lock could not be written before; O_EXCL touches no other lock
            self._create()
            return
        self._check()
        self._count += 1
        write_lock(self._file, self._content())

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._file is None:
            return
        try:
            content = read_lock(self._path)
            if content is None and not self._create():  # None: the folder was emptied
                content = read_lock(self._path)
        except OSError as error:  # the folder is missing or full, which the next save reports
            _log.debug("cannot read %s: %s", self._path, error)
            return
        if content is not None and token_of(content) != self._token:
            self._lost = FolderLostError("folder_lost", f"{describe_holder(content)} has taken {self._train_dir} while "
                                         "this process was suspended; this one ends without saving")
            self._stop.set()
            raise self._lost

    def _release(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # the next training will see that this process has ended
            if token_of(read_lock(self._path) or b"") == self._token:
                os.remove(self._path)
        os.close(self._file)
        self._file = None


def lock_text(since: str, token: str, count: int) -> bytes:
    """Returns the content of this process's lock."""
    holder = {"host": socket.gethostname(), "process": os.getpid(), "since": since, "machine": _machine(),
              "start": _start_of(os.getpid()), "token": token, "count": f"{count:0{_DIGITS}}"}
    return json.dumps(holder).encode() + b"\n"


def token_of(content: bytes) -> str:
    """Returns the token in a lock, or "" if it has none."""
    return str(_parse(content).get("token", ""))


def make_free(train_dir: str, silent_secs: float, wait: Callable[[float], bool]) -> None:
    """Returns when no training holds the folder; removes the lock of a training that has ended.

    Args:
      silent_secs: a holder on another machine counts as ended if its count stays the same for this long.
      wait: `wait(secs)` waits, and returns whether this process was asked to stop.

    Raises:
      ConfigError: a training that is alive holds the folder.
      StoppedError: `wait` returned true.
      OSError: the lock cannot be read or removed.
    """
    path = os.path.join(train_dir, LOCK_NAME)
    while (content := read_lock(path)) is not None:
        if _has_ended(path, content, silent_secs, wait):
            _log.info("%s has ended: removing its lock on %s", describe_holder(content), train_dir)
            if _move_aside(path, content):
                return
        elif (now := read_lock(path)) is not None:
            raise ConfigError("train_dir_in_use", f"--train_dir: {describe_holder(now)} is training in {train_dir}; "
                              "wait for its end or stop it, or give this training another --train_dir")


def _has_ended(path: str, content: bytes, silent_secs: float, wait: Callable[[float], bool]) -> bool:
    """Returns whether the holder that wrote the content has ended; false if the lock is another one by now."""
    if (has_ended := has_ended_here(content)) is not None:
        return has_ended
    _log.info("%s has a lock on %s; waiting %g s for a sign of life", describe_holder(content), os.path.dirname(path),
              silent_secs)
    # Counts answers, not only time: a file system that hangs shows no sign of life of any process.
    for _ in range(math.ceil(silent_secs / _POLL_SECS)):
        if wait(_POLL_SECS):
            raise StoppedError("stopped", f"stopped while waiting for a sign of life of {describe_holder(content)}")
        if read_lock(path) != content:
            return False
    return True


def has_ended_here(content: bytes) -> bool | None:
    """Returns whether the holder that wrote the content has ended, or None if it is a process of another machine."""
    holder = _parse(content)
    if holder.get("machine") and holder["machine"] == _machine():
        return not _runs(holder["process"], holder["start"])
    return None


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
    """Returns the content of the file, or None if it does not exist."""
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
        raise OSError(None, "the disk is full")
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
    """Returns an ID of this machine's boot and process namespace, or "" if the system has none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink(_PID_NAMESPACE)}"
    except OSError:  # not Linux
        return ""


def _runs(process: int, start: str) -> bool:
    """Returns whether a process of this machine, of any user, exists and started at that time."""
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
