"""Reads IDX files, the format of MNIST, plain or gzipped, and checks everything in them.

    image file:  magic 0x00000803 | n | rows | columns | n * rows * columns bytes
    label file:  magic 0x00000801 | n                  | n bytes

Header numbers are big-endian uint32 (http://yann.lecun.com/exdb/mnist/).
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Union

import numpy as np

from ps_train.errors import DataError

PathLike = Union[str, "os.PathLike[str]"]

_GZIP_START = b"\x1f\x8b"
_UINT8_CODE = 0x08
_AGAIN = "put an undamaged copy in its place"


def read_images(path: PathLike) -> np.ndarray:
    """Reads an IDX file of images.

    Returns:
        uint8 [n, rows, columns], n >= 1, not writeable.

    Raises:
        DataError: the file is missing, damaged or of another kind.
    """
    return _read(path, num_axes=3)


def read_labels(path: PathLike, num_classes: int = 10) -> np.ndarray:
    """Reads an IDX file of labels.

    Returns:
        uint8 [n], n >= 1, every one below `num_classes`, not writeable.

    Raises:
        DataError: the file is missing, damaged or of another kind, or a label is out of range.
    """
    labels = _read(path, num_axes=1)
    check_labels(labels, path, num_classes)
    return labels


def read_pair(images_path: PathLike, labels_path: PathLike) -> tuple[np.ndarray, np.ndarray]:
    """Reads images and the labels that go with them.

    Returns:
        uint8 [n, rows, columns] and uint8 [n].

    Raises:
        DataError: as in read_images and read_labels, or the numbers of examples differ.
    """
    images, labels = read_images(images_path), read_labels(labels_path)
    if len(images) != len(labels):
        raise DataError(
            "idx_lengths_differ", f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels; "
            "they must be as many: take both from the same source"
        )
    return images, labels


def check_labels(labels: np.ndarray, where: PathLike, num_classes: int = 10) -> None:
    """Raises DataError, naming the file `where`, unless all integer labels are in range."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            "label_out_of_range", f"{where}: label {labels[wrong[0]]} at index {wrong[0]} is out of range; "
            f"allowed is 0..{num_classes - 1}: {_AGAIN}"
        )


def _read(path: PathLike, num_axes: int) -> np.ndarray:
    """Returns the uint8 array in an IDX file, with `num_axes` axes."""
    content = _content(path)
    header_bytes = 4 * (1 + num_axes)
    if len(content) >= 4:
        _check_magic(path, int.from_bytes(content[:4], "big"), num_axes)
    if len(content) < header_bytes:
        raise DataError(
            "idx_damaged", f"{path}: truncated: {len(content)} bytes, shorter than the header of {header_bytes}: "
            f"{_AGAIN}"
        )
    shape = struct.unpack_from(f">{num_axes}I", content, offset=4)
    _check_size(path, len(content) - header_bytes, shape)
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _content(path: PathLike) -> bytes:
    """Returns the bytes of a file, unpacked if they are gzipped (judged by the first bytes, not the name)."""
    try:
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_START) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError("idx_damaged", f"{path}: damaged gzip file ({error}): {_AGAIN}") from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError("input_file_unreadable",
                        f"{path}: cannot be read ({reason}): put a readable file there") from error


def _check_magic(path: PathLike, magic: int, num_axes: int) -> None:
    expected = _UINT8_CODE << 8 | num_axes
    if magic != expected:
        kind = "labels" if num_axes == 1 else "images"
        raise DataError(
            "idx_wrong_kind", f"{path}: magic number 0x{magic:08x} is not 0x{expected:08x}, that of an IDX file of "
            f"{kind}: check that the file is of this kind"
        )


def _check_size(path: PathLike, num_bytes: int, shape: tuple[int, ...]) -> None:
    sizes = " x ".join(map(str, shape))
    expected = math.prod(shape)
    if expected == 0:
        raise DataError("idx_damaged", f"{path}: holds no examples ({sizes}); at least one is needed: {_AGAIN}")
    if num_bytes != expected:
        problem = "truncated" if num_bytes < expected else "too long"
        raise DataError(
            "idx_damaged", f"{path}: {problem}: {num_bytes} bytes after the header, which says {sizes} = "
            f"{expected}: {_AGAIN}"
        )
