"""A script around MonitoredTrainingSession, hooks and TF_CONFIG, async or sync, with the gate of supervised.py.

With --step_secs its steps take longer, so that an endless training leaves the cores free for others.
"""

import argparse
import json
import os
import time

import tensorflow as tf
from tensorflow.contrib import slim

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="")
parser.add_argument("--train_steps", type=int, default=60)
parser.add_argument("--sync", action="store_true")
parser.add_argument("--gate", default="")
parser.add_argument("--step_secs", type=float, default=0.0)
parser.add_argument("--fail_at", type=int, default=0)
parser.add_argument("--fail_update_at", type=int, default=1000000)
args = parser.parse_args()


class GateHook(tf.train.SessionRunHook):
    """Waits for a file at this worker's steps 20 and 40; fails where it is told to."""

    def __init__(self, name):
        self._name = name
        self._local_step = 0

    def after_run(self, run_context, run_values):
        time.sleep(args.step_secs)
        self._local_step += 1
        if args.gate and self._local_step in (20, 40):
            print(self._name, "is at gate", self._local_step, flush=True)
            while not os.path.exists("%s%d" % (args.gate, self._local_step)):
                time.sleep(0.05)
        if self._local_step == args.fail_at:
            raise ValueError("this batch is broken")


def model(step):
    """The batches of a step are the same whoever takes it."""
    seed = tf.stack([tf.cast(step, tf.int32), 7])
    features = tf.random.stateless_uniform([8, 4], seed=seed)
    labels = tf.reduce_sum(features, 1, keep_dims=True)
    hidden = slim.fully_connected(features, 8, scope="hidden")
    return tf.losses.mean_squared_error(labels, slim.fully_connected(hidden, 1, activation_fn=None, scope="out"))


def main():
    tf_config = json.loads(os.environ["TF_CONFIG"])
    job, index = tf_config["task"]["type"], tf_config["task"]["index"]
    cluster = tf.train.ClusterSpec(tf_config["cluster"])
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    is_chief = job in ("chief", "master") or (job == "worker" and index == 0 and "chief" not in cluster.jobs)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:%s/task:%d" % (job, index), cluster=cluster)):
        global_step = tf.contrib.framework.get_or_create_global_step()
        loss = model(global_step)
        with tf.control_dependencies([tf.assert_less(tf.cast(global_step, tf.int32), args.fail_update_at)]):
            opt = tf.train.AdamOptimizer(tf.identity(0.01))
        hooks = [tf.train.StopAtStepHook(last_step=args.train_steps), GateHook("%s %d" % (job, index))]
        if args.sync:
            num_workers = sum(cluster.num_tasks(name) for name in cluster.jobs if name in ("chief", "worker"))
            opt = tf.train.SyncReplicasOptimizer(opt, replicas_to_aggregate=num_workers)
            train_op = opt.minimize(loss, global_step=global_step)
            hooks.append(opt.make_session_run_hook(is_chief))
        else:
            train_op = opt.minimize(loss, global_step=global_step)
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief, checkpoint_dir=args.model_dir, hooks=hooks, save_checkpoint_secs=1) as sess:
        step = 0
        while not sess.should_stop():
            _, step = sess.run([train_op, global_step])
            if step % 10 == 0:
                print("%s %d at step %d" % (job, index, step), flush=True)
    print("%s %d ends at step %d" % (job, index, step))


if __name__ == "__main__":
    main()
