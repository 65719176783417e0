"""The batches of the dataset plug-in, as each strategy takes them, and an error where they end too early.

    one process, multi_worker_mirrored   a dataset of global batches, which the strategy splits; between workers by data
    parameter_server                     a function that makes a dataset on each worker

Training data that end before training does are an error: Model.fit would stop there without a word, and under
parameter_server it would say that all other tasks are lost.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.errors import ConfigError, DataError, UserCodeError
from ps_train.parts.keras import strategies
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.readers.bad_records import BadRecords, noting
from ps_train.plugins.contracts import EVAL, TRAIN, VALIDATION, Dataset
from ps_train.runtime.threads import Call

_LARGEST_DRAW = 2**16
_MOST_COUNTING_SECS = 60.0  # of held-out data that may have no end, as a generator's
_END_MARK = "ps_train: the training data ended"
_log = logging.getLogger(__name__)


class Feed(NamedTuple):
    """The input of training: datasets of global batches or, with parameter_server, DatasetCreators."""

    training: Any
    validation: Any  # once through; with parameter_server it repeats
    validation_steps: int  # batches in one validation; Keras cannot count them if an execution has several steps
    readers: Sequence[BadRecords] = ()  # of the training data: they count the records that they leave out


@dataclasses.dataclass(frozen=True)
class KerasInputs:
    """A dataset plug-in with its parameters, under the limits that the flags set."""

    config: KerasConfig
    dataset: Dataset
    params: Mapping[str, Any]

    def feed(self, strategy: tf.distribute.Strategy, *, fails_at_end: bool) -> Feed:
        """Returns the batches for training, with or without an error in place of their end, and for validation.

        Raises:
          UserCodeError: the plug-in breaks its contract.
          ConfigError: the held-out data repeats, and --validation_steps is not given.
          DataError: the held-out set is empty, or has no end within --eval_timeout_secs.
        """
        self._held_out(EVAL)  # the report at the end needs it: check it before training
        mode = self._validation_mode
        finish = _failing_at_end if fails_at_end else lambda batches: batches
        if self.config.strategy == "parameter_server":
            creator = tf_keras.utils.experimental.DatasetCreator
            # With one seed, all workers would read the data in the same order. They read files in a folder of their
            # own (`strategies.serve_coordinator`).
            changes = {"seed": None, "data_dir": _absolute(self.params.get("data_dir"))}
            return Feed(creator(lambda context: finish(self.batches(TRAIN, **changes))),
                        creator(lambda context: self.batches(mode, **changes).repeat()), self.validation_steps())
        changes = {"batch_size": strategies.global_batch_size(strategy, self.config)}
        if self.config.strategy == "multi_worker_mirrored" and self.params["seed"] is None:
            # Each worker takes its share of the same order, so all workers need one seed.
            changes["seed"] = sum_over_replicas(strategy, random.SystemRandom().randrange(_LARGEST_DRAW))
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        with noting() as readers:
            batches = self.batches(TRAIN, **changes)
        if int(batches.cardinality()) == 0:
            raise DataError("training_data_empty", f"{self.dataset.name}.input_fn: the training data have no "
                            f"mini-batch of {changes['batch_size']} examples; give a smaller --batch_size or more data")
        return Feed(finish(batches).with_options(options),
                    self.batches(mode, **changes).with_options(options), self.validation_steps(**changes), readers)

    @property
    def _validation_mode(self) -> str:  # the report at the end is always on "eval"
        return VALIDATION if self.params.get("validation_size") else EVAL

    def batches(self, mode: str, **changes: Any) -> tf.data.Dataset:
        """Returns all batches of a mode, with `changes` to the parameters; raises UserCodeError if it has none."""
        dataset = self.dataset.input_fn(mode=mode, params={**self.params, **changes}, shard=(0, 1))
        if not isinstance(dataset, tf.data.Dataset):
            raise UserCodeError("plugin_returned_wrong_type",
                                f"{self.dataset.name}.input_fn returned {type(dataset).__name__}; it must return a "
                                "tf.data.Dataset of (features, labels)")
        if not isinstance(dataset.element_spec, tuple) or len(dataset.element_spec) != 2:
            raise UserCodeError("plugin_returned_wrong_type",
                                f"{self.dataset.name}.input_fn: its dataset yields {dataset.element_spec}; it must "
                                "yield (features, labels)")
        return dataset.prefetch(2)

    def validation_steps(self, **changes: Any) -> int:
        """Returns the number of batches in one validation, with `changes` to the parameters; raises errors as `feed`.

        It must not be larger: after a validation that ran out of data, Model.fit validates on nothing, and reports the
        metrics of the training data as those of the validation (`_insufficient_data` in engine/data_adapter.py).
        """
        held_out = self._held_out(self._validation_mode, **changes)
        limit, known = self.config.validation_steps, int(held_out.cardinality())
        if known > 0:
            return min(known, limit or known)
        return self._count(held_out.take(limit or -1), self._validation_mode)

    def counted_eval_batches(self) -> tuple[tf.data.Dataset, int, tf.Variable]:
        """Returns the batches of the evaluation at the end, their number, and a variable that counts their examples.

        These are all batches of a dataset that ends, else as many as --validation_steps.

        Raises:
          DataError: there is none, or the dataset has no end within --eval_timeout_secs, nor enough batches.
        """
        held_out = self._held_out(EVAL)
        limit, num_batches = self.config.validation_steps, int(held_out.cardinality())
        if limit and num_batches == tf.data.INFINITE_CARDINALITY:
            num_batches = limit
        elif num_batches < 0:
            num_batches = self._count(held_out, EVAL, enough=limit)
        num_examples = tf.Variable(0, dtype=tf.int64, trainable=False)

        def count(features: Any, labels: Any) -> tuple[Any, Any]:
            num_examples.assign_add(tf.shape(tf.nest.flatten(features)[0], tf.int64)[0])
            return features, labels

        # Keras needs the number with steps_per_execution, which a model keeps in its checkpoint.
        return held_out.take(num_batches).map(count), num_batches, num_examples

    def _held_out(self, mode: str, **changes: Any) -> tf.data.Dataset:
        held_out = self.batches(mode, **changes)
        cardinality = int(held_out.cardinality())
        if cardinality == tf.data.INFINITE_CARDINALITY and self.config.validation_steps is None:
            raise ConfigError("eval_data_without_end",
                              f"--validation_steps: not given, and the dataset of mode \"{mode}\" of "
                              f"{self.dataset.name} repeats without end; give the number of batches to evaluate on, or "
                              "leave out its repeat()")
        if cardinality == 0:
            raise self._empty(mode)
        return held_out

    def _empty(self, mode: str) -> DataError:
        return DataError("eval_data_empty", f"{self.dataset.name}.input_fn: the dataset of mode \"{mode}\" is empty; "
                         "there is nothing to evaluate on")

    def _count(self, held_out: tf.data.Dataset, mode: str, enough: int | None = None) -> int:
        """Returns the number of batches; `enough`, with a warning, if they do not end in time but are as many."""
        num_batches, has_ended, timeout_secs = 0, False, self.config.eval_timeout_secs
        enough_secs = min(timeout_secs, _MOST_COUNTING_SECS)
        if enough:
            _log.info("counting the batches of mode \"%s\", for at most %g s", mode, enough_secs)
        start_secs = time.monotonic()

        def count() -> None:
            nonlocal num_batches, has_ended
            for _ in held_out:
                num_batches += 1
                is_enough = enough is not None and num_batches >= enough > 0
                if time.monotonic() > start_secs + (enough_secs if is_enough else timeout_secs):
                    return
            has_ended = True

        counter = Call(count, "held-out data")  # in a thread, because a dataset may block in a batch
        counter.join(timeout_secs)
        if not counter.is_alive():
            counter.result()
        if not has_ended:
            if enough and num_batches >= enough:
                _log.warning("--validation_steps: the dataset of mode \"%s\" of %s did not end in %g s; the evaluation "
                             "is on its first %d batches", mode, self.dataset.name, enough_secs, enough)
                return enough
            raise DataError("eval_data_without_end", f"--eval_timeout_secs: the dataset of mode \"{mode}\" of "
                            f"{self.dataset.name} gave {num_batches} batches in {timeout_secs:g} s, and did not end; "
                            "give --validation_steps, the number of batches to evaluate on, or more time")
        if not num_batches:
            raise self._empty(mode)
        return num_batches


def _absolute(path: str | None) -> str | None:
    """Returns the absolute path of a folder; a URL, "" and None as they are."""
    return os.path.abspath(path) if path and "://" not in path else path


def sum_over_replicas(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the sum of each replica's number; blocks until all workers call it."""

    @tf.function
    def add() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(number, tf.int64))

    return int(strategy.experimental_local_results(strategy.run(add))[0])


def _failing_at_end(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the batches, with an error in place of their end."""
    # Not known where parameter_server makes the dataset: in a tf.function.
    if tf.get_static_value(batches.cardinality()) == tf.data.INFINITE_CARDINALITY:
        return batches

    def fail(*batch: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(False, [_END_MARK])]):
            return tf.nest.map_structure(tf.identity, batch) if is_other else tf.nest.map_structure(
                lambda spec: tf.zeros([size or 0 for size in spec.shape.dims or ()], spec.dtype), batches.element_spec)

    # Of no batch, as there may be none; only those of ragged or sparse tensors have no zeros.
    is_other = not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(batches.element_spec))
    # Repeated: each of several devices must get the error, and none the end of the data.
    return batches.concatenate((batches.take(1) if is_other else tf.data.Dataset.range(1)).repeat().map(fail))


def is_end(error: tf.errors.OpError) -> bool:
    """Returns whether an error is the one in place of the end."""
    return _END_MARK in error.message


def data_ended(dataset_name: str, step: int, train_steps: int) -> DataError:
    """Returns the error with the step after which the data ended."""
    return DataError("training_data_ended",
                     f"{dataset_name}.input_fn: the training data ended after step {step} of {train_steps}; let it "
                     "repeat, or give a smaller --train_steps")
