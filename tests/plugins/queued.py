"""A dataset whose input comes from TensorFlow 1's queues: files, a reader, records, batches."""

import os

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"csv": "", "num_epochs": 0, "bad_record": False}


def prepare(params):
    """Writes the file of records, a line each: four features and a label."""
    features = np.random.default_rng(0).normal(size=(320, 4))
    rows = np.c_[features, features @ [1.0, -2.0, 3.0, 0.5]]
    lines = [",".join(f"{value:.6f}" for value in row) for row in rows]
    if params["bad_record"]:
        lines[200] = "1,2,three,4,5"
    part = f"{params['csv']}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(part, params["csv"])


def input_fn(mode, params, shard):
    """Returns features float32 [batch, 4] and labels float32 [batch]; each worker reads all."""
    training = mode == ps_train.TRAIN
    epochs = (params["num_epochs"] or None) if training else 1
    names = tf.train.string_input_producer([params["csv"]], num_epochs=epochs)
    _, line = tf.TextLineReader().read(names)
    *features, label = tf.decode_csv(line, [[0.0]] * 5)
    return tf.train.batch([tf.stack(features), label], params["batch_size"], allow_smaller_final_batch=True)


def model_fn(features, labels, mode, params):
    """Linear regression."""
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    predictions = tf.linalg.matvec(features, weights)
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions)
