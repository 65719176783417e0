"""A model whose parameters, ps and workers record each update; tests/history.py reads and checks it.

    mini-batch   its number, drawn from one file of the training: no other mini-batch ever has it
    worker       the file of its process has "session", "run", "begin NUMBER" and, if the run succeeds, "done STEP"
    each ps      its file has a line for each update of a table, written in the critical section of that table
    parameters   `counts_0` and `counts_1` of the number grow by 1, or by the share of an averaged update; so do its
                 two rows of the tables `fixed` and `dynamic`, of which the fixed one has one on each ps

The rows of a number are (count, count * number). Train it with --optimizer=sgd and a rate of 1.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from ps_train.coordination import variables
from ps_train.parts.tables.rules import Sgd

CAPACITY = 16384  # mini-batches of a training
_DRAWN_BYTES = 4  # in the file of drawn numbers, of the worker's number and a line break
SHOWN = 4  # workers and ps whose variables of the blackboard a line has
DEFAULT_PARAMS = {"history": "", "batch_secs": 0.02}


def input_fn(mode, params, shard):
    """The numbers of mini-batches, int64 [1], as features and as labels; in evaluation a single 0."""
    if mode != ps_train.TRAIN:
        return tf.data.Dataset.from_tensors(([0], [0])).map(lambda *pair: tuple(tf.cast(one, tf.int64) for one in pair))

    def draw():
        time.sleep(params["batch_secs"])
        return np.array([_draw_number(os.path.join(params["history"], "drawn"), shard[0])])

    @tf.autograph.experimental.do_not_convert
    def numbered(_):
        number = tf.ensure_shape(tf.numpy_function(draw, [], tf.int64), [1])
        return number, number

    return tf.data.Dataset.from_tensors(0).repeat().map(numbered)


def _draw_number(path, worker):
    """Returns the next number, and notes in the file at its place who has drawn it."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = file.seek(0, os.SEEK_END) // _DRAWN_BYTES  # others may have drawn since it was opened
        file.write(b"%3d\n" % worker)
    if number >= CAPACITY:
        raise ValueError(f"all {CAPACITY} numbers of mini-batches are drawn")
    return number


def model_fn(features, labels, mode, params, config):
    """The loss has the gradient -1 at each count of the numbers, and -number beside it in the rows."""
    is_training = mode == ps_train.TRAIN
    worker_file = os.path.join(params["history"], f"worker-{config.task_id}-{os.getpid()}")
    begun = _begun(features, worker_file) if is_training else features
    loss = -tf.add_n([tf.reduce_sum(tf.one_hot(begun, CAPACITY) * tf.get_variable(
        f"counts_{index}", [CAPACITY], initializer=tf.zeros_initializer())) for index in range(2)])
    # Of the mini-batch itself: local steps build the model once more to find the ids, and take no step there.
    ids = features[:, tf.newaxis] * 2 + tf.range(2, dtype=tf.int64)
    for name, num_rows in (("fixed", 2 * CAPACITY), ("dynamic", None)):
        table = ps_train.embedding_table(name, 2, num_rows, initial_limit=0.0,
                                         optimizer=RecordedSgd(1.0, folder=params["history"], table=name))
        weights = tf.stack([tf.ones_like(features), features], 1)[:, tf.newaxis]
        loss -= tf.reduce_sum(table.lookup(ids) * tf.cast(weights, tf.float32))
    hooks = [_Recorder(worker_file)] if is_training else []
    return ps_train.ModelSpec(loss=loss, training_hooks=hooks,
                              eval_metric_ops={"accuracy": tf.metrics.mean(tf.ones_like(labels, tf.float32))})


def _begun(numbers, path):
    """Returns the numbers, once the worker's file has them."""
    with tf.control_dependencies([_append(tf.strings.join(["begin ", _text(numbers)]), path)]):
        return tf.identity(numbers)


def _append(line, path):
    """Returns the operation that appends a line to a file on the device of the operation."""
    return tf.raw_ops.PrintV2(input=line, output_stream=f"file://{path}", end="\n")


def _text(values):
    """Returns a tensor [n] as a string scalar, with blanks between the numbers."""
    return tf.strings.reduce_join(tf.strings.as_string(values), separator=" ")


@dataclasses.dataclass(frozen=True)
class RecordedSgd(Sgd):
    """Gradient descent that appends a line to a file of the ps before it writes rows.

        TABLE|count number*count ...|step|prepared|clock|claims|joined|finished|heartbeats|step counts

    Only the lines of ps 0 have what follows the rows: the global step before the update, and variables of the
    blackboard.

    Attributes:
      folder: of the files.
      table: the name of the table.
    """

    folder: str = ""
    table: str = ""

    def update(self, rows, gradients, number):
        """Returns the new rows; local steps call it on the worker, too."""
        return self.settle(super().update(rows, gradients, number))

    def settle(self, rows):
        """Returns the rows, once they are in the file of this ps."""
        device = tf.DeviceSpec.from_string(tf.no_op().device)
        if device.job != "ps":
            return rows
        fields = [tf.constant(self.table), _text(tf.cast(tf.reshape(rows, [-1]), tf.int64))]
        if device.task == 0:
            fields += [_text(tf.reshape(tf.train.get_global_step().read_value(), [1])),
                       *map(_of_board, ("prepared", "clock", "claims", "joined", "finished", "heartbeats",
                                        "step_counts"))]
        path = os.path.join(self.folder, f"ps-{device.task}")
        with tf.control_dependencies([rows, _append(tf.strings.join(fields, "|"), path)]):
            return tf.identity(rows)


def _of_board(name):
    return _text(tf.reshape(variables.read(name), [-1])[:SHOWN])


class _Recorder(tf.train.StopAtStepHook):
    """Notes the sessions and session runs of this process in its file; a StopAtStepHook may be in local steps, too."""

    def __init__(self, path):
        super().__init__(last_step=2**40)  # not used
        self._path = path

    def begin(self):
        """Needs nothing of the graph."""

    def after_create_session(self, session, coord):
        """Notes a session."""
        self._note("session")

    def before_run(self, run_context):
        """Notes a session run, and asks for the progress that the loop fetches."""
        self._note("run")
        return tf.train.SessionRunArgs(run_context.original_args.fetches[0])

    def after_run(self, run_context, run_values):
        """Notes its end, with the global step after it."""
        self._note(f"done {run_values.results[-1][0]}")

    def _note(self, line):
        with open(self._path, "a", encoding="ascii") as file:
            file.write(f"{line}\n")
