"""Workers that do not communicate, on a recommender model: what this machine can do if sending cost nothing.

Each trains a model of its own: unique ids, a row with its Adagrad sums beside it in the memory of its own process, all
dense parameters in one variable.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.harness import options
from benchmarks.recommender import dataset, network
from benchmarks.recommender.work import Work
from ps_train import input_feed

_FIRST_SUM = 0.1  # as in TensorFlow's Adagrad


def main() -> None:
    """Trains until the recording is complete, in worker 0; the others until they are ended."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    arguments = _parse()
    counts = np.memmap(arguments.counts, np.int64, "r+", shape=(arguments.num_workers,))
    with tf.Session() as session:
        train_op = _build(arguments)
        session.run(tf.global_variables_initializer())
        session.run(tf.get_collection("input_init_op"), input_feed(session.graph))
        step = session.make_callable(train_op)
        recorder = options.recorder(arguments) if arguments.task_index == 0 else None
        is_over = False
        while not is_over:
            step()
            counts[arguments.task_index] += 1
            if recorder is not None:
                is_over = recorder.note(int(counts.sum()), dict)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--num_workers", type=int, required=True)
    parser.add_argument("--counts", required=True, help="file of an int64 per worker, the mini-batches of each")
    parser.add_argument("--params", required=True)
    return parser.parse_args()


def _build(arguments: argparse.Namespace) -> tf.Operation:
    work = Work.parse(arguments.params)
    batches = dataset.batches_of(
        arguments.data_dir, arguments.batch_size, (arguments.task_index, arguments.num_workers))
    iterator = tf.data.make_initializable_iterator(batches.prefetch(2))
    tf.add_to_collection("input_init_op", iterator.initializer)
    features, labels = iterator.get_next()
    # The system gives zeros when memory is first touched, so the table costs nothing until then.
    table = tf.get_variable("rows", initializer=lambda: tf.raw_ops.Empty(
        shape=[work.num_ids, 2 * work.width], dtype=tf.float32, init=False))
    flat = np.concatenate([value.ravel() for value in network.first_values(work).values()])
    parameters, sums = tf.get_variable("dense", initializer=flat), tf.get_variable("sums", initializer=0 * flat)
    unique, places = tf.unique(tf.reshape(features["ids"], [-1]))
    values, row_sums = tf.split(tf.gather(table, unique), 2, axis=1)
    dense_values = tf.identity(parameters)
    rows = tf.reshape(tf.gather(values, places), [*features["ids"].shape, work.width])
    loss = network.loss_of(work, rows, features["numbers"], labels, _cut(work, dense_values))
    gradient, dense_gradient = map(tf.convert_to_tensor, tf.gradients(loss, [values, dense_values]))
    change, row_sums = _adagrad(gradient, row_sums, arguments.learning_rate)
    dense_change, new_sums = _adagrad(dense_gradient, sums.read_value(), arguments.learning_rate)
    return tf.group(
        tf.raw_ops.ResourceScatterUpdate(
            resource=table.handle, indices=unique, updates=tf.concat([values + change, row_sums], 1)),
        parameters.assign_add(dense_change, read_value=False), sums.assign(new_sums, read_value=False))


def _adagrad(gradient: tf.Tensor, sums: tf.Tensor, learning_rate: float) -> tuple[tf.Tensor, tf.Tensor]:
    sums = sums + gradient * gradient
    return -learning_rate * gradient * tf.math.rsqrt(sums + _FIRST_SUM), sums


def _cut(work: Work, flat: tf.Tensor) -> dict[str, tf.Tensor]:
    first = network.first_values(work)
    parts = tf.split(flat, [value.size for value in first.values()])
    return {name: tf.reshape(part, value.shape) for (name, value), part in zip(first.items(), parts)}


if __name__ == "__main__":
    main()
