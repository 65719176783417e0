"""The dataset plug-in for synthetic digits, which have the form of MNIST but need no files and no network.

Run with --dataset=data.digits. `data.drawing` draws 12000 training and 2000 test images, 28 x 28, from a fixed seed,
so every worker has the same ones and the test set never changes. The digits are for trying things out. They are
not MNIST, and an accuracy on them says nothing about MNIST. A linear softmax model classifies about 90 % of the test
set correctly, and one with a hidden layer of 100 units about 97 %.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .drawing import draw
from .examples import Examples, Splits
from .pipeline import image_dataset

if TYPE_CHECKING:
    import tensorflow as tf

# The number of training examples, taken from the end, that are held out for validation.
DEFAULT_PARAMS: dict[str, Any] = {"validation_size": 0}

NUM_TRAIN = 12000
NUM_TEST = 2000
_DRAWING_SEED = 1998


def prepare(params: Mapping[str, Any]) -> None:
    """Does nothing: the digits are drawn on first use."""


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the digits for a mode as (features float32 [batch, 784], labels int32 [batch]).

    See `data.pipeline.image_dataset`; the `seed` in `params` affects the shuffling, not the drawing.
    """
    return image_dataset(load(), mode, params, shard)


@functools.lru_cache(maxsize=1)
def load(seed: int = _DRAWING_SEED) -> Splits:
    """Draws the digits once per process: train and test images uint8 [n, 784], labels int32 [n].

    The same seed gives the same digits, independent of other random numbers.
    """
    return Splits(_examples(NUM_TRAIN, (seed, 0)), _examples(NUM_TEST, (seed, 1)))


def _examples(num: int, seed: tuple[int, int]) -> Examples:
    """Returns equally many of each digit, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(num, dtype=np.int32) % 10)
    return Examples(draw(labels, rng), labels).as_rows()
