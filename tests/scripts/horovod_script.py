"""A Horovod script: a MonitoredTrainingSession or, with --plain, a Session that initialises and broadcasts.

A linear model, with a dense weight and a table of rows of which each worker has some, so that its updates can be
computed by hand. The plain one averages a value of all workers at its end.
"""

import argparse
import os
import time

import horovod.tensorflow as hvd
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="")
parser.add_argument("--train_steps", type=int, default=20)
parser.add_argument("--plain", action="store_true")
parser.add_argument("--gate", default="")
args = parser.parse_args()


def wait_at_gate(step):
    """Waits for a file at this worker's steps 10 and 20."""
    if args.gate and step in (10, 20):
        print("rank %d is at gate %d" % (hvd.rank(), step), flush=True)
        while not os.path.exists("%s%d" % (args.gate, step)):
            time.sleep(0.05)


def train_plain(train_op, loss, config):
    init = tf.global_variables_initializer()
    broadcast = hvd.broadcast_global_variables(0)
    with tf.Session(config=config) as sess:
        sess.run(init)
        sess.run(broadcast)
        for step in range(args.train_steps):
            _, value = sess.run([train_op, loss])
            wait_at_gate(step + 1)
        return value, sess.run(hvd.allreduce(tf.constant(float(hvd.rank()))))


def train_monitored(train_op, loss, config):
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=args.train_steps)]
    with tf.train.MonitoredTrainingSession(checkpoint_dir=args.model_dir if hvd.rank() == 0 else None, hooks=hooks,
                                           config=config, save_checkpoint_secs=1) as sess:
        step = 0
        while not sess.should_stop():
            _, value, global_step = sess.run([train_op, loss, tf.train.get_global_step()])
            step += 1
            if global_step % 10 == 0:
                print("rank %d at step %d" % (hvd.rank(), global_step), flush=True)
            wait_at_gate(step)
    return value, None


def main():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    weight = tf.get_variable("weight", [2], initializer=tf.constant_initializer(1.0))
    rows = tf.get_variable("rows", [3, 1], initializer=tf.zeros_initializer())
    table_loss = tf.reduce_sum(tf.gather(rows, [0, 1 + rank]))  # row 0 is everybody's, the others are of one rank
    loss = tf.reduce_sum((weight - float(rank)) ** 2) + table_loss
    opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.01 * size))
    train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    value, mean = (train_plain if args.plain else train_monitored)(train_op, loss, config)
    print("rank %d of %d (%d of %d here) ends: loss %.6f, mean of ranks %s" % (
        rank, size, hvd.local_rank(), hvd.local_size(), value, mean))


if __name__ == "__main__":
    main()
