"""A Horovod script whose other rank reads the parameters before rank 0 has initialised them: before the broadcast."""

import pathlib
import sys
import time

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
begun = pathlib.Path(sys.argv[1])
weight = tf.get_variable("weight", [2], initializer=tf.constant_initializer(1.0))
train_op = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(
    tf.reduce_sum(weight), global_step=tf.train.get_or_create_global_step())
init, broadcast = tf.global_variables_initializer(), hvd.broadcast_global_variables(0)
with tf.Session() as sess:
    if hvd.rank() == 0:
        while not begun.exists():
            time.sleep(0.05)
        time.sleep(2.0)  # the other rank has read by now, or waits
    sess.run(init)
    if hvd.rank():
        begun.touch()
    print(f"rank {hvd.rank()} begins with the weight {sess.run(weight)[0]}")
    sess.run(broadcast)
    sess.run(train_op)
