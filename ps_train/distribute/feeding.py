"""The dataset plug-in's batches, as each strategy takes them.

    one process, multi_worker_mirrored   a dataset of global batches, which the strategy splits; between workers by data
    parameter_server                     a function that makes a dataset on each worker
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.distribute import strategies
from ps_train.distribute.options import KerasConfig
from ps_train.errors import DataError, UserCodeError
from ps_train.plugins import EVAL, TRAIN, Dataset

_LARGEST_DRAW = 2**16


class Feed(NamedTuple):
    """What `fit` takes.

    Attributes:
      training: for ever.
      validation: once through, or with parameter_server for ever.
      validation_steps: batches of it; Keras cannot count them itself when an execution has several steps.
    """

    training: Any
    validation: Any
    validation_steps: int


def feed(strategy: tf.distribute.Strategy, config: KerasConfig, dataset: Dataset, params: Mapping[str, Any]) -> Feed:
    """Returns the batches for training and validation.

    Raises:
      UserCodeError: the plug-in breaks its contract.
      DataError: the held-out set is empty.
    """
    if config.strategy == "parameter_server":
        return _for_each_worker(dataset, params)
    params = {**params, "batch_size": strategies.global_batch_size(strategy, config)}
    if config.strategy == "multi_worker_mirrored" and params["seed"] is None:
        params["seed"] = agreed_seed(strategy)  # each worker takes its share of the same order
    return Feed(_sharded_by_data(batches(dataset, params, TRAIN)), _sharded_by_data(batches(dataset, params, EVAL)),
                len(sizes(dataset, params)))


def batches(dataset: Dataset, params: Mapping[str, Any], mode: str) -> tf.data.Dataset:
    """Returns all of the plug-in's batches of a mode.

    Raises:
      UserCodeError: it returned no dataset of (features, labels).
    """
    made = dataset.input_fn(mode=mode, params=params, shard=(0, 1))
    if not isinstance(made, tf.data.Dataset):
        raise UserCodeError(f"{dataset.name}.input_fn returned {type(made).__name__}; it must return a "
                            "tf.data.Dataset of (features, labels)")
    if not isinstance(made.element_spec, tuple) or len(made.element_spec) != 2:
        raise UserCodeError(f"{dataset.name}.input_fn: its dataset yields {made.element_spec}; it must yield "
                            "(features, labels)")
    return made.prefetch(2)


def sizes(dataset: Dataset, params: Mapping[str, Any]) -> list[int]:
    """Returns the number of examples in each batch of the held-out set.

    Raises:
      DataError: it is empty.
    """
    first = batches(dataset, params, EVAL).map(lambda features, labels: tf.shape(tf.nest.flatten(features)[0])[0])
    found = [int(size) for size in first]
    if not found:
        raise DataError(f"{dataset.name}.input_fn: the dataset of mode \"eval\" is empty; there is nothing to "
                        "evaluate on")
    return found


def _sharded_by_data(batches_: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches_.with_options(options)


def _for_each_worker(dataset: Dataset, params: Mapping[str, Any]) -> Feed:
    unseeded = {**params, "seed": None}  # with one seed, all workers would go through the data in the same order
    creator = tf_keras.utils.experimental.DatasetCreator
    return Feed(creator(lambda context: batches(dataset, unseeded, TRAIN)),
                creator(lambda context: batches(dataset, unseeded, EVAL).repeat()),
                len(sizes(dataset, params)))


def agreed_seed(strategy: tf.distribute.Strategy) -> int:
    """Returns a random number that is the same on all workers."""
    return sum_over_replicas(strategy, random.SystemRandom().randrange(_LARGEST_DRAW))


def sum_over_replicas(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the sum of each replica's number; it waits until all workers are there."""

    @tf.function
    def add() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(number, tf.int64))

    return int(strategy.experimental_local_results(strategy.run(add))[0])
