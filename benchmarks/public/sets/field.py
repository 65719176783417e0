"""Small data sets for the jobs of `field.json`: MNIST as given, all else drawn with a fixed seed."""

from __future__ import annotations

import gzip
import pathlib
import pickle
import struct
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_IDX_HEADERS = {"images-idx3": 16, "labels-idx1": 8}
_SMALL = {"train": 15000, "t10k": 2000}  # images
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")  # of CIFAR-10
_WORDS = [f"word{i}" for i in range(40)]


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder, from MNIST's four gzip files in another."""
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    (root / "empty").mkdir(parents=True, exist_ok=True)
    _mnist_small(root, pathlib.Path(mnist))
    for make_one in (_mnist_examples, _cifar10, _quickdraw, _babyweight, _reverse, _images, _wmt, _word2vec, _youtube):
        make_one(root, rng)


def _mnist_small(root: pathlib.Path, mnist: pathlib.Path) -> None:
    """mnist_small/: the first images and labels, so that an epoch is short."""
    (root / "mnist_small").mkdir(parents=True, exist_ok=True)
    for part, count in _SMALL.items():
        for kind, header_bytes in _IDX_HEADERS.items():
            name = f"{part}-{kind}-ubyte.gz"
            with gzip.open(mnist / name) as file:
                header, body = file.read(header_bytes), file.read()
            item_bytes = 784 if header_bytes == 16 else 1
            small = header[:4] + count.to_bytes(4, "big") + header[8:] + body[:count * item_bytes]
            (root / "mnist_small" / name).write_bytes(gzip.compress(small))


def _mnist_examples(root: pathlib.Path, rng: np.random.Generator) -> None:
    """mnist_tfrecords/test.tfrecords, and mnist_examples/ as an old sample of Cloud ML has them, compressed."""
    with gzip.open(root / "mnist_small" / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(root / "mnist_small" / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    write_records(root / "mnist_tfrecords" / "test.tfrecords", (
        {"height": [28], "width": [28], "depth": [1], "label": [int(label)], "image_raw": [image.tobytes()]}
        for image, label in zip(images, labels)))
    for name, chosen in (("train", rng.permutation(1500)), ("eval", np.arange(1500, 2000))):
        write_records(root / "mnist_examples" / f"{name}.tfrecord.gz", (
            {"labels": [int(labels[i])], "images": (images[i] / 255.0).tolist(), "key": [str(i).encode()]}
            for i in chosen), "GZIP")


class _Python2Pickler(pickle._Pickler):  # noqa: SLF001 (the one that is written in Python)
    """Writes text and bytes as the strings of Python 2, which a reader decodes as it likes."""

    def _save_string(self, value: str | bytes) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch = {**pickle._Pickler.dispatch, str: _save_string, bytes: _save_string}  # noqa: SLF001


def write_python2_pickle(path: pathlib.Path, value: object) -> None:
    """Writes a value as Python 2 would have."""
    with open(path, "wb") as file:
        _Python2Pickler(file, 2).dump(value)


def _cifar10(root: pathlib.Path, rng: np.random.Generator) -> None:
    """cifar10_bin/ and cifar10_py/: the binary and the Python version, with a file for each archive's name."""
    binary, python = root / "cifar10_bin" / "cifar-10-batches-bin", root / "cifar10_py" / "cifar-10-batches-py"
    for folder, archive in ((binary, "cifar-10-binary.tar.gz"), (python, "cifar-10-python.tar.gz")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / archive).touch()
    for name in _BATCHES:
        labels = rng.integers(0, 10, 1000, np.uint8)
        images = rng.integers(0, 128, (1000, 3072), np.uint8) + labels[:, None] * 12
        (binary / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], images], 1).tobytes())
        write_python2_pickle(python / name, {"data": images, "labels": labels.tolist()})


def _quickdraw(root: pathlib.Path, rng: np.random.Generator) -> None:
    """quickdraw/: drawings as lists of (dx, dy, whether the stroke ends)."""
    write_text(root / "quickdraw" / "classes.txt", "cat\ndog\ntree\n")
    for name, count in (("train", 300), ("eval", 60)):
        drawings = []
        for _ in range(count):
            label, points = int(rng.integers(3)), int(rng.integers(10, 30))
            ink = rng.normal(label - 1.0, 0.3, (points, 3))
            ink[:, 2] = rng.random(points) < 0.2
            drawings.append({"ink": ink.ravel().tolist(), "shape": [points, 3], "class_index": [label]})
        write_records(root / "quickdraw" / f"{name}.tfrecord", drawings)


def _babyweight(root: pathlib.Path, rng: np.random.Generator) -> None:
    """gs/babyweight/preproc/: births, as in a bucket that is called `gs`."""
    for name, count in (("train", 2000), ("eval", 300)):
        weeks, age = rng.integers(30, 43, count), rng.integers(18, 40, count)
        rows = [f"{week * 0.2 + rng.normal():.2f},{rng.choice(['True', 'False'])},{years}.0,Single(1),{week}.0,{i}"
                for i, (week, years) in enumerate(zip(weeks, age))]
        write_text(root / "gs" / "babyweight" / "preproc" / f"{name}.csv-00000-of-00001", "\n".join(rows) + "\n")


def _reverse(root: pathlib.Path, rng: np.random.Generator) -> None:
    """reverse/: sentences and the same backwards."""
    write_text(root / "reverse" / "vocab.txt", "\n".join(_WORDS) + "\n")
    for name, count in (("train", 1000), ("dev", 50)):
        sentences = _sentences(rng, count)
        write_text(root / "reverse" / f"{name}.src", "\n".join(map(" ".join, sentences)) + "\n")
        write_text(root / "reverse" / f"{name}.trg", "\n".join(" ".join(line[::-1]) for line in sentences) + "\n")


def _images(root: pathlib.Path, rng: np.random.Generator) -> None:
    """faces64/ of doubles, words64/ with a vector for each image, flowers/ with a class."""
    pixels = rng.integers(0, 255, (64, 64, 64, 3), np.uint8)
    write_records(root / "faces64" / "faces.tfrecords", (
        {"image_raw": [(image / 127.5 - 1.0).tobytes()]} for image in pixels))
    write_records(root / "words64" / "image-batches-bin" / "images.tfrecords", (
        {"image_raw": [image.tobytes()], "label": [rng.normal(size=300).astype(np.float32).tobytes()]}
        for image in pixels))
    write_records(root / "flowers" / "train.tfrecord", (
        {"image_raw": [image.tobytes()], "label": [i % 5], "height": [64], "width": [64], "channel": [3]}
        for i, image in enumerate(pixels)))


def _wmt(root: pathlib.Path, rng: np.random.Generator) -> None:
    """wmt/: English and French of WMT with vocabularies of 50 words, also as numbers."""
    vocabulary = ["_PAD", "_GO", "_EOS", "_UNK", *_WORDS]
    for language in ("en", "fr"):
        write_text(root / "wmt" / f"vocab50.{language}", "\n".join(vocabulary) + "\n")
        for name, count in (("giga-fren.release2", 400), ("newstest2013", 200)):
            sentences = _sentences(rng, count)
            ids = [" ".join(str(vocabulary.index(word)) for word in line) for line in sentences]
            write_text(root / "wmt" / f"{name}.{language}", "\n".join(map(" ".join, sentences)) + "\n")
            write_text(root / "wmt" / f"{name}.ids50.{language}", "\n".join(ids) + "\n")


def _sentences(rng: np.random.Generator, count: int) -> list[Sequence[str]]:
    return [rng.choice(_WORDS, rng.integers(2, 35)).tolist() for _ in range(count)]


def _word2vec(root: pathlib.Path, rng: np.random.Generator) -> None:
    """word2vec/: a serialized tensor of the numbers of words, and the words."""
    write_text(root / "word2vec" / "vocab.tsv", "\n".join(f"word{i}" for i in range(64)) + "\n")
    words = np.minimum(rng.geometric(0.1, 20000), 63).astype(np.int64)
    (root / "word2vec" / "words.pb").write_bytes(tf.io.serialize_tensor(words).numpy())


def _youtube(root: pathlib.Path, rng: np.random.Generator) -> None:
    """yt8m/: videos with labels and the mean of their frames' features."""
    write_records(root / "yt8m" / "train0.tfrecord", (
        {"id": [str(i).encode()], "labels": rng.integers(0, 20, 2).tolist(), "mean_rgb": rng.normal(size=1024).tolist()}
        for i in range(600)))
