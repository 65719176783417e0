"""MultiWorkerMirroredStrategy: every worker has a copy, gradients are averaged by all-reduce.

With --steps_per_call=25 so many steps run in one `tf.function` call, which is how TensorFlow advises to use it.
"""

from __future__ import annotations

import argparse
import json
import os

import tensorflow as tf

from benchmarks.harness import eager, options


def main() -> None:
    """Trains until the recording is complete, in worker 0; the others until they are ended."""
    arguments = _parse()
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": arguments.worker_hosts.split(",")},
        "task": {"type": "worker", "index": arguments.task_index}})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    num_workers = strategy.num_replicas_in_sync
    if arguments.seed is not None:
        tf.random.set_seed(arguments.seed)
    with strategy.scope():
        model = eager.Mlp(arguments.learning_rate)
    shard = arguments.task_index, num_workers
    iterator = iter(strategy.distribute_datasets_from_function(
        lambda context: eager.batches(arguments.data_dir, shard, arguments.batch_size, arguments.seed)))

    @tf.function
    def train() -> None:
        for _ in tf.range(arguments.steps_per_call):
            strategy.run(model.step, args=next(iterator))

    recorder = options.recorder(arguments) if arguments.task_index == 0 else None
    batches, is_over = 0, False
    while not is_over:
        train()
        batches += arguments.steps_per_call * num_workers
        if recorder is not None:
            is_over = recorder.note(batches, model.copy_parameters)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--steps_per_call", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
