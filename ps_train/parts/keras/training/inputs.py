"""The batches of the dataset plug-in, as each strategy takes them.

    one process, multi_worker_mirrored   a dataset of global batches, which the strategy splits; between workers by data
    parameter_server                     a function that makes a dataset on each worker
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.errors import ConfigError, DataError, UserCodeError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.strategies import factory
from ps_train.plugins.contracts import EVAL, TRAIN, VALIDATION, Dataset
from ps_train.runtime.threads import Call

_LARGEST_DRAW = 2**16


class Feed(NamedTuple):
    """What Model.fit takes.

    Attributes:
      training: repeats without end.
      validation: once through; with parameter_server it repeats.
      validation_steps: batches in one validation; Keras cannot count them if an execution has several steps.
    """

    training: Any
    validation: Any
    validation_steps: int


@dataclasses.dataclass(frozen=True)
class KerasInputs:
    """A dataset plug-in with its parameters, under the limits that the flags set."""

    config: KerasConfig
    dataset: Dataset
    params: Mapping[str, Any]

    def feed(self, strategy: tf.distribute.Strategy) -> Feed:
        """Returns the batches for training and validation.

        Raises:
          UserCodeError: the plug-in breaks its contract.
          ConfigError: the held-out data repeats, and --validation_steps is not given.
          DataError: the held-out set is empty, or has no end within --eval_timeout_secs.
        """
        self._held_out(EVAL)  # the report at the end needs it: find out before training
        steps, mode = self.validation_steps(), self._validation_mode
        if self.config.strategy == "parameter_server":
            creator = tf_keras.utils.experimental.DatasetCreator
            # With one seed, all workers would read the data in the same order.
            return Feed(creator(lambda context: self.batches(TRAIN, seed=None)),
                        creator(lambda context: self.batches(mode, seed=None).repeat()), steps)
        changes = {"batch_size": factory.global_batch_size(strategy, self.config)}
        if self.config.strategy == "multi_worker_mirrored" and self.params["seed"] is None:
            # Each worker takes its share of the same order, so all workers need one seed.
            changes["seed"] = sum_over_replicas(strategy, random.SystemRandom().randrange(_LARGEST_DRAW))
        return Feed(_sharded_by_data(self.batches(TRAIN, **changes)), _sharded_by_data(self.batches(mode, **changes)),
                    steps)

    @property
    def _validation_mode(self) -> str:
        """The mode of the data for validation; the report at the end is always on that of "eval"."""
        return VALIDATION if self.params.get("validation_size") else EVAL

    def batches(self, mode: str, **changes: Any) -> tf.data.Dataset:
        """Returns all batches of a mode, with `changes` to the parameters.

        Raises:
          UserCodeError: the plug-in returned no dataset of (features, labels).
        """
        name = f"{self.dataset.name}.input_fn"
        made = self.dataset.input_fn(mode=mode, params={**self.params, **changes}, shard=(0, 1))
        if not isinstance(made, tf.data.Dataset):
            raise UserCodeError(f"{name} returned {type(made).__name__}; it must return a tf.data.Dataset of "
                                "(features, labels)")
        if not isinstance(made.element_spec, tuple) or len(made.element_spec) != 2:
            raise UserCodeError(f"{name}: its dataset yields {made.element_spec}; it must yield (features, labels)")
        return made.prefetch(2)

    def validation_steps(self) -> int:
        """Returns the number of batches in one validation; raises what `feed` raises."""
        held_out = self._held_out(self._validation_mode)
        limit, known = self.config.validation_steps, int(held_out.cardinality())
        if known > 0:
            return min(known, limit or known)
        return len(self._count(held_out.take(limit or -1), self._validation_mode))

    def eval_sizes(self) -> list[int]:
        """Returns the number of examples in each batch of the evaluation at the end; raises what `feed` raises."""
        held_out = self._held_out(EVAL)
        has_end = int(held_out.cardinality()) >= 0  # then the evaluation is on all of it
        return self._count(held_out if has_end else held_out.take(self.config.validation_steps or -1), EVAL)

    def _held_out(self, mode: str) -> tf.data.Dataset:
        held_out = self.batches(mode)
        if int(held_out.cardinality()) == tf.data.INFINITE_CARDINALITY and self.config.validation_steps is None:
            raise ConfigError(f"--validation_steps: not given, and the dataset of mode \"{mode}\" of "
                              f"{self.dataset.name} repeats without end; give the number of batches to evaluate on, or "
                              "leave out its repeat()")
        return held_out

    def _count(self, held_out: tf.data.Dataset, mode: str) -> list[int]:
        """Returns the number of examples in each batch."""
        found: list[int] = []
        timeout_secs = self.config.eval_timeout_secs
        end_secs = time.monotonic() + timeout_secs

        def count() -> None:
            for size in held_out.map(lambda features, labels: tf.shape(tf.nest.flatten(features)[0])[0]):
                found.append(int(size))
                if time.monotonic() > end_secs:
                    return

        counter = Call(count, "held-out data")  # in a thread, because a dataset may stand still in a batch
        counter.join(timeout_secs)
        if counter.is_alive() or time.monotonic() > end_secs:
            raise DataError(f"--eval_timeout_secs: the dataset of mode \"{mode}\" of {self.dataset.name} gave "
                            f"{len(found)} batches in {timeout_secs:g} s, and did not end; give "
                            "--validation_steps, the number of batches to evaluate on, or more time")
        counter.result()
        if not found:
            raise DataError(f"{self.dataset.name}.input_fn: the dataset of mode \"{mode}\" is empty; there is nothing "
                            "to evaluate on")
        return found


def _sharded_by_data(batches: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches.with_options(options)


def sum_over_replicas(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the sum of each replica's number; blocks until all workers call it."""

    @tf.function
    def add() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(number, tf.int64))

    return int(strategy.experimental_local_results(strategy.run(add))[0])
