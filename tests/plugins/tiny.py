"""A model and a dataset in one module, as a user might write them outside the repository."""

import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"num_examples": 640, "repeat": True, "num_batches": -1, "gate": "", "gate_batch": 0,
                  "gate_poll_secs": 0.02, "eval_gate": "", "num_parts": 1, "batch_secs": 0.0}
FAULT = os.environ.get("TINY_FAULT", "")  # of one task's code only: input_fn, model_fn, or step


def input_fn(mode, params, shard):
    """Yields features float32 [batch, 4] and labels float32 [batch] of a linear function."""
    index, count = shard
    if mode == ps_train.TRAIN and FAULT == "input_fn":
        raise RuntimeError("a fault in the user's input_fn")
    features = np.random.default_rng(0).normal(size=(params["num_examples"], 4)).astype(np.float32)
    labels = features @ np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    training = mode == ps_train.TRAIN
    dataset = ps_train.from_arrays((features[index::count], labels[index::count]), params["batch_size"],
                                   shuffle=training, repeat=training and params["repeat"], seed=params["seed"])
    if training:
        dataset = dataset.take(params["num_batches"])  # -1 takes all
    name = os.environ.get("TINY_GATE", index)  # in an elastic cluster every worker has the shard 0 of 1
    waits = []
    if params["gate" if training else "eval_gate"]:
        at = (f"{params['gate']}.{name}", params["gate_batch"]) if training else (params["eval_gate"], 0)
        waits.append(Gate(*at, params["gate_poll_secs"]))
    if training and params["batch_secs"]:  # at most one batch in this time, so that endless training leaves cores free
        waits.append(lambda: time.sleep(params["batch_secs"]))

    def wait(features):
        for each in waits:
            each()
        return features

    @tf.autograph.experimental.do_not_convert  # which takes a fifth of the CPU time that a worker needs for its graph
    def held(features, labels):
        return tf.ensure_shape(tf.numpy_function(wait, [features], tf.float32), [None, 4]), labels

    return dataset.map(held) if waits else dataset


class Gate:
    """Lets so many batches of this worker through, and the others when a file is there: pins a moment of training."""

    def __init__(self, path, num_batches, poll_secs):
        self.path, self.left, self.poll_secs = path, num_batches, poll_secs

    def __call__(self):
        self.left -= 1
        while self.left < 0 and not os.path.exists(self.path):
            time.sleep(self.poll_secs)
        if self.left < 0 and FAULT == "step":
            raise RuntimeError("a fault in the user's data, in the middle of training")


def model_fn(features, labels, mode, params):
    """Linear regression."""
    if FAULT == "model_fn":
        raise RuntimeError("a fault in the user's model_fn")
    parts = [tf.get_variable(f"weights_{number}" if number else "weights", [4], initializer=tf.zeros_initializer())
             for number in range(params["num_parts"])]
    weights = tf.add_n(parts) if len(parts) > 1 else parts[0]
    predictions = tf.linalg.matvec(features, weights)
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions,
                              eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})
