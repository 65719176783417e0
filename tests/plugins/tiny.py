"""A model and a dataset in one module, as a user might write them outside the repository."""

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"num_examples": 640, "fail_on_shard": -1}


def input_fn(mode, params, shard):
    """Yields features float32 [batch, 4] and labels float32 [batch] of a linear function."""
    index, count = shard
    if mode == ps_train.TRAIN and index == params["fail_on_shard"]:
        raise RuntimeError("a fault in the user's input_fn")
    features = np.random.default_rng(0).normal(size=(params["num_examples"], 4)).astype(np.float32)
    labels = features @ np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    training = mode == ps_train.TRAIN
    dataset = ps_train.from_arrays((features[index::count], labels[index::count]), params["batch_size"],
                                   shuffle=training, repeat=training, seed=params["seed"])
    return dataset.map(lambda features, labels: (features, labels))  # TensorFlow writes a temporary file for it


def model_fn(features, labels, mode, params):
    """Linear regression."""
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    predictions = tf.linalg.matvec(features, weights)
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions,
                              eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})
