"""An Estimator with train_and_evaluate, under Kubeflow's TF_CONFIG."""

import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("model_dir", "", "Folder of the checkpoints")
flags.DEFINE_integer("max_steps", 60, "Global step at which training ends")
FLAGS = flags.FLAGS


def input_fn():
    features = tf.random_uniform([16, 4], seed=3)
    labels = tf.cast(tf.reduce_sum(features, 1) > 2.0, tf.int32)
    return {"x": features}, labels


def model_fn(features, labels, mode, params):
    logits = tf.layers.dense(features["x"], 2, name="logits")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = tf.train.AdagradOptimizer(params["rate"]).minimize(loss, global_step=tf.train.get_global_step())
    metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    config = tf.estimator.RunConfig(model_dir=FLAGS.model_dir, save_checkpoints_steps=20)
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"rate": 0.1})
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=FLAGS.max_steps),
        tf.estimator.EvalSpec(input_fn, steps=2, start_delay_secs=0, throttle_secs=1))
    print("%s %d ends" % (config.task_type, config.task_id))


if __name__ == "__main__":
    tf.app.run()
