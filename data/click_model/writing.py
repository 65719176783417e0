"""Writes drawn examples to files: in Criteo's format, or as TFRecords of `data.click_records`.

    DIR/train-00000-of-00004.tsv ... eval-00000-of-00001.tsv
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from . import hashing
from .model import Examples

TSV, TFRECORD = "tsv", "tfrecord"


def write_split(folder: str, split: str, form: str, num_files: int, chunks: Iterable[Examples]) -> list[str]:
    """Writes the examples of a split to files in turn, a chunk each time, and returns the paths.

    Args:
      folder: is created if missing; files of the same names are overwritten.
      split: "train" or "eval".
      form: TSV or TFRECORD.
    """
    tf.io.gfile.makedirs(folder)
    paths = [os.path.join(folder, f"{split}-{number:05d}-of-{num_files:05d}.{form}") for number in range(num_files)]
    records: Callable[[Examples], Iterator[bytes]] = tsv_lines if form == TSV else serialized_examples
    files = [tf.io.gfile.GFile(path, "wb") if form == TSV else tf.io.TFRecordWriter(path) for path in paths]
    try:
        for number, chunk in enumerate(chunks):
            for record in records(chunk):
                files[number % num_files].write(record)
    finally:
        for file in files:
            file.close()
    return paths


def tsv_lines(examples: Examples) -> Iterator[bytes]:
    """Yields each example as a line of Criteo's format, with its line break."""
    categories = hashing.hex_digits(examples.values).view("S8")
    categories[examples.is_missing] = b""
    counts = np.char.mod(b"%d", examples.counts)
    # Both are there in Criteo's files: numbers that are 0, and missing ones.
    counts[:, 1::2][examples.counts[:, 1::2] == 0] = b""
    for label, numbers, strings in zip(examples.labels, counts.tolist(), categories.tolist()):
        yield b"\t".join([b"1" if label else b"0", *numbers, *strings]) + b"\n"


def serialized_examples(examples: Examples) -> Iterator[bytes]:
    """Yields each example as a serialised tf.train.Example."""
    feature = tf.train.Feature
    for label, numbers, ids in zip(examples.labels.tolist(), examples.numbers.tolist(), examples.ids.tolist()):
        yield tf.train.Example(features=tf.train.Features(feature={
            "label": feature(float_list=tf.train.FloatList(value=[label])),
            "numbers": feature(float_list=tf.train.FloatList(value=numbers)),
            "ids": feature(int64_list=tf.train.Int64List(value=ids))})).SerializeToString()
