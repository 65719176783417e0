"""A table whose rows are the predictions, and a slow stream of ids that come and go: what is served can be compared."""

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from tests.plugins import slow

DEFAULT_PARAMS = {"ttl_steps": 0, "num_ids": 300, "batch_secs": 0.05}
DIM = 4


def model_fn(features, labels, mode, params):
    """The row of an id, and a dense offset that changes with each step."""
    table = ps_train.embedding_table("rows", DIM, ttl_steps=params["ttl_steps"] or None)
    offset = tf.get_variable("offset", [DIM], initializer=tf.zeros_initializer())
    rows = table.lookup(features["id"])
    predictions = {"rows": rows, "offset": tf.tile(offset[tf.newaxis], [tf.shape(features["id"])[0], 1])}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    loss = tf.reduce_mean(tf.square(rows + offset - labels))
    return ps_train.ModelSpec(loss=loss, predictions=predictions)


def input_fn(mode, params, shard):
    """Yields {"id": int64 [batch]} and labels float32 [batch, DIM]; in training, at a bounded rate."""
    rng = np.random.default_rng(shard[0])
    ids = rng.zipf(1.3, 20_000) % params["num_ids"]
    labels = rng.normal(size=(len(ids), DIM)).astype(np.float32)
    dataset = ps_train.from_arrays((ids, labels), params["batch_size"], shuffle=False,
                                   repeat=mode == ps_train.TRAIN, seed=params["seed"])
    return slow.at_bounded_rate(dataset.map(lambda key, label: ({"id": key}, label)), mode, params)
