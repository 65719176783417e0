"""Workers that do not communicate: what this machine can do if sending cost nothing, and so the limit for all others.

Each worker trains a model of its own on its share of the data, in a session of its own process: --steps_per_call steps
in one `tf.while_loop` per `session.run`, with the input in the graph. The accuracy is that of worker 0's model.
With --threads=1 an operation keeps to one core, which suits as many workers as cores; 0 is TensorFlow's default, all.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.harness import examples, options, plug_in
from data import pipeline
from ps_train import TRAIN, input_feed


def main() -> None:
    """Trains until the recording is complete, in worker 0; the others until they are ended."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    arguments = _parse()
    counts = np.memmap(arguments.counts, np.int64, "r+", shape=(arguments.num_workers,))
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=arguments.threads)) as session:
        train = _build(arguments)
        session.run(tf.global_variables_initializer())
        session.run(tf.get_collection("input_init_op"), input_feed(session.graph))
        parameters = {variable.op.name: variable for variable in tf.trainable_variables()}
        recorder = options.recorder(arguments) if arguments.task_index == 0 else None
        is_over = False
        while not is_over:
            session.run(train)
            counts[arguments.task_index] += arguments.steps_per_call
            if recorder is not None:
                is_over = recorder.note(int(counts.sum()), lambda: session.run(parameters))


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--num_workers", type=int, required=True)
    parser.add_argument("--counts", required=True, help="file of an int64 per worker, the mini-batches of each")
    parser.add_argument("--steps_per_call", type=int, default=20)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--model", default="models.mlp")
    parser.add_argument("--params", default="")
    return parser.parse_args()


def _build(arguments: argparse.Namespace) -> tf.Operation:
    """Returns the operation of `steps_per_call` steps."""
    shard = arguments.task_index, arguments.num_workers
    params = {"batch_size": arguments.batch_size, "seed": arguments.seed}
    dataset = pipeline.image_dataset(examples.load(arguments.data_dir), TRAIN, params, shard)
    iterator = tf.data.make_initializable_iterator(dataset.prefetch(2))
    tf.add_to_collection("input_init_op", iterator.initializer)
    model = plug_in.load(arguments.model, arguments.params, arguments.seed)
    optimizer = tf.train.AdamOptimizer(arguments.learning_rate)

    def step(number: tf.Tensor) -> tf.Tensor:
        loss = model.build(*iterator.get_next(), TRAIN).loss
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return number + 1

    return tf.while_loop(lambda number: number < arguments.steps_per_call, step, [tf.constant(0)],
                         parallel_iterations=1).op


if __name__ == "__main__":
    main()
