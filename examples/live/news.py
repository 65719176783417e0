"""Clicks on articles: dataset and model in one module. An article is clicked with a chance of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"num_articles": 100}


def chances(num_articles: int) -> np.ndarray:
    """Returns the chance that an article is clicked, float [num_articles]."""
    return np.random.default_rng(0).uniform(0.05, 0.95, num_articles)


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns batches ({"article": int64 [batch]}, clicks float32 [batch]); endless in training."""
    training = mode == ps_train.TRAIN
    rng = np.random.default_rng(1 if training else 2)
    articles = rng.integers(0, params["num_articles"], 50_000 if training else 5_000)
    clicks = (rng.random(len(articles)) < chances(params["num_articles"])[articles]).astype(np.float32)
    index, count = shard
    dataset = ps_train.from_arrays((articles[index::count], clicks[index::count]), params["batch_size"],
                                   shuffle=training, repeat=training, seed=params["seed"])
    return dataset.map(lambda article, click: ({"article": article}, click))


def model_fn(features: Any, labels: Any, mode: str, params: Mapping[str, Any]) -> ps_train.ModelSpec:
    """A row of one number for each article, its logit."""
    del params
    logits = ps_train.embedding_table("articles", dim=1).lookup(features["article"])[:, 0]
    predictions = {"probability": tf.sigmoid(logits)}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    return ps_train.ModelSpec(loss=loss, predictions=predictions)
