"""The base: a model, a dataset and a training in one file. The other scripts differ from it in a few lines."""

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train


def model_fn(features, labels, mode, params):
    """Logistic regression."""
    weights = tf.get_variable("weights", [8], initializer=tf.zeros_initializer())
    logits = tf.linalg.matvec(features, weights)
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=tf.sigmoid(logits))
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.metrics.accuracy(labels, tf.cast(logits > 0, tf.float32))
    return ps_train.ModelSpec(loss=loss, eval_metric_ops={"accuracy": accuracy})


def input_fn(mode, params, shard):
    """Points, and on which side of a plane they are."""
    index, count = shard
    training = mode == ps_train.TRAIN
    points = np.random.default_rng(int(training)).normal(size=(2000, 8)).astype(np.float32)
    labels = (points.sum(axis=1) > 0).astype(np.float32)
    return ps_train.from_arrays((points[index::count], labels[index::count]), params["batch_size"],
                                shuffle=training, repeat=training)


if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/base", num_ps=1, num_workers=2, train_steps=100)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
