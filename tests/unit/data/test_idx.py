"""The reader of IDX files, against files that are written here byte by byte."""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import struct

import numpy as np
import pytest

from data import idx
from ps_train.errors import DataError

REAL_MNIST = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "mnist"
IMAGE_BYTES = struct.pack(">4I", 0x803, 2, 2, 3) + bytes(range(12))
LABEL_BYTES = struct.pack(">2I", 0x801, 4) + bytes([7, 0, 9, 1])


def _file(folder, content, name="file"):
    path = folder / name
    path.write_bytes(content)
    return path


def _error(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_reads_images_row_by_row(tmp_path, pack):
    """Images come out as [n, rows, columns], the last axis fastest, packed or not."""
    images = idx.read_images(_file(tmp_path, pack(IMAGE_BYTES)))
    assert images.dtype == np.uint8
    assert images.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_reads_labels(tmp_path, pack):
    """Labels come out as one axis of bytes."""
    labels = idx.read_labels(_file(tmp_path, pack(LABEL_BYTES)))
    assert labels.dtype == np.uint8
    assert labels.tolist() == [7, 0, 9, 1]


@pytest.mark.parametrize("read, content", [
    (idx.read_images, IMAGE_BYTES), (idx.read_images, gzip.compress(IMAGE_BYTES)),
    (idx.read_labels, LABEL_BYTES), (idx.read_labels, gzip.compress(LABEL_BYTES)),
], ids=["images", "images.gz", "labels", "labels.gz"])
def test_every_truncation_is_an_error_that_names_the_file(tmp_path, read, content):
    """Wherever a file is cut off, it is refused, and no other kind of error comes out."""
    for length in range(len(content)):
        path = _file(tmp_path, content[:length])
        assert str(path) in _error(read, path)


@pytest.mark.parametrize("read, content, words", [
    (idx.read_images, LABEL_BYTES, ["0x00000801", "0x00000803", "images"]),
    (idx.read_labels, IMAGE_BYTES, ["0x00000803", "0x00000801", "labels"]),
    (idx.read_images, b"<html>not found</html>", ["0x3c68746d", "0x00000803"]),
    (idx.read_images, IMAGE_BYTES + b"\0", ["too long", "13 bytes", "2 x 2 x 3 = 12"]),
    (idx.read_images, IMAGE_BYTES[:-1], ["truncated", "11 bytes", "2 x 2 x 3 = 12"]),
    (idx.read_labels, LABEL_BYTES + b"\0", ["too long", "5 bytes", "4 = 4"]),
    (idx.read_images, struct.pack(">4I", 0x803, *[2**32 - 1] * 3), ["truncated", str(2**32 - 1)]),
    (idx.read_images, struct.pack(">4I", 0x803, 0, 28, 28), ["no examples", "0 x 28 x 28"]),
    (idx.read_labels, gzip.compress(LABEL_BYTES) + b"junk", ["gzip"]),
    (idx.read_labels, gzip.compress(LABEL_BYTES)[:-8] + b"\0" * 8, ["gzip", "CRC"]),
], ids=["labels as images", "images as labels", "web page", "long images", "short images",
        "long labels", "absurd sizes", "empty", "trailing junk", "bad checksum"])
def test_damaged_file(tmp_path, read, content, words):
    """The error names the file, what it has, and what it should have."""
    path = _file(tmp_path, content)
    message = _error(read, path)
    for word in [str(path), *words]:
        assert word in message


def test_missing_file(tmp_path):
    """A file that is not there is a DataError as well."""
    assert "No such file" in _error(idx.read_labels, tmp_path / "absent")


def test_folder_instead_of_file(tmp_path):
    """So is a folder of that name."""
    assert str(tmp_path) in _error(idx.read_images, tmp_path)


def test_label_out_of_range(tmp_path):
    """A label that is no class is named with its place; how many classes there are is given."""
    path = _file(tmp_path, LABEL_BYTES)
    message = _error(idx.read_labels, path, 9)
    assert "label 9 at index 2" in message and "0..8" in message and str(path) in message


def test_counts_that_disagree_name_both_files(tmp_path):
    """Two images with four labels do not go together."""
    images, labels = _file(tmp_path, IMAGE_BYTES, "i"), _file(tmp_path, LABEL_BYTES, "l")
    message = _error(idx.read_pair, images, labels)
    assert f"{images} has 2 images" in message and f"{labels} has 4 labels" in message


def test_pair_that_agrees(tmp_path):
    """The pair is what each of the readers gives."""
    three = struct.pack(">2I", 0x801, 2) + bytes([5, 6])
    images, labels = idx.read_pair(_file(tmp_path, IMAGE_BYTES, "i"), _file(tmp_path, three, "l"))
    assert images.shape == (2, 2, 3) and labels.tolist() == [5, 6]


@pytest.mark.skipif(not REAL_MNIST.exists(), reason=f"needs the real MNIST files in {REAL_MNIST}")
def test_real_test_set():
    """The bytes of MNIST's test set, as gzip and the published facts about it have them."""
    path = REAL_MNIST / "t10k-images-idx3-ubyte.gz"
    images, labels = idx.read_pair(path, REAL_MNIST / "t10k-labels-idx1-ubyte.gz")
    with gzip.open(path) as file:
        body = file.read()[16:]
    assert images.shape == (10000, 28, 28)
    assert hashlib.sha256(images.tobytes()).digest() == hashlib.sha256(body).digest()
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009
    ]
