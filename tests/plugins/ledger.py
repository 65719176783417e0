"""A dataset of numbered lines, and a model that counts how often it was trained on each: two ledgers in one.

The parameters are the counts, which go back with a checkpoint as the training does. With `ledger`, each process also
writes the numbers of each step to a file in that folder when the step has succeeded. With `rows_per_line`, a table
counts, too, and beside it there is one with so many rows for each line, which takes long to save.
"""

import itertools
import os
import pathlib
import time

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from ps_train.parts.readers import file_texts
from ps_train.parts.tables.rules import Sgd

DEFAULT_PARAMS = {"files": "", "ledger": "", "batch_secs": 0.0, "slow_secs": 0.0, "range_bytes": 200, "dense": False,
                  "hold": "", "hold_batch": 0, "rows_per_line": 0}
NUM_LINES = 1000


def input_fn(mode, params, shard):
    """Yields the numbers of the lines, or of the rows of Parquet files, int64 [batch], twice.

    Each batch takes a while, and worker 1 may be slower.

    With `hold`, worker N makes the file HOLD.N.begun with its first batch. From that of the number `hold_batch` on, it
    waits as long as there is a file HOLD.N, and makes HOLD.N.reached.
    """
    batch_secs = (params["batch_secs"] + params["slow_secs"] * shard[0]) * (mode == ps_train.TRAIN)
    is_text = not params["files"].endswith(".parquet")
    ranges = ps_train.file_ranges(params["files"], shard, mode, range_bytes=params["range_bytes"], is_text=is_text)
    errors = file_texts.CarriedErrors()
    read = (lambda part: _read(part, errors)) if is_text else ps_train.ParquetReader(
        {"number": tf.int64}, lambda columns: columns["number"]).read
    batches = ps_train.range_batches(ranges, read, params["batch_size"])

    gate, num_begun = pathlib.Path(f"{params['hold']}.{shard[0]}"), itertools.count()

    def wait(numbers):
        time.sleep(batch_secs)
        if params["hold"]:
            gate.with_name(f"{gate.name}.begun").touch()
            is_held = next(num_begun) >= params["hold_batch"]
            while is_held and gate.exists():
                gate.with_name(f"{gate.name}.reached").touch()
                time.sleep(0.02)
        return numbers

    def slowly(numbers, *mark):
        if batch_secs:
            numbers = tf.ensure_shape(tf.numpy_function(wait, [numbers], tf.int64), [None])
        return ((numbers, numbers), *mark) if mark else (numbers, numbers)

    return batches.map(slowly)


def _read(file_range, errors):
    """Returns a range as one chunk, as a dataset of int64 [lines]."""
    return file_texts.texts(file_range, errors).map(lambda text, start: tf.strings.to_number(
        tf.strings.split([tf.strings.strip(text)], "\n").values, tf.int64))


def model_fn(features, labels, mode, params):
    """Counts with plain gradient descent at a rate of 1: the gradient of each number in a batch is -1."""
    counts = tf.get_variable("counts", [NUM_LINES], initializer=tf.zeros_initializer())
    of_batch = (tf.reduce_sum(tf.one_hot(features, NUM_LINES) * counts, 1) if params["dense"]
                else tf.gather(counts, features))  # by rows, no worker's update meets another's
    loss = -tf.reduce_sum(of_batch)
    if params["rows_per_line"]:
        loss += _count_in_tables(features, params["rows_per_line"])
    hooks = [_Ledger(features, params["ledger"])] if mode == ps_train.TRAIN and params["ledger"] else []
    return ps_train.ModelSpec(loss=loss, predictions=features, training_hooks=hooks,
                              eval_metric_ops={"largest": tf.metrics.mean(tf.cast(labels, tf.float32))})


def _count_in_tables(numbers, rows_per_line):
    """Returns a loss by which the row of each number in the table `counts` grows by 1."""
    # Made first, and so saved first: the rows of `counts` are those that a long save may put ahead of the rest.
    ballast = ps_train.embedding_table("ballast", 32, num_rows=NUM_LINES * rows_per_line, optimizer=Sgd(1.0))
    counts = ps_train.embedding_table("counts", 1, optimizer=Sgd(1.0), initial_limit=0.0)  # dynamic, unlike the other
    touched = numbers[:, tf.newaxis] * rows_per_line + tf.range(rows_per_line, dtype=tf.int64)
    return 0.0 * tf.reduce_sum(ballast.lookup(touched)) - tf.reduce_sum(counts.lookup(numbers))


class _Ledger(tf.train.SessionRunHook):
    """Writes the numbers of a batch after its step, a line for each, to a file of this process."""

    def __init__(self, numbers, folder):
        self._numbers = numbers
        self._file = os.open(os.path.join(folder, f"{os.getpid()}-{id(self)}"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._numbers)

    def after_run(self, run_context, run_values):
        os.write(self._file, "".join(f"{number}\n" for number in np.ravel(run_values.results)).encode())
