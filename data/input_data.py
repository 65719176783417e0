"""MNIST as numpy mini-batches, for code written for the old tutorial's `read_data_sets`.

    mnist = read_data_sets("/tmp/mnist-data", one_hot=True)
    images, labels = mnist.train.next_batch(100)

This module does not import TensorFlow, but accepts `tf.float32` as dtype. The names with a leading underscore are those
of the last version of the tutorial (TensorFlow 1.15 and later), for code that imports them.
"""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from . import mnist_files
from .data_set import DataSet, dense_to_one_hot, pixel_dtype
from .examples import Examples
from .fetch import fetch

__all__ = ["DataSet", "Datasets", "dense_to_one_hot", "read_data_sets"]

DEFAULT_SOURCE_URL = mnist_files.BASE_URL


class Datasets(NamedTuple):
    """The three parts of MNIST."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = DEFAULT_SOURCE_URL,
) -> Datasets:
    """Reads MNIST from `train_dir`, after downloading missing files from `source_url`.

    Args:
        train_dir: the folder of the files, or Keras' npz file; not used for fake data.
        fake_data: whether to return three fake DataSets.
        one_hot: whether labels are float64 [n, 10] with a single 1, instead of uint8 [n].
        dtype: of the images: np.float32 in [0, 1] or np.uint8.
        reshape: whether images are [n, 784], instead of [n, 28, 28, 1].
        validation_size: number of training examples, taken from the start, for validation.
        seed: the shuffling seed.
        source_url: the URL of the folder with the four files; "" is the default.

    Raises:
        DataError: a file cannot be downloaded, or is not the expected one.
        TypeError: the dtype is neither of these.
        ValueError: validation_size is out of range.
    """
    options = {"one_hot": one_hot, "dtype": pixel_dtype(dtype), "reshape": reshape, "seed": seed}
    if fake_data:
        return Datasets(*(DataSet([], [], fake_data=True, **options) for _ in range(3)))
    mnist_files.ensure(train_dir, source_url or DEFAULT_SOURCE_URL)
    train, test = mnist_files.read(train_dir)
    parts = (*_split(train, validation_size), test)
    return Datasets(*(DataSet(*_as_tutorial(part, one_hot), **options) for part in parts))


def _split(train: Examples, validation_size: int) -> tuple[Examples, Examples]:
    """Returns the training set without its first `validation_size` examples, and these examples."""
    images, labels = train
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"validation_size is {validation_size}; allowed is 0..{len(images)}, the number of "
            "training images"
        )
    size = validation_size
    return Examples(images[size:], labels[size:]), Examples(images[:size], labels[:size])


def _as_tutorial(examples: Examples, one_hot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns images [n, 28, 28, 1] and uint8 or one-hot labels, as in the tutorial."""
    labels = examples.labels.astype(np.uint8)
    return examples.images[..., None], dense_to_one_hot(labels) if one_hot else labels


def _read32(bytestream: Any) -> np.uint32:
    """Returns the next four bytes of a stream as a big-endian number, as in IDX files."""
    return np.frombuffer(bytestream.read(4), dtype=np.dtype(np.uint32).newbyteorder(">"))[0]


def _extract_images(f: BinaryIO) -> np.ndarray:
    """Returns the images in an open gzipped IDX file: uint8 [n, rows, columns, 1].

    Raises:
        ValueError: the file does not contain images, or is damaged.
    """
    return _extract(f, magic=2051, num_axes=3)[..., None]


def _extract_labels(f: BinaryIO, one_hot: bool = False, num_classes: int = 10) -> np.ndarray:
    """Returns the labels in an open gzipped IDX file: uint8 [n], or float64 [n, num_classes] if one_hot.

    Raises:
        ValueError: the file does not contain labels, or is damaged.
    """
    labels = _extract(f, magic=2049, num_axes=1)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def _extract(f: BinaryIO, magic: int, num_axes: int) -> np.ndarray:
    where = getattr(f, "name", "the file")
    with gzip.GzipFile(fileobj=f) as bytestream:
        found_magic = int.from_bytes(bytestream.read(4), "big")
        if found_magic != magic:
            raise ValueError(f"{where}: magic number {found_magic}; expected {magic}, of the other kind of MNIST file?")
        shape = [int(_read32(bytestream)) for _ in range(num_axes)]
        content = bytestream.read(math.prod(shape))
    if len(content) != math.prod(shape):
        raise ValueError(f"{where}: truncated: {len(content)} of {math.prod(shape)} bytes; fetch it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _maybe_download(filename: str, work_directory: str, source_url: str) -> str:
    """Downloads one of the four files of MNIST if it is missing, and returns its path.

    Args:
        filename: the name of the file in work_directory.
        source_url: the URL of the file itself.

    Raises:
        DataError: the file cannot be downloaded, or is not the expected one.
        ValueError: no checksum is known for the filename.
    """
    if filename not in mnist_files.FILES:
        raise ValueError(f"filename is {filename!r}; allowed are {', '.join(mnist_files.FILES)}")
    path = os.path.join(work_directory, filename)
    if not os.path.exists(path):
        fetch(source_url, Path(path), mnist_files.FILES[filename], f"put {filename} in {work_directory} yourself")
    return path


_DataSet = DataSet
_Datasets = Datasets
_dense_to_one_hot = dense_to_one_hot
