"""Wide & Deep (Cheng et al. 2016, arxiv.org/abs/1606.07792) on clicks: logistic regression and a perceptron, added.

    wide   weight of each id, weights of the numbers        --> sum   \\
    deep   vector of each id, joined, and the numbers       --> ReLU layers --> one unit   --> logit
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import ModelSpec

from . import click_model

DEFAULT_PARAMS = {**click_model.TABLE_PARAMS, **click_model.LINEAR_PARAMS, "dim": 16, "layers": "128x64"}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Predicts clicks from {"numbers": float32 [batch, n], "ids": int64 [batch, fields]}; labels float32 [batch].

    Params: `dim`, the width of an id's vector; `layers`, the units of the ReLU layers; `num_rows` of each table, 0 for
    any ids; `dtype` of their values on the ps; `l1` and `l2`, the penalties of the weights of ids.
    """
    del mode  # it makes no difference here
    vectors = click_model.lookup("deep", features, params["dim"], params)
    numbers = click_model.numbers_of(features)
    wide = click_model.linear(numbers, "numbers") + click_model.lookup_weights(features, params)
    joined = tf.concat([click_model.flat(vectors), numbers], axis=1)
    deep = click_model.output(click_model.perceptron(joined, params["layers"], "perceptron"), "output")
    return click_model.spec_from_logits(wide + deep, labels)
