"""An Estimator under a tf.distribute strategy: a weight of a line, from 4 points; each worker reads its share."""

import json
import os
import signal

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("model_dir", "", "Folder of the checkpoints")
flags.DEFINE_string("strategy", "multi_worker", "multi_worker or mirrored")
flags.DEFINE_boolean("keras", False, "Whether the model is one of Keras")
flags.DEFINE_integer("max_steps", 5, "Global step at which training ends")
flags.DEFINE_boolean("ends", False, "Whether the input ends, after one batch of each worker and step")
flags.DEFINE_integer("die_at", 0, "Step at which a worker is killed, once")
flags.DEFINE_integer("dies", 1, "Index of the worker that dies")
FLAGS = flags.FLAGS


def input_fn(input_context=None):
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(1, 5, dtype=np.float32).reshape(4, 1))
    batch_size = 4
    if input_context:
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        batch_size = input_context.get_per_replica_batch_size(batch_size)
    return dataset.map(lambda x: (x, 3 * x)).repeat(FLAGS.max_steps if FLAGS.ends else None).batch(batch_size)


def model_fn(features, labels, mode):
    weight = tf.get_variable("weight", [1, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Death(tf.train.SessionRunHook):
    steps = 0

    def after_run(self, run_context, run_values):
        self.steps += 1
        index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        mark = "%s_died" % FLAGS.model_dir
        if self.steps == FLAGS.die_at and index == FLAGS.dies and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    make = {"multi_worker": tf.distribute.experimental.MultiWorkerMirroredStrategy,
            "mirrored": tf.distribute.MirroredStrategy}
    strategy = make[FLAGS.strategy]()
    config = tf.estimator.RunConfig(
        model_dir=FLAGS.model_dir, train_distribute=strategy, log_step_count_steps=1, save_checkpoints_steps=2)
    if FLAGS.keras:
        model = tf.keras.Sequential([
            tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,))])
        model.compile(tf.keras.optimizers.legacy.SGD(0.01), "mse")
        estimator = tf.keras.estimator.model_to_estimator(model, config=config)
    else:
        estimator = tf.estimator.Estimator(model_fn, config=config)
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=None if FLAGS.ends else FLAGS.max_steps, hooks=[Death()]),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0))
    print("%s %d ends, %d replicas" % (config.task_type, config.task_id, strategy.num_replicas_in_sync))


if __name__ == "__main__":
    tf.app.run()
