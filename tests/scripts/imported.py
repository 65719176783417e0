"""A script of one's own that imports ps_train's classes in place of TensorFlow's; plain Python runs it."""

import sys

import tensorflow.compat.v1 as tf

import ps_train

ps_hosts, worker_hosts, job_name, task_index, train_dir = sys.argv[1:]
tf.disable_v2_behavior()
cluster = tf.train.ClusterSpec({"ps": ps_hosts.split(","), "worker": worker_hosts.split(",")})
server = ps_train.Server(cluster, job_name=job_name, task_index=int(task_index))
if job_name == "ps":
    server.join()
    print("training is over")
    sys.exit()
is_chief = task_index == "0"
worker_device = f"/job:worker/task:{task_index}"
with tf.device(ps_train.replica_device_setter(cluster=cluster, worker_device=worker_device)):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    opt = ps_train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=2)
    train_op = opt.minimize(tf.square(weight - 3.0), global_step=step)
hooks = [opt.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=40)]
with ps_train.MonitoredTrainingSession(server.target, is_chief, checkpoint_dir=train_dir, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train_op)
print("worker", task_index, "ends")
