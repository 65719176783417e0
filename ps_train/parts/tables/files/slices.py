"""Writes variables that no process holds whole to a checkpoint: slice by slice, each to a file of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow.compat.v1 as tf

_PART_ROWS = 2**20  # of an array that is written in parts


class SliceWriter:
    """Writes slices of variables to files, which are one checkpoint in the end."""

    def __init__(self, folder: str) -> None:
        """Prepares; the folder exists, and is removed with the last file."""
        self._folder, self._prefixes = folder, []
        with tf.Graph().as_default() as graph:
            self._prefix, self._name, self._slice = (tf.placeholder(tf.string, []) for _ in range(3))
            self._given = {dtype: tf.placeholder(dtype) for dtype in (tf.int64, tf.float32)}
            self._save_ops = {dtype: tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=[self._name], shape_and_slices=[self._slice], tensors=[given])
                for dtype, given in self._given.items()}
            self._merged = tf.placeholder(tf.string, [None])
            self._merge_op = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._merged, destination_prefix=self._prefix, delete_old_dirs=True)
        self._session = tf.Session(graph=graph)

    def write(self, variable: tf.Variable, pieces: Iterable[np.ndarray]) -> None:
        """Writes the rows of a variable, which come in pieces."""
        shape, begin = variable.shape.as_list(), 0
        for piece in filter(len, pieces):  # TensorFlow refuses an empty slice
            prefix = f"{self._folder}/{len(self._prefixes):06d}"
            # The form of a partitioned variable's slice: "10 8 0,4:0,8" is [0:4, 0:8] of [10, 8].
            ranges = [f"{begin},{len(piece)}", *(f"0,{size}" for size in shape[1:])]
            spec = " ".join([*map(str, shape), ":".join(ranges)])
            dtype = variable.dtype.base_dtype
            self._session.run(self._save_ops[dtype], {
                self._prefix: prefix, self._name: variable.op.name, self._slice: spec, self._given[dtype]: piece})
            self._prefixes.append(prefix)
            begin += len(piece)

    def write_whole(self, variable: tf.Variable, array: np.ndarray) -> None:
        """Writes all rows of a variable."""
        self.write(variable, (array[begin:begin + _PART_ROWS] for begin in range(0, len(array), _PART_ROWS)))

    def merge(self, others: list[str], path: str) -> None:
        """Makes one checkpoint of what was written, and of other files."""
        self._session.run(self._merge_op, {self._merged: [*others, *self._prefixes], self._prefix: path})
        self._session.close()
