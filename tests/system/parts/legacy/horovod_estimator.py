"""A Horovod script with an Estimator, which trains and evaluates in turn; only rank 0 has a folder.

The loss is (weight - rank) ** 2, so the updates can be computed by hand.
"""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--steps", type=int, default=10, help="of a round")
args = parser.parse_args()


def input_fn():
    return tf.data.Dataset.from_tensors({"rank": float(hvd.rank())}).repeat(100).batch(1)


def model_fn(features, labels, mode):
    weight = tf.get_variable("weight", [], initializer=tf.constant_initializer(1.0))
    loss = tf.reduce_sum((weight - features["rank"]) ** 2)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.01 * hvd.size()))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    hvd.init()
    estimator = tf.estimator.Estimator(model_fn, model_dir=args.model_dir if hvd.rank() == 0 else None)
    for number in range(args.rounds):
        estimator.train(input_fn, steps=args.steps, hooks=[hvd.BroadcastGlobalVariablesHook(0)])
        result = estimator.evaluate(input_fn, steps=1)
        weight = estimator.get_variable_value("weight") if hvd.rank() == 0 else 0.0
        print(f"rank {hvd.rank()}, round {number}: step {result['global_step']}, weight {weight:.6f}", flush=True)


if __name__ == "__main__":
    main()
