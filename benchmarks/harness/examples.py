"""The examples that every peer trains on: MNIST where there is a folder of it, else the drawn digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data import mnist_files
from data.examples import Splits


def load(data_dir: str) -> Splits:
    """Returns images uint8 [n, 784] and labels int32 [n], of training and of test.

    Raises:
      DataError: a file is missing or damaged.
    """
    if data_dir:
        train, test = mnist_files.read(data_dir)
        return Splits(train.as_rows(), test.as_rows())
    from data import digits  # noqa: PLC0415 (it brings TensorFlow, which PyTorch's process need not carry for MNIST)

    return digits.load()


def scaled(images: np.ndarray) -> np.ndarray:
    """Returns float32 in [0, 1]."""
    return np.divide(images, 255, dtype=np.float32)


def ps_train_flags(data_dir: str) -> list[str]:
    """Returns the same choice as flags of ps_train."""
    return ["--dataset=data.mnist", f"--data_dir={data_dir}"] if data_dir else ["--dataset=data.digits"]


def shuffled_rows(count: int, batch_size: int, seed: int | None) -> Iterator[np.ndarray]:
    """Yields row numbers of full mini-batches for ever, each row once an epoch; what is over at its end is left out."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(count)
        for start in range(0, count - batch_size + 1, batch_size):
            yield order[start:start + batch_size]
