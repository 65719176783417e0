"""DLRM (Naumov et al. 2019, arxiv.org/abs/1906.00091) on clicks: products of all pairs of vectors, then a perceptron.

    numbers --> ReLU layers ("bottom") --> vector \\
    ids     --> vectors of the table   ------------> products of all pairs, and the first vector
                                                     --> ReLU layers ("top") --> one unit --> logit
"""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train import ModelSpec

from . import click_model

DEFAULT_PARAMS = {**click_model.TABLE_PARAMS, "dim": 16, "bottom_layers": "64", "top_layers": "128x64"}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Predicts clicks from {"numbers": float32 [batch, n], "ids": int64 [batch, fields]}; labels float32 [batch].

    Params: `dim`, the width of a vector; `bottom_layers`, the units of the ReLU layers on the numbers, after which
    comes one of `dim` units; `top_layers`, those on the products; `num_rows` of the table, 0 for any ids;
    `dtype` of its values on the ps.
    """
    del mode  # it makes no difference here
    dim = params["dim"]
    of_ids = click_model.lookup("dlrm", features, dim, params)
    of_numbers = click_model.perceptron(click_model.numbers_of(features), f"{params['bottom_layers']}x{dim}", "bottom")
    products = pairs(tf.concat([tf.expand_dims(of_numbers, 1), of_ids], axis=1))
    top = click_model.perceptron(tf.concat([of_numbers, products], axis=1), params["top_layers"], "top")
    return click_model.spec_from_logits(click_model.output(top, "output"), labels)


def pairs(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the product of each pair of different vectors, float32 [batch, n * (n - 1) / 2].

    Args:
      vectors: float32 [batch, n, dim], n known.
    """
    n = int(vectors.shape[1])
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, n * n])
    rows, columns = np.tril_indices(n, -1)
    return tf.gather(products, rows * n + columns, axis=1)
