"""The classic loop: asynchronous training as `dist_mnist.py` did it, written anew on `tf.compat.v1`.

    ps       server.join()
    worker   batch of numpy arrays --feed_dict--> session.run([train_op, global_step]) --> a printed line, each step

The model is a plug-in, so that the very same one trains here and in ps_train. Like the classic script, a ps never ends.
"""

from __future__ import annotations

import argparse
import os
import time

import tensorflow.compat.v1 as tf

from benchmarks.harness import examples, options, plug_in
from data import pipeline
from data.data_set import DataSet
from ps_train import TRAIN

OPTIMIZERS = {"adam": tf.train.AdamOptimizer, "sgd": tf.train.GradientDescentOptimizer}


def main() -> None:
    """Lives the life of one task."""
    tf.disable_v2_behavior()
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
    parser.add_argument("--model", default="models.mlp")
    parser.add_argument("--params", default="")
    parser.add_argument("--optimizer", default="adam", choices=OPTIMIZERS)
    parser.add_argument("--train_steps", type=int, default=10**9)
    parser.add_argument("--train_dir", required=True)
    parser.add_argument("--save_secs", type=int, default=600, help="between checkpoints")
    parser.add_argument("--pause_secs", type=float, default=0.0, help="after each step, which makes steps longer")
    return parser.parse_args()


def _work(arguments: argparse.Namespace, cluster: tf.train.ClusterSpec, server: tf.train.Server) -> None:
    is_chief = arguments.task_index == 0
    seed = pipeline.shard_seed(arguments.seed, arguments.task_index)
    tf.set_random_seed(seed)
    train = examples.load(arguments.data_dir).train
    data = DataSet(*train, reshape=False, seed=seed)
    worker_device = f"/job:worker/task:{arguments.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=f"{worker_device}/cpu:0", ps_device="/job:ps/cpu:0",
                                                  cluster=cluster)):
        global_step = tf.train.create_global_step()
        images = tf.placeholder(tf.float32, [None, train.images.shape[1]])
        labels = tf.placeholder(tf.int32, [None])
        model = plug_in.load(arguments.model, arguments.params, arguments.seed)
        loss = model.build(images, labels, TRAIN).loss
        optimizer = OPTIMIZERS[arguments.optimizer](arguments.learning_rate)
        train_op = optimizer.minimize(loss, global_step=global_step)
        init_op = tf.global_variables_initializer()
    supervisor = tf.train.Supervisor(
        is_chief=is_chief, logdir=arguments.train_dir, init_op=init_op, recovery_wait_secs=1, global_step=global_step,
        save_model_secs=arguments.save_secs,
        summary_op=None)  # else it would run the model's summaries, which need a batch
    config = tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", worker_device])
    session = supervisor.prepare_or_wait_for_session(server.target, config=config)
    print(f"Worker {arguments.task_index}: Session initialization complete.")
    local_step = step = 0
    while step < arguments.train_steps:
        batch_images, batch_labels = data.next_batch(arguments.batch_size)
        _, step = session.run([train_op, global_step], feed_dict={images: batch_images, labels: batch_labels})
        local_step += 1
        print(f"{time.time():f}: Worker {arguments.task_index}: training step {local_step} done (global step: {step})")
        time.sleep(arguments.pause_secs)
    if is_chief:
        supervisor.saver.save(session, os.path.join(arguments.train_dir, "model.ckpt"), global_step=step)
    os._exit(0)  # closing a session whose peer has ended takes 30 s


if __name__ == "__main__":
    main()
