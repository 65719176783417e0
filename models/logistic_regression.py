"""Logistic regression on clicks: a weight for each id and each number.

    logit = bias + sum of numbers * weights + sum over the ids of their weights
"""

from __future__ import annotations

from ps_train import ModelSpec

from . import click_model

DEFAULT_PARAMS = {**click_model.TABLE_PARAMS, **click_model.LINEAR_PARAMS}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Predicts clicks from {"numbers": float32 [batch, n], "ids": int64 [batch, fields]}; labels float32 [batch].

    Params: `num_rows` of the table, 0 for any ids; `dtype` of its values on the ps; `l1` and `l2`, the penalties of the
    weights of ids.
    """
    del mode  # it makes no difference here
    of_numbers = click_model.linear(click_model.numbers_of(features), "numbers")
    return click_model.spec_from_logits(of_numbers + click_model.lookup_weights(features, params), labels)
