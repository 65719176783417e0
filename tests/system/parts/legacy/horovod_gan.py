"""A Horovod script with two training steps in one graph, as of a GAN, each with a learning rate that is fed.

The losses are (weight - rank) ** 2 and (critic + weight - rank) ** 2, so the updates can be computed by hand.
"""

import horovod.tensorflow as hvd
import tensorflow as tf

RATES = (0.05, 0.1, 0.2)


def minimize(loss, rate, variables, optimizer_class, step=None):
    optimizer = hvd.DistributedOptimizer(optimizer_class(rate))
    return optimizer.minimize(loss, var_list=variables, global_step=step)


def main():
    hvd.init()
    rate = tf.placeholder(tf.float32, [])
    weight = tf.get_variable("weight", [], initializer=tf.constant_initializer(1.0))
    critic = tf.get_variable("critic", [2], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    generate = minimize(tf.square(weight - hvd.rank()), rate, [weight], tf.train.GradientDescentOptimizer, step)
    judge = minimize(tf.reduce_sum(tf.square(critic + tf.stop_gradient(weight) - hvd.rank())), 2 * rate, [critic],
                     tf.train.GradientDescentOptimizer)
    with tf.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as sess:
        for number in RATES:
            sess.run(judge, {rate: number})
            sess.run(generate, {rate: number})
        last_weight, (first, second), last_step = sess.run([weight, critic, step])
    print(f"rank {hvd.rank()} ends: weight {last_weight:.6f}, critic {first:.6f} {second:.6f}, step {last_step}")


if __name__ == "__main__":
    main()
