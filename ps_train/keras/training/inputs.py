"""The dataset plug-in's batches, as each strategy takes them.

    one process, multi_worker_mirrored   a dataset of global batches, which the strategy splits; between workers by data
    parameter_server                     a function that makes a dataset on each worker
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.errors import ConfigError, DataError, UserCodeError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.strategies import factory
from ps_train.plugins.contracts import EVAL, TRAIN, VALIDATION, Dataset
from ps_train.runtime.calls import Call

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
      ConfigError: the held-out data repeats, and --validation_steps is not given.
      DataError: the held-out set is empty, or has no end within --eval_timeout_secs.
    """
    _refuse_endless(batches(dataset, params, EVAL), dataset, EVAL, config)
    steps = validation_steps(config, dataset, params)
    if config.strategy == "parameter_server":
        return _for_each_worker(dataset, params, steps)
    params = agreed_params(strategy, config, params)
    return Feed(_sharded_by_data(batches(dataset, params, TRAIN)),
                _sharded_by_data(batches(dataset, params, held_out_mode(params))), steps)


def agreed_params(
    strategy: tf.distribute.Strategy, config: KerasConfig, params: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Returns the dataset's parameters with the global batch size, and a seed that all workers share."""
    params = {**params, "batch_size": factory.global_batch_size(strategy, config)}
    if config.strategy == "multi_worker_mirrored" and params["seed"] is None:
        params["seed"] = agreed_seed(strategy)  # each worker takes its share of the same order
    return params


def held_out_mode(params: Mapping[str, Any]) -> str:
    """Returns the mode whose data training is validated on; the report at the end is always of "eval"."""
    return VALIDATION if params.get("validation_size") else EVAL


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


def validation_steps(config: KerasConfig, dataset: Dataset, params: Mapping[str, Any]) -> int:
    """Returns the number of batches in one validation.

    Raises:
      ConfigError: the dataset repeats, and --validation_steps is not given.
      DataError: it is empty, or has no end within --eval_timeout_secs.
    """
    mode = held_out_mode(params)
    held_out = batches(dataset, params, mode)
    _refuse_endless(held_out, dataset, mode, config)
    limit = config.validation_steps
    known = int(held_out.cardinality())
    if known > 0:
        return min(known, limit or known)
    return len(_counted(held_out.take(limit or -1), dataset, mode, config))


def sizes(config: KerasConfig, dataset: Dataset, params: Mapping[str, Any]) -> list[int]:
    """Returns the number of examples in each batch of the evaluation at the end: --validation_steps where it repeats.

    Raises:
      ConfigError: the dataset repeats, and --validation_steps is not given.
      DataError: it is empty, or has no end within --eval_timeout_secs.
    """
    held_out = batches(dataset, params, EVAL)
    _refuse_endless(held_out, dataset, EVAL, config)
    has_end = int(held_out.cardinality()) >= 0
    return _counted(held_out if has_end else held_out.take(config.validation_steps or -1), dataset, EVAL, config)


def _refuse_endless(held_out: tf.data.Dataset, dataset: Dataset, mode: str, config: KerasConfig) -> None:
    if int(held_out.cardinality()) == tf.data.INFINITE_CARDINALITY and config.validation_steps is None:
        raise ConfigError(f"--validation_steps: not given, and the dataset of mode \"{mode}\" of {dataset.name} "
                          "repeats without end; give the number of batches to evaluate on, or leave out its repeat()")


def _counted(held_out: tf.data.Dataset, dataset: Dataset, mode: str, config: KerasConfig) -> list[int]:
    """Returns the number of examples in each batch."""
    found: list[int] = []

    def count() -> None:
        for size in held_out.map(lambda features, labels: tf.shape(tf.nest.flatten(features)[0])[0]):
            found.append(int(size))
            if time.monotonic() > end_secs:
                return

    end_secs = time.monotonic() + config.eval_timeout_secs
    counter = Call(count, "held-out data")
    counter.join(config.eval_timeout_secs)
    if counter.is_alive() or time.monotonic() > end_secs:
        raise DataError(f"--eval_timeout_secs: the dataset of mode \"{mode}\" of {dataset.name} gave {len(found)} "
                        f"batches in {config.eval_timeout_secs:g} s, and has not come to its end; give "
                        "--validation_steps, the number of batches to evaluate on, or more time")
    counter.result()
    if not found:
        raise DataError(f"{dataset.name}.input_fn: the dataset of mode \"{mode}\" is empty; there is nothing to "
                        "evaluate on")
    return found


def _sharded_by_data(batches_: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches_.with_options(options)


def _for_each_worker(dataset: Dataset, params: Mapping[str, Any], steps: int) -> Feed:
    unseeded = {**params, "seed": None}  # with one seed, all workers would go through the data in the same order
    creator = tf_keras.utils.experimental.DatasetCreator
    return Feed(creator(lambda context: batches(dataset, unseeded, TRAIN)),
                creator(lambda context: batches(dataset, unseeded, held_out_mode(params)).repeat()), steps)


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
