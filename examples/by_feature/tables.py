"""A table: the model looks up a row for each id, and a row comes into being when its id is first seen."""

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train


def model_fn(features, labels, mode, params):
    """The weight of each id is a row of a table, of one number."""
    weights = ps_train.embedding_table("weights", 1).lookup(features, "ids")
    logits = tf.reduce_sum(weights, axis=[1, 2])
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.metrics.accuracy(labels, tf.cast(logits > 0, tf.float32))
    return ps_train.ModelSpec(loss=loss, eval_metric_ops={"accuracy": accuracy})


def input_fn(mode, params, shard):
    """Three ids, each of which is good if it is even."""
    index, count = shard
    training = mode == ps_train.TRAIN
    ids = np.random.default_rng(int(training)).integers(0, 100, size=(2000, 3))
    labels = ((ids % 2 == 0).sum(axis=1) > 1).astype(np.float32)
    return ps_train.from_arrays((ids[index::count] + 2**40, labels[index::count]), params["batch_size"],
                                shuffle=training, repeat=training)


if __name__ == "__main__":
    training = ps_train.Training("tables", "tables", train_dir="runs/tables", num_ps=2, num_workers=1, train_steps=100,
                                 embedding_learning_rate=0.1)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
