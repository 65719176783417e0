"""A few clicks with ids of known influence, and metrics of each kind: what the tests of click models train on."""

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from models import deepfm

DEFAULT_PARAMS = {"num_examples": 2000, "num_eval": 997, "num_ids": 40, "fields": 4, "model_dim": 3, "extra": "",
                  "eval_batch": 50, "kind": "sum", "is_dynamic": False, "dtype": "float32", "weight": "",
                  "group_field": -1}


def examples(num, num_ids, fields, seed, kind="sum"):
    """Returns features and labels.

    The logit of an example is the sum of what its ids weigh; with the kind "pairs" the label tells whether two of them
    are both even or both odd, of which no sum of weights can tell anything.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, num_ids, (num, fields))
    weights = np.random.default_rng(0).normal(size=num_ids)
    numbers = rng.normal(size=(num, 2)).astype(np.float32)
    labels = rng.random(num) < 1 / (1 + np.exp(-(weights[ids].sum(axis=1) - 1)))
    if kind == "pairs":
        labels = ids[:, 0] % 2 == ids[:, 1] % 2
    return {"numbers": numbers, "ids": ids}, labels.astype(np.float32)


def input_fn(mode, params, shard):
    """Yields features {"numbers": float32 [batch, 2], "ids": int64 [batch, fields]} and labels float32 [batch]."""
    training = mode == ps_train.TRAIN
    features, labels = examples(params["num_examples"] if training else params["num_eval"], params["num_ids"],
                                params["fields"], seed=1 if training else 2, kind=params["kind"])
    index, count = shard
    own = (features["numbers"][index::count], features["ids"][index::count], labels[index::count])
    batch_size = params["batch_size" if training else "eval_batch"]
    dataset = ps_train.from_arrays(own, batch_size, shuffle=training, repeat=training, seed=params["seed"])
    return dataset.map(lambda numbers, ids, label: ({"numbers": numbers, "ids": ids}, label))


def model_fn(features, labels, mode, params):
    """A small DeepFM; `extra` adds metrics: "standard" those of tf.metrics, "last" one that is no sum."""
    num_rows = 0 if params["is_dynamic"] else params["num_ids"]
    spec = deepfm.model_fn(features, labels, mode, {
        **params, "num_rows": num_rows, "dim": params["model_dim"], "layers": "5"})
    if mode == ps_train.PREDICT:
        return spec
    probabilities = spec.predictions["probabilities"]
    extra = {}
    if params["extra"] == "standard":
        extra = {"accuracy": tf.metrics.accuracy(labels > 0.5, probabilities > 0.5),
                 "error": tf.metrics.root_mean_squared_error(labels, probabilities),
                 "roc": tf.metrics.auc(labels, probabilities, summation_method="careful_interpolation")}
    if params["extra"] == "last":
        last = tf.get_variable("last", [], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        extra = {"last": (last.read_value(), last.assign(tf.reduce_mean(probabilities)))}
    return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **extra})
