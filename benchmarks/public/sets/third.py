"""Small data sets for the jobs of `third.json`: MNIST as given, all else drawn with a fixed seed."""

from __future__ import annotations

import csv
import gzip
import pathlib

import numpy as np

_EPISODES, _EPISODE_STEPS, _STATE_DIM = 20, 50, 23


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder, from MNIST's four gzip files in another."""
    root = pathlib.Path(folder)
    _mnist_raw(root, pathlib.Path(mnist))
    _transitions(root, np.random.default_rng(0))


def _mnist_raw(root: pathlib.Path, mnist: pathlib.Path) -> None:
    """mnist_raw/: the four files, not compressed."""
    (root / "mnist_raw").mkdir(parents=True, exist_ok=True)
    for path in mnist.glob("*-ubyte.gz"):
        with gzip.open(path) as file:
            (root / "mnist_raw" / path.stem).write_bytes(file.read())


def _transitions(root: pathlib.Path, rng: np.random.Generator) -> None:
    """transitions/training_sample_data_set1.csv: id, time, state, action, reward, next state, done."""
    (root / "transitions").mkdir(parents=True, exist_ok=True)
    with open(root / "transitions" / "training_sample_data_set1.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for episode in range(_EPISODES):
            states = rng.normal(size=(_EPISODE_STEPS + 1, _STATE_DIM)).round(4).tolist()
            for step in range(_EPISODE_STEPS):
                writer.writerow([f"episode{episode}", step, states[step], int(rng.integers(2)),
                                 round(float(rng.normal()), 4), states[step + 1], step == _EPISODE_STEPS - 1])
