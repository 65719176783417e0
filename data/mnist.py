"""The dataset plug-in of MNIST: 60000 training and 10000 test images of handwritten digits.

Run with --dataset=data.mnist. The files are read from data_dir, and fetched where they are absent;
data_dir may also be the file mnist.npz of Keras.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data import mnist_files
from data.examples import Splits
from data.pipeline import image_dataset

if TYPE_CHECKING:
    import tensorflow as tf

# How many training examples, the last ones, are left out of training and kept for validation.
DEFAULT_PARAMS: dict[str, Any] = {"validation_size": 0}


def prepare(params: Mapping[str, Any]) -> None:
    """Fetches the files that data_dir lacks, and reads them all once to see that they are sound.

    Raises:
        DataError: a file cannot be fetched, or is not what it should be.
    """
    mnist_files.ensure(params["data_dir"])
    load(params["data_dir"])


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """The digits of a mode as (features float32 [batch, 784], labels int32 [batch]).

    See `data.pipeline.image_dataset`; `params` also has `data_dir`, where the files are.
    """
    return image_dataset(load(params["data_dir"]), mode, params, shard)


@functools.lru_cache(maxsize=1)
def load(data_dir: str) -> Splits:
    """Reads the files once in a process: train and test images uint8 [n, 784], labels int32 [n].

    Raises:
        DataError: a file is missing, damaged or of another kind.
    """
    train, test = mnist_files.read(data_dir)
    return Splits(train.as_rows(), test.as_rows())
