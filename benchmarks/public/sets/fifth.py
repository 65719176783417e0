"""Small data sets for the jobs of `fifth.json`: MNIST as given, all else drawn with a fixed seed."""

from __future__ import annotations

import gzip
import pathlib

import numpy as np

from benchmarks.public.data import write_records

_FIELDS, _FEATURES = 39, 1000  # of the Criteo formats


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder; MNIST is taken from `mnist_small`, which `field` makes there before."""
    del mnist
    root = pathlib.Path(folder)
    _mnist_small_raw(root)
    _deepfm_records(root, np.random.default_rng(0))


def _mnist_small_raw(root: pathlib.Path) -> None:
    """mnist_small_raw/: the four small files, not compressed."""
    (root / "mnist_small_raw").mkdir(parents=True, exist_ok=True)
    for path in (root / "mnist_small").glob("*-ubyte.gz"):
        with gzip.open(path) as file:
            (root / "mnist_small_raw" / path.stem).write_bytes(file.read())


def _deepfm_records(root: pathlib.Path, rng: np.random.Generator) -> None:
    """deepfm_records/: training and validation of a click-through model, as TFRecords."""
    for name, count in (("tr", 4000), ("va", 500)):
        ids, values = rng.integers(0, _FEATURES, (count, _FIELDS)), rng.random((count, _FIELDS))
        write_records(root / "deepfm_records" / f"{name}.tfrecords", (
            {"label": [float(row[0] < _FEATURES // 4)], "ids": row.tolist(), "values": weights.tolist()}
            for row, weights in zip(ids, values)))
