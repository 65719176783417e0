"""TensorFlow 2's ParameterServerStrategy: a coordinator sends closures to the workers, the parameters are on a ps.

    chief        schedules closures, and records
    ps, worker   servers, which never end

With --steps_per_call=25 a closure has so many steps.
"""

from __future__ import annotations

import argparse
import os
import threading
import time

import tensorflow as tf

from benchmarks.harness import eager, options

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
    parser.add_argument("--steps_per_call", type=int, default=1)
    return parser.parse_args()


def _coordinate(arguments: argparse.Namespace, cluster: tf.train.ClusterSpec) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = eager.Mlp(arguments.learning_rate)
        steps = tf.Variable(0, dtype=tf.int64)

    def make_batches() -> tf.data.Dataset:
        return eager.batches(arguments.data_dir, (0, 1), arguments.batch_size, arguments.seed)

    iterator = iter(coordinator.create_per_worker_dataset(make_batches))

    @tf.function
    def train(batches) -> None:
        for _ in tf.range(arguments.steps_per_call):
            strategy.run(model.step, args=next(batches))
            steps.assign_add(1)

    threading.Thread(target=_record, args=(arguments, model, steps), daemon=True).start()
    while True:
        coordinator.schedule(train, args=(iterator,))  # waits while the queue is full


def _record(arguments: argparse.Namespace, model: eager.Mlp, steps: tf.Variable) -> None:
    """Looks at the parameters on the ps while the workers train, and ends the process when that is enough."""
    while not int(steps.numpy()):
        time.sleep(_POLL_SECS)
    recorder = options.recorder(arguments)
    while not recorder.note(int(steps.numpy()), model.copy_parameters):
        time.sleep(recorder.pause_secs())
    os._exit(0)


if __name__ == "__main__":
    main()
