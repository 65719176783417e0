"""A script around Supervisor, async or sync, as `dist_mnist.py` is one. It waits at a gate: a fault has its moment."""

import os
import time

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "localhost:2222", "Addresses of the ps")
flags.DEFINE_string("worker_hosts", "localhost:2223", "Addresses of the workers")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "Index in the job")
flags.DEFINE_string("log_dir", "", "Folder of the checkpoints")  # absl has a flag of that name
flags.DEFINE_integer("train_steps", 60, "Global step at which training ends")
flags.DEFINE_boolean("sync_replicas", False, "Whether the workers' gradients are averaged")
flags.DEFINE_string("gate", "", "File for which each worker waits at its step 20")
FLAGS = flags.FLAGS


def wait_at_gate(local_step):
    if FLAGS.gate and local_step == 20:
        print("worker %d is at the gate" % FLAGS.task_index)
        while not os.path.exists(FLAGS.gate):
            time.sleep(0.05)


def main(_):
    ps_spec, worker_spec = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        print("beyond join")

    is_chief = FLAGS.task_index == 0
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        features = tf.placeholder(tf.float32, [None, 3])
        labels = tf.placeholder(tf.float32, [None, 1])
        weights = tf.Variable(tf.zeros([3, 1]), name="weights")
        loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - labels))
        opt = tf.train.GradientDescentOptimizer(0.1)
        more = {}
        if FLAGS.sync_replicas:
            opt = tf.train.SyncReplicasOptimizer(
                opt, replicas_to_aggregate=len(worker_spec), total_num_replicas=len(worker_spec), name="mnist_sync")
        train_step = opt.minimize(loss, global_step=global_step)
        if FLAGS.sync_replicas:
            more["local_init_op"] = opt.chief_init_op if is_chief else opt.local_step_init_op
            more["ready_for_local_init_op"] = opt.ready_for_local_init_op
            queue_runner, tokens_op = opt.get_chief_queue_runner(), opt.get_init_tokens_op()
        init_op = tf.global_variables_initializer()

    sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.log_dir, init_op=init_op, recovery_wait_secs=1,
                             global_step=global_step, save_model_secs=1, **more)
    config = tf.ConfigProto(allow_soft_placement=True,
                            device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    sess = sv.prepare_or_wait_for_session(server.target, config=config)
    if FLAGS.sync_replicas and is_chief:
        sess.run(tokens_op)
        sv.start_queue_runners(sess, [queue_runner])

    random = np.random.RandomState(FLAGS.task_index)
    local_step, step = 0, 0
    while step < FLAGS.train_steps and not sv.should_stop():
        batch = random.rand(8, 3)
        _, step = sess.run([train_step, global_step],
                           {features: batch, labels: batch.dot([[1.0], [2.0], [3.0]])})
        local_step += 1
        wait_at_gate(local_step)
    if is_chief:
        sv.saver.save(sess, sv.save_path, global_step=global_step)
    print("worker %d ends at step %d" % (FLAGS.task_index, step))


if __name__ == "__main__":
    tf.app.run()
