"""Turns images in memory into a tf.data.Dataset: shard, shuffle, repeat, batch, decode.

    uint8 [n, 784] --this worker's shard--> batches --cast, / 255--> float32 [batch, 784] in [0, 1]

The images stay uint8 until they are in a batch, which takes a quarter of the memory and of the copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

import ps_train
from ps_train.errors import ConfigError

from .examples import Examples, Splits

# Evaluation does not train, so the batch size affects only the speed.
EVAL_BATCH_SIZE = 1000


def image_dataset(
    splits: Splits, mode: str, params: Mapping[str, Any], shard: tuple[int, int]
) -> tf.data.Dataset:
    """Implements input_fn for images in memory.

    Args:
        splits: all examples, as rows, the same on every worker.
        mode: "train" returns this worker's training examples, shuffled and repeated forever; "eval" and
            "infer" return the test examples once, in order, with a shorter last batch if necessary;
            "validation" does the same with the last `validation_size` training examples, which
            "train" then omits.
        params: `batch_size` for training; `seed`, an int, or None for a different order each time;
            `validation_size`, 0 if absent.
        shard: (index, count), selects the examples whose number modulo count is index.

    Returns:
        A dataset of (features float32 [batch, 784] in [0, 1], labels int32 [batch]).

    Raises:
        ConfigError: validation_size leaves no training example.
        DataError: this shard has no examples.
    """
    training = mode == "train"
    examples = _examples(splits, mode, params.get("validation_size", 0))
    dataset = ps_train.from_arrays(
        tuple(examples.shard(*shard)),
        params["batch_size"] if training else EVAL_BATCH_SIZE,
        shuffle=training,
        repeat=training,
        seed=shard_seed(params["seed"], shard[0]),
    )
    return dataset.map(_decode)


def _examples(splits: Splits, mode: str, validation_size: int) -> Examples:
    """Returns the examples for a mode."""
    num_train = len(splits.train.labels)
    if not 0 <= validation_size < num_train:
        raise ConfigError("parameter_out_of_range", f"--params: validation_size={validation_size}; allowed: 0 to "
                          f"{num_train - 1}, as there are {num_train} training examples and one must be left to train "
                          "on")
    if mode == "train":
        return splits.train.part(0, num_train - validation_size)
    if mode == "validation":
        return splits.train.part(num_train - validation_size, num_train)
    return splits.test


def shard_seed(seed: int | None, index: int) -> int | None:
    """Returns a different seed for each worker, whose orders then differ; None stays None."""
    return None if seed is None else seed + index


def _decode(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(images, tf.float32) / 255.0, labels
