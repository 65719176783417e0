"""Writes a checkpoint in several parts, which TensorFlow merges: large parts are written while training goes on.

    large parts      each of them, as far as it can be written ahead
    the cut          the global step, and all that must be of one moment
    the variables    by a `tf.train.Saver`
    the rest         of each part, in order
    the remainder    of each part, in order
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Callable

import tensorflow.compat.v1 as tf


class PartWriter:
    """Writes one part of one checkpoint, to files in a folder."""

    def write_ahead(self) -> None:
        """Writes the large parts, before the cut."""

    def cut(self) -> None:
        """Begins everything that must be of one moment, just before the variables are written."""

    def write(self) -> list[str]:
        """Writes the remainder, after the variables; returns the path prefixes of all files of the part."""
        return []

    def merged(self, path: str) -> None:
        """Takes note of the path of the finished checkpoint."""


# `part(session, folder, is_delta)` begins to write a part; of a delta, only what has changed since the last checkpoint.
SavedPart = Callable[[tf.Session, str, bool], PartWriter]


class MergingSaver:
    """Writes checkpoints in parts."""

    def __init__(self, variables: tf.train.Saver, parts: Sequence[SavedPart]) -> None:
        """Adds the operations to the current graph; `variables` saves all variables."""
        self._variables, self._parts = variables, list(parts)
        with tf.name_scope("ps_train/merging"):
            self._prefix, self._prefixes = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [None])
            self._merge_op = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._prefixes, destination_prefix=self._prefix, delete_old_dirs=True)

    def save(
        self, session: tf.Session, path: str, cut: Callable[[], str] | None = None, *, is_delta: bool = False
    ) -> str:
        """Writes a checkpoint, or a delta, and returns its path.

        Args:
          path: names the folder of the parts.
          cut: called when only a little is left to be written; returns the path that the checkpoint is given, as the
            global step has grown in the meantime. None for `path`.
        """
        folder = f"{path}_temp"
        os.makedirs(folder, exist_ok=True)
        writers = [part(session, folder, is_delta) for part in self._parts]
        for writer in writers:
            writer.write_ahead()
        path = cut() if cut else path
        for writer in writers:
            writer.cut()
        prefixes = [self._variables.save(session, f"{folder}/dense", write_meta_graph=False, write_state=False)]
        for writer in writers:
            prefixes += writer.write()
        session.run(self._merge_op, {self._prefixes: prefixes, self._prefix: path})
        for writer in writers:
            writer.merged(path)
        return path
