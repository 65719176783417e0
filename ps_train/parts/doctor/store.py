"""What can be said about a train_dir in an object store: whether it can be used as a training does, and how fast."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ps_train.errors import ConfigError, PsTrainError
from ps_train.parts.doctor import machine
from ps_train.parts.doctor.machine import FAIL, OK, WARN, Finding
from ps_train.parts.object_store.patience import insist
from ps_train.parts.object_store.store import ObjectStore, open_store
from ps_train.storage import folder_lock

_PROBE, _PROBE_BYTES = ".ps_train-doctor", 8 << 20
_SECS = 60.0


def store_folder(url: str) -> Iterator[Finding]:
    """Yields whether a folder of a store can be listed, written, read and removed, and where the chief works for it."""
    yield machine.disk(tempfile.gettempdir(), "let TMPDIR name another folder: the chief keeps checkpoints there, too")
    try:
        store = _insist(lambda: open_store(url), url)
        is_in_use = folder_lock.LOCK_NAME in _insist(store.names, url)
        probe = f"{_PROBE}-{secrets.token_hex(8)}"  # each its own: several may examine the folder at once
        try:
            speed = _PROBE_BYTES / max(_insist(lambda: _write(store, probe), url), 1e-6)
        except PsTrainError:
            with contextlib.suppress(PsTrainError):  # it may be there all the same
                _insist(lambda: store.remove([probe]), url)
            raise
        _check_probe(store, probe)
    except PsTrainError as error:
        yield Finding(FAIL, "train_dir", str(error))
        return
    yield machine.speed_of(speed, f"{store.url} takes {speed / 1e6:.0f} MB/s", "use a store that is nearer")
    if not store.is_conditional:
        yield Finding(WARN, "lock", f"{store.url} has no conditional writes: two trainings that start in the same "
                                    "second are noticed a second later")
    yield Finding(OK, "lock", "a training has this folder now" if is_in_use else "no training has this folder")


def _insist(call: Callable[[], Any], url: str) -> Any:
    return insist(call, f"--train_dir={url}", _SECS, threading.Event())


def _write(store: ObjectStore, probe: str) -> float:
    """Writes an object named `probe`, and returns the seconds that it took."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(1 << 20) * (_PROBE_BYTES >> 20))
        file.flush()
        start_secs = time.monotonic()
        store.put(probe, file.name)
        return time.monotonic() - start_secs


def _check_probe(store: ObjectStore, probe: str) -> None:
    """Reads and removes the object; raises ConfigError if that is not possible."""
    try:
        content = _insist(lambda: store.read(probe), store.url)
    finally:
        _insist(lambda: store.remove([probe]), store.url)
    if len(content or b"") != _PROBE_BYTES or probe in _insist(store.names, store.url):
        raise ConfigError("store_denied", f"--train_dir={store.url}: what was written cannot be read and removed; give "
                          "this process the rights to do that")
