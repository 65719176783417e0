"""MNIST as numpy mini-batches, for code written against `read_data_sets` of the old tutorial.

    mnist = read_data_sets("/tmp/mnist-data", one_hot=True)
    images, labels = mnist.train.next_batch(100)

Needs no TensorFlow of its own; a `tf.float32` given as dtype is understood.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from data import mnist_files
from data.data_set import DataSet, dense_to_one_hot, pixel_dtype
from data.examples import Examples

__all__ = ["DataSet", "Datasets", "dense_to_one_hot", "read_data_sets"]


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
    source_url: str = mnist_files.BASE_URL,
) -> Datasets:
    """Reads MNIST from `train_dir`, where the files that are absent are fetched from `source_url`.

    Args:
        train_dir: the files' folder; not looked at for fake data.
        fake_data: gives three fake DataSets.
        one_hot: labels float64 [n, 10] with a single 1, instead of uint8 [n].
        dtype: of the images: np.float32 in [0, 1] or np.uint8.
        reshape: images [n, 784], instead of [n, 28, 28, 1].
        validation_size: how many of the training examples, from the first, are for validation.
        seed: of the shuffling.
        source_url: the folder with the four files.

    Raises:
        DataError: a file cannot be fetched, or is not what it should be.
        TypeError: another dtype.
        ValueError: a validation_size that is out of range.
    """
    options = {"one_hot": one_hot, "dtype": pixel_dtype(dtype), "reshape": reshape, "seed": seed}
    if fake_data:
        return Datasets(*(DataSet([], [], fake_data=True, **options) for _ in range(3)))
    mnist_files.ensure(train_dir, source_url)
    train, test = mnist_files.read(train_dir)
    parts = (*_split(train, validation_size), test)
    return Datasets(*(DataSet(*_as_tutorial(part, one_hot), **options) for part in parts))


def _split(train: Examples, validation_size: int) -> tuple[Examples, Examples]:
    """The training set without its first `validation_size` examples, and those."""
    images, labels = train
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"validation_size is {validation_size}; allowed is 0..{len(images)}, the number of "
            "training images"
        )
    size = validation_size
    return Examples(images[size:], labels[size:]), Examples(images[:size], labels[:size])


def _as_tutorial(examples: Examples, one_hot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 28, 28, 1] and uint8 or one-hot labels, the tutorial's forms."""
    labels = examples.labels.astype(np.uint8)
    return examples.images[..., None], dense_to_one_hot(labels) if one_hot else labels
