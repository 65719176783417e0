"""Finds out whether all ps see the folder of a checkpoint as the chief does, so that they can use its files themselves.

    a save      the chief writes a file, each ps reads it and writes one next to it, the chief looks for those
    a restore   each ps reads the index of the checkpoint, which must be that of the chief
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

# The folder does not exist on the machine of the ps, is no folder there, or another user's.
_NOT_SHARED = (tf.errors.NotFoundError, tf.errors.PermissionDeniedError, tf.errors.FailedPreconditionError)


class FolderProbe:
    """The operations with which the ps of a graph look at a folder."""

    def __init__(self, ps_devices: Sequence[str]) -> None:
        """Adds them to the current graph."""
        self._paths, self._contents, self._writes = [], [], []
        with tf.name_scope("ps_train/folder_probe"):
            for device in ps_devices:
                with tf.device(device):
                    path = tf.placeholder(tf.string, [])
                    self._paths.append(path)
                    self._contents.append(tf.io.read_file(path))
                    self._writes.append(tf.raw_ops.WriteFile(filename=path, contents="1"))

    def can_write(self, session: tf.Session, folder: str) -> bool:
        """Returns whether files that the ps write in a folder of the chief are there; it must exist."""
        probe = os.path.join(folder, f"probe-{secrets.token_hex(8)}")
        paths = [f"{probe}-{ps}" for ps in range(len(self._paths))]
        with open(probe, "w", encoding="ascii") as file:
            file.write("1")
        try:
            if not self._read(session, probe):  # a write would make the folder on the machine of the ps
                return False
            for write, feed_path, path in zip(self._writes, self._paths, paths):  # one by one: no write comes later
                session.run(write, {feed_path: path})
            return all(os.access(path, os.R_OK) for path in paths)  # the chief merges and reads what they write
        except _NOT_SHARED:
            return False
        finally:
            for path in (probe, *paths):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)

    def can_read(self, session: tf.Session, path: str) -> bool:
        """Returns whether the ps have the same checkpoint at this path prefix as the chief."""
        with open(f"{path}.index", "rb") as file:
            index = file.read()
        return self._read(session, f"{path}.index") == [index] * len(self._paths)

    def _read(self, session: tf.Session, path: str) -> list[bytes]:
        """Returns the contents of the file on each ps; none if one of them cannot read it."""
        try:
            return session.run(self._contents, dict.fromkeys(self._paths, path))
        except _NOT_SHARED:
            return []
