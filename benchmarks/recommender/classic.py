"""The classic loop on a recommender model, as people write it: `tf.nn.embedding_lookup` and a stock optimizer.

    ps       server.join()
    worker   mini-batch of tf.data --> session.run([train_op, loss])

With --tables=26 each field has a table of vectors and one of weights, as feature columns make them; with 1, all fields
share one of each.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.harness import options
from benchmarks.recommender import dataset, examples, network
from benchmarks.recommender.examples import NUM_FIELDS
from benchmarks.recommender.work import Work
from ps_train import TRAIN, input_feed

OPTIMIZERS = {"adagrad": tf.train.AdagradOptimizer, "adam": tf.train.AdamOptimizer}


def main() -> None:
    """Lives the life of one task."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    arguments = _parse()
    cluster = tf.train.ClusterSpec({"ps": arguments.ps_hosts.split(","), "worker": arguments.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=arguments.job_name, task_index=arguments.task_index)
    if arguments.job_name == "ps":
        server.join()
    _work(arguments, cluster, server)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--model", default="", help="not used")
    parser.add_argument("--params", required=True)
    parser.add_argument("--tables", type=int, choices=[1, NUM_FIELDS], default=1)
    parser.add_argument("--optimizer", default="adagrad", choices=OPTIMIZERS)
    parser.add_argument("--train_steps", type=int, default=10**9)
    parser.add_argument("--train_dir", required=True)
    return parser.parse_args()


def _work(arguments: argparse.Namespace, cluster: tf.train.ClusterSpec, server: tf.train.Server) -> None:
    work = Work.parse(arguments.params)
    worker_device = f"/job:worker/task:{arguments.task_index}"
    setter = tf.train.replica_device_setter(
        worker_device=f"{worker_device}/cpu:0", ps_device="/job:ps/cpu:0", cluster=cluster)
    with tf.device(setter):
        global_step = tf.train.create_global_step()
        iterator = _batches(arguments, cluster, f"{worker_device}/cpu:0")
        features, labels = iterator.get_next()
        rows = _rows(work, features["ids"], arguments.tables)
        dense = network.variables(work, lambda name, value: tf.get_variable(name, initializer=value))
        loss = network.loss_of(work, rows, features.get("numbers"), labels, dense)
        optimizer = OPTIMIZERS[arguments.optimizer](arguments.learning_rate)
        train_op = optimizer.minimize(loss, global_step=global_step)
        init_op = tf.global_variables_initializer()
    supervisor = tf.train.Supervisor(
        is_chief=arguments.task_index == 0, logdir=arguments.train_dir, init_op=init_op, recovery_wait_secs=1,
        global_step=global_step, summary_op=None, saver=None)
    config = tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", worker_device])
    session = supervisor.prepare_or_wait_for_session(server.target, config=config, start_standard_services=False)
    session.run(iterator.initializer, input_feed(tf.get_default_graph()))
    for _ in range(arguments.train_steps):
        session.run([train_op, loss])
    os._exit(0)  # closing a session whose peer has ended takes 30 s


def _batches(arguments: argparse.Namespace, cluster: tf.train.ClusterSpec, device: str) -> tf.data.Iterator:
    params = {**Work.parse(arguments.params).__dict__, "data_dir": arguments.data_dir,
              "batch_size": arguments.batch_size}
    with tf.device(device):
        batches = dataset.input_fn(TRAIN, params, (arguments.task_index, cluster.num_tasks("worker")))
        return tf.data.make_initializable_iterator(batches.prefetch(2))


def _rows(work: Work, ids: tf.Tensor, num_tables: int) -> tf.Tensor:
    """Returns the rows of all ids, float32 [batch, 26, width]: DeepFM's weights and vectors are in two tables."""
    if num_tables == 1:
        return tf.concat([tf.nn.embedding_lookup(table, ids) for table in _tables(work, "rows", work.num_ids)], axis=2)
    parts, sizes, offsets = [], examples.field_sizes(work.num_ids), examples.field_offsets(work.num_ids)
    for field, (size, offset) in enumerate(zip(sizes, offsets)):
        tables = _tables(work, f"rows_{field}", int(size))
        numbers = ids[:, field] - np.int64(offset)
        parts.append(tf.concat([tf.nn.embedding_lookup(table, numbers) for table in tables], axis=1))
    return tf.stack(parts, axis=1)


def _tables(work: Work, name: str, num_rows: int) -> list[tf.Variable]:
    widths = {"weights": 1, "vectors": work.dim} if work.layers else {"vectors": work.dim}
    return [tf.get_variable(f"{name}/{part}", [num_rows, width], initializer=tf.random_uniform_initializer(-0.01, 0.01))
            for part, width in widths.items()]


if __name__ == "__main__":
    main()
