"""A script whose workers wait for each other in their local_init_op, with a queue on the ps, as benchmarks do."""

import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Addresses of the ps")
flags.DEFINE_string("worker_hosts", "", "Addresses of the workers")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "Index in the job")
FLAGS = flags.FLAGS


def main(_):
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    is_chief, others = FLAGS.task_index == 0, range(1, len(worker_hosts))
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        train_op = tf.assign_add(step, 1)
    with tf.device("/job:ps/task:0"):
        came, go = [tf.FIFOQueue(len(worker_hosts), [tf.bool], [[]], shared_name=name) for name in ("came", "go")]
        if is_chief:
            with tf.control_dependencies([came.dequeue() for _ in others]):
                barrier = tf.group(*[go.enqueue(True) for _ in others])
        else:
            with tf.control_dependencies([came.enqueue(True)]):
                barrier = tf.group(go.dequeue())
    sv = tf.train.Supervisor(is_chief=is_chief, local_init_op=barrier, global_step=step, summary_op=None,
                             ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()))
    with sv.managed_session(server.target) as session:
        for _ in range(3):
            session.run(train_op)
    print("worker %d ends" % FLAGS.task_index)


if __name__ == "__main__":
    tf.app.run()
