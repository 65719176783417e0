"""The model plug-in of the recommender benchmarks: the sum of rows, in which the table is all that costs.

DeepFM is trained with the project's own `models.deepfm`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

import ps_train
from benchmarks.recommender import network
from benchmarks.recommender.work import Work

DEFAULT_PARAMS: dict[str, Any] = dataclasses.asdict(Work(layers=""))


def model_fn(features, labels, mode, params) -> ps_train.ModelSpec:
    """Returns the log loss of labels float32 [batch] for ids int64 [batch, 26]."""
    del mode  # nothing in it differs
    work = Work(**{name: params[name] for name in DEFAULT_PARAMS})
    table = ps_train.embedding_table("rows", work.width, None if work.is_dynamic else work.num_ids)
    dense = network.variables(work, lambda name, value: tf.get_variable(name, initializer=value))
    rows = table.lookup(features["ids"])
    return ps_train.ModelSpec(loss=network.loss_of(work, rows, None, labels, dense))
