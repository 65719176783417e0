"""DeepFM (Guo et al. 2017) as arithmetic on rows and dense parameters, in TensorFlow's graph mode or eagerly.

    weights [batch, 26] -> sum   vectors [batch, 26, dim] -> pairs; with numbers [batch, 13] -> layers     -> logit
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.recommender.examples import NUM_FIELDS, NUM_NUMBERS
from benchmarks.recommender.work import Work


def first_values(work: Work) -> dict[str, np.ndarray]:
    """Returns name -> float32 first value of each dense parameter."""
    rng = np.random.default_rng(3)
    units = [NUM_FIELDS * work.dim + NUM_NUMBERS, *map(int, filter(None, work.layers.split("x")))]
    values = {}
    for number, (inputs, outputs) in enumerate(zip(units, units[1:])):
        values[f"layer_{number}/weights"] = rng.standard_normal((inputs, outputs)) * (2 / inputs) ** 0.5
        values[f"layer_{number}/biases"] = np.zeros(outputs)
    if work.layers:
        values["output/weights"] = rng.standard_normal((units[-1], 1)) * (2 / units[-1]) ** 0.5
        values["numbers/weights"] = np.zeros((NUM_NUMBERS, 1))
    return {name: value.astype(np.float32) for name, value in {**values, "bias": np.zeros(1)}.items()}


def logits(work: Work, weights: Any, vectors: Any, numbers: Any, dense: Mapping[str, Any]) -> tf.Tensor:
    """Returns float32 [batch].

    Args:
      weights: float32 [batch, 26]; None without layers, as are the numbers.
      vectors: float32 [batch, 26, dim].
      numbers: float32 [batch, 13].
      dense: name -> parameter.
    """
    if not work.layers:
        return tf.reduce_sum(vectors, axis=[1, 2]) + dense["bias"]
    total = tf.reduce_sum(vectors, axis=1)
    pairs = 0.5 * tf.reduce_sum(total * total - tf.reduce_sum(vectors * vectors, axis=1), axis=1)
    hidden = tf.concat([tf.reshape(vectors, [-1, NUM_FIELDS * work.dim]), numbers], axis=1)
    for number in range(len(work.layers.split("x"))):
        hidden = tf.nn.relu(tf.matmul(hidden, dense[f"layer_{number}/weights"]) + dense[f"layer_{number}/biases"])
    linear = tf.matmul(hidden, dense["output/weights"]) + tf.matmul(numbers, dense["numbers/weights"])
    return linear[:, 0] + pairs + tf.reduce_sum(weights, axis=1) + dense["bias"]


def loss_of(work: Work, rows: tf.Tensor, numbers: Any, labels: tf.Tensor, dense: Mapping[str, Any]) -> tf.Tensor:
    """Returns the log loss, scalar, of rows float32 [batch, 26, width] that have weight and vector side by side."""
    # Not slices, whose gradients cost as much as all rows.
    weights, vectors = tf.split(rows, [1, work.dim], axis=2) if work.layers else (None, rows)
    found = logits(work, weights[:, :, 0] if work.layers else None, vectors, numbers, dense)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=found))


def variables(work: Work, create: Callable[[str, np.ndarray], Any]) -> dict[str, Any]:
    """Returns name -> what `create(name, first value)` returns, of each dense parameter."""
    return {name: create(name, value) for name, value in first_values(work).items()}
