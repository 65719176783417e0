"""TensorFlow 2's ParameterServerStrategy on a recommender model: see benchmarks/parameter_server_strategy.py."""

from __future__ import annotations

import argparse
import os
import threading
import time

import tensorflow as tf

from benchmarks.harness import options
from benchmarks.recommender import dataset, network
from benchmarks.recommender.work import Work

_POLL_SECS = 0.01


def main() -> None:
    """Lives the life of one task."""
    arguments = _parse()
    cluster = tf.train.ClusterSpec({
        "ps": arguments.ps_hosts.split(","), "worker": arguments.worker_hosts.split(","),
        "chief": [arguments.chief_host]})
    if arguments.job_name == "chief":
        _coordinate(arguments, cluster)
    else:
        tf.distribute.Server(cluster, job_name=arguments.job_name, task_index=arguments.task_index).join()


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--chief_host", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker", "chief"])
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--params", required=True)
    parser.add_argument("--steps_per_call", type=int, default=1)
    return parser.parse_args()


class _Model:
    """The variables, made in the strategy's scope, and a step on them."""

    def __init__(self, work: Work, learning_rate: float) -> None:
        self._work = work
        # Functions, so that the ps computes the values: 640 MB do not have to travel.
        self._vectors = tf.Variable(lambda: tf.random.uniform([work.num_ids, work.dim], -0.01, 0.01))
        self._weights = tf.Variable(lambda: tf.zeros([work.num_ids, 1]))
        self._dense = network.variables(work, lambda _, value: tf.Variable(value))
        self._optimizer = tf.compat.v1.train.AdagradOptimizer(learning_rate)

    def step(self, features: dict, labels: tf.Tensor) -> None:
        """Applies the gradient of one mini-batch of this replica."""
        with tf.GradientTape() as tape:
            tables = (self._weights, self._vectors)
            rows = tf.concat([tf.nn.embedding_lookup(table, features["ids"]) for table in tables], axis=2)
            loss = network.loss_of(self._work, rows, features["numbers"], labels, self._dense)
        variables = [self._vectors, self._weights, *self._dense.values()]
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def _coordinate(arguments: argparse.Namespace, cluster: tf.train.ClusterSpec) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = _Model(Work.parse(arguments.params), arguments.learning_rate)
        steps = tf.Variable(0, dtype=tf.int64)

    def make_batches() -> tf.data.Dataset:
        return dataset.batches_of(arguments.data_dir, arguments.batch_size, (0, 1)).prefetch(2)

    iterator = iter(coordinator.create_per_worker_dataset(make_batches))

    @tf.function
    def train(batches) -> None:
        for _ in tf.range(arguments.steps_per_call):
            strategy.run(model.step, args=next(batches))
            steps.assign_add(1)

    threading.Thread(target=_record, args=(arguments, steps), daemon=True).start()
    while True:
        coordinator.schedule(train, args=(iterator,))  # waits while the queue is full


def _record(arguments: argparse.Namespace, steps: tf.Variable) -> None:
    """Counts while the workers train, and ends the process when that is enough."""
    while not int(steps.numpy()):
        time.sleep(_POLL_SECS)
    recorder = options.recorder(arguments)
    while not recorder.note(int(steps.numpy()), dict):
        time.sleep(recorder.pause_secs())
    os._exit(0)


if __name__ == "__main__":
    main()
