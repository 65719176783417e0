"""The dataset plug-in for MNIST: 60000 training and 10000 test images of handwritten digits.

Run with --dataset=data.mnist. The files are read from data_dir, and downloaded if they are missing.
data_dir may also be Keras' file mnist.npz.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import mnist_files
from .examples import Splits
from .pipeline import image_dataset

if TYPE_CHECKING:
    import tensorflow as tf

# The number of training examples, taken from the end, that are held out for validation.
DEFAULT_PARAMS: dict[str, Any] = {"validation_size": 0}


def prepare(params: Mapping[str, Any]) -> None:
    """Downloads missing files to data_dir, and reads all files once to check them.

    Raises:
        DataError: a file cannot be downloaded, or is not the expected one.
    """
    mnist_files.ensure(params["data_dir"])
    load(params["data_dir"])


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the digits for a mode as (features float32 [batch, 784], labels int32 [batch]).

    See `data.pipeline.image_dataset`; `params` also has `data_dir`, the folder of the files.
    """
    return image_dataset(load(params["data_dir"]), mode, params, shard)


@functools.lru_cache(maxsize=1)
def load(data_dir: str) -> Splits:
    """Reads the files once per process: train and test images uint8 [n, 784], labels int32 [n].

    Raises:
        DataError: a file is missing, damaged or of another kind.
    """
    train, test = mnist_files.read(data_dir)
    return Splits(train.as_rows(), test.as_rows())
