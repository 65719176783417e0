"""DeepFM (Guo et al. 2017, arxiv.org/abs/1703.04247) on clicks: factorisation machine and perceptron on one table.

    row of an id = (weight, vector)
    first order    sum of the weights, and of numbers * weights
    second order   sum over all pairs of fields of <vector, vector'>
    deep           vectors, joined, and the numbers --> ReLU layers --> one unit             logit = sum of the three
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import ModelSpec

from . import click_model

DEFAULT_PARAMS = {**click_model.TABLE_PARAMS, **click_model.EXAMPLE_PARAMS, "dim": 16, "layers": "128x64"}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Predicts clicks from {"numbers": float32 [batch, n], "ids": int64 [batch, fields]}; labels float32 [batch].

    Params: `dim`, the width of an id's vector; `layers`, the units of the ReLU layers; `num_rows` of the table, 0 for
    any ids; `dtype` of its values on the ps; `weight`, `group_field` and `num_groups`, see
    `click_model.EXAMPLE_PARAMS`.
    """
    del mode  # it makes no difference here
    dim = params["dim"]
    rows = click_model.lookup("deepfm", features, 1 + dim, params)
    # Not slices, whose gradients cost a StridedSliceGrad of the size of all rows each.
    weights, vectors = tf.split(rows, [1, dim], axis=2)
    numbers = click_model.numbers_of(features)
    first_order = click_model.linear(numbers, "numbers") + tf.reduce_sum(weights, axis=[1, 2])
    joined = tf.concat([click_model.flat(vectors), numbers], axis=1)
    deep = click_model.output(click_model.perceptron(joined, params["layers"], "perceptron"), "output")
    return click_model.spec_from_logits(
        first_order + pairs(vectors) + deep, labels,
        None if labels is None else click_model.weights_of(features, params), click_model.groups_of(features, params),
        click_model.num_groups_of(params))


def pairs(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the sum over all pairs of fields of the product of their vectors, float32 [batch].

    Args:
      vectors: float32 [batch, fields, dim].
    """
    # 2 * sum over i < j of <v_i, v_j> = |sum of v_i|^2 - sum of |v_i|^2
    square_of_sum = tf.reduce_sum(tf.square(tf.reduce_sum(vectors, axis=1)), axis=1)
    return 0.5 * (square_of_sum - tf.reduce_sum(tf.square(vectors), axis=[1, 2]))
