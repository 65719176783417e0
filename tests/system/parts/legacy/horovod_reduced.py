"""A Horovod script that reduces each gradient itself, with more of them than TensorFlow has threads.

The loss is the sum of (weight - rank) ** 2 over all weights, which each rank has for itself.
"""

import horovod.tensorflow as hvd
import tensorflow as tf

NUM_WEIGHTS = 24


def main():
    hvd.init()
    weights = [tf.get_variable(f"weight_{number}", [], initializer=tf.constant_initializer(float(hvd.rank())))
               for number in range(NUM_WEIGHTS)]
    loss = tf.add_n([tf.square(weight - hvd.rank()) for weight in weights])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    pairs = [(hvd.allreduce(gradient), weight) for gradient, weight in optimizer.compute_gradients(loss)]
    train_op = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(5)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        while not sess.should_stop():
            *values, step, _ = sess.run([*weights, tf.train.get_global_step(), train_op])
            print(f"rank {hvd.rank()}: step {step}, {min(values):.6f} to {max(values):.6f}", flush=True)


if __name__ == "__main__":
    main()
