"""An Experiment of tf.contrib.learn, with its own RunConfig and a model_fn in the old style."""

import argparse

import tensorflow as tf
from tensorflow.contrib.learn.python.learn import learn_runner

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir", default="")
args = parser.parse_args()


def input_fn():
    features = tf.random_uniform([16, 4], seed=3)
    return {"x": features}, tf.cast(tf.reduce_sum(features, 1) > 2.0, tf.int32)


def experiment_fn(run_config, hparams):
    columns = [tf.contrib.layers.real_valued_column("x", dimension=4)]
    classifier = tf.contrib.learn.DNNClassifier(
        feature_columns=columns, hidden_units=[8], n_classes=2, config=run_config)
    return tf.contrib.learn.Experiment(classifier, train_input_fn=input_fn, eval_input_fn=input_fn,
                                       train_steps=hparams.train_steps, eval_steps=2)


if __name__ == "__main__":
    learn_runner.run(experiment_fn, run_config=tf.contrib.learn.RunConfig(model_dir=args.job_dir),
                     hparams=tf.contrib.training.HParams(train_steps=40))
    print("the experiment ends")
