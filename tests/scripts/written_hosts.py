"""A script with its hosts written in, an input queue, positional arguments, and the names of TensorFlow 0.x."""

import sys

import tensorflow as tf

job_name, task_index, model_dir = sys.argv[1], int(sys.argv[2]), sys.argv[3]
cluster = tf.train.ClusterSpec({"ps": ["127.0.0.1:4321"], "worker": ["127.0.0.1:4322", "127.0.0.1:4323"]})
server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
if job_name == "ps":
    server.join()
else:
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % task_index, cluster=cluster)):
        global_step = tf.get_variable("global_step", [], tf.int32, tf.constant_initializer(0), trainable=False)
        value, = tf.train.slice_input_producer([[1.0, 2.0, 3.0, 4.0]], num_epochs=20)
        batch, = tf.train.batch([value], 4),
        weight = tf.Variable(0.0, name="weight")
        loss = tf.reduce_mean(tf.square(tf.sub(tf.mul(weight, batch), 2.0 * batch)))
        train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
        tf.scalar_summary("loss", loss)
        init_op = tf.initialize_all_variables()
    sv = tf.train.Supervisor(is_chief=task_index == 0, logdir=model_dir, init_op=init_op, global_step=global_step,
                             summary_op=tf.merge_all_summaries(), local_init_op=tf.initialize_local_variables())
    steps = 0
    with sv.managed_session("grpc://127.0.0.1:%d" % (4322 + task_index)) as sess:
        while not sv.should_stop():
            try:
                sess.run(train_op)
                steps += 1
            except tf.errors.OutOfRangeError:
                break
        print("worker %d took %d steps" % (task_index, steps))
