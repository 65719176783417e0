"""A Horovod script that reduces each gradient itself, with more of them than TensorFlow has threads.

The loss is the sum of (weight - rank) ** 2 over all weights, which each rank has for itself. With --early, it opens a
plain session before it builds the model.
"""

import sys

import horovod.tensorflow as hvd
import tensorflow as tf

NUM_WEIGHTS = 24


def build():
    weights = [tf.get_variable(f"weight_{number}", [], initializer=tf.constant_initializer(float(hvd.rank())))
               for number in range(NUM_WEIGHTS)]
    loss = tf.add_n([tf.square(weight - hvd.rank()) for weight in weights])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    pairs = [(hvd.allreduce(gradient), weight) for gradient, weight in optimizer.compute_gradients(loss)]
    return [*weights, optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())]


def take_step(sess, fetches):
    *values, _, step = sess.run([*fetches, tf.train.get_global_step()])
    print(f"rank {hvd.rank()}: step {step}, {min(values):.6f} to {max(values):.6f}", flush=True)


def main():
    hvd.init()
    if "--early" in sys.argv:
        sess = tf.Session()
        # As with Horovod, it has the devices of this process only.
        assert not [device.name for device in sess.list_devices() if "job:ps" in device.name], sess.list_devices()
        fetches = build()
        sess.run(tf.global_variables_initializer())
        sess.run(hvd.broadcast_global_variables(0))
        for _ in range(5):
            take_step(sess, fetches)
        return
    fetches = build()
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(5)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        while not sess.should_stop():
            take_step(sess, fetches)


if __name__ == "__main__":
    main()
