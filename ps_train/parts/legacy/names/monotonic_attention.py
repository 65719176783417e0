"""Of `tf.contrib.seq2seq`: attention that never goes back in its memory, https://arxiv.org/abs/1704.00784.

    score --sigmoid--> probability that the attention stops at each step of the memory, if it has come so far
          --monotonic_attention(..., previous alignments)--> alignments [batch, time]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.attention import BahdanauAttention, LuongAttention, product_score, sum_score


def safe_cumprod(x: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
    """`tf.cumprod` of numbers from 0 to 1, by the sum of their logarithms, so that it does not underflow."""
    with tf.name_scope(None, "SafeCumprod", [x]):
        x = tf.convert_to_tensor(x, name="x")
        tiny = np.finfo(x.dtype.as_numpy_dtype).tiny
        return tf.exp(tf.cumsum(tf.log(tf.clip_by_value(x, tiny, 1)), *args, **kwargs))


def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> tf.Tensor:
    """Returns the alignments, float [batch, time].

    Args:
      p_choose_i: the probability of stopping at each step, float [batch, time].
      previous_attention: the alignments before; at first 1, 0, 0, ...
      mode: "recursive", exact; "parallel", faster and less exact; "hard", for probabilities of 0 and 1.

    Raises:
      ValueError: there is no such mode.
    """
    choose, previous = tf.convert_to_tensor(p_choose_i), tf.convert_to_tensor(previous_attention)
    if mode == "recursive":
        def arrive(before: tf.Tensor, at: tuple) -> tf.Tensor:
            return at[0] * before + at[1]

        goes_on = tf.concat([tf.ones_like(choose[:, :1]), 1 - choose[:, :-1]], 1)
        arrived = tf.scan(arrive, (tf.transpose(goes_on), tf.transpose(previous)), tf.zeros_like(choose[:, 0]))
        return choose * tf.transpose(arrived)
    if mode == "parallel":
        goes_on = safe_cumprod(1 - choose, axis=1, exclusive=True)
        return choose * goes_on * tf.cumsum(previous / tf.clip_by_value(goes_on, 1e-10, 1.0), axis=1)
    if mode == "hard":
        choose *= tf.cumsum(previous, axis=1)  # nothing before the last place
        return choose * tf.cumprod(1 - choose, axis=1, exclusive=True)
    raise ValueError(f"monotonic_attention: got mode={mode!r}; allowed: recursive, parallel, hard")


def _probability_fn(noise: float, mode: str, seed: int | None) -> Callable:
    """Returns a function of score and previous alignments; the noise makes the probabilities come near 0 or 1."""
    def probability_fn(score: tf.Tensor, previous: tf.Tensor) -> tf.Tensor:
        if noise > 0:
            score += noise * tf.random_normal(tf.shape(score), dtype=score.dtype, seed=seed)
        chosen = tf.cast(score > 0, score.dtype) if mode == "hard" else tf.sigmoid(score)
        return monotonic_attention(chosen, previous, mode)
    return probability_fn


class _Monotonic:
    """What the two mechanisms have in common."""

    def __init__(self, *args: Any, sigmoid_noise: float, sigmoid_noise_seed: int | None, score_bias_init: float,
                 mode: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.take_probability_fn(_probability_fn(sigmoid_noise, mode, sigmoid_noise_seed))
        self._score_bias_init = score_bias_init

    def initial_alignments(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns 1, 0, 0, ...: [batch, time]."""
        return tf.one_hot(tf.zeros([batch_size], tf.int32), self.alignments_size, dtype=dtype)

    def _with_bias(self, score: tf.Tensor) -> tf.Tensor:
        """Returns the score plus a variable of the scope."""
        start = tf.constant_initializer(self._score_bias_init)
        return score + tf.get_variable("attention_score_bias", [], score.dtype, initializer=start)


class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """Monotonic attention whose score is v * tanh(query + key)."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, normalize: bool = False,
                 score_mask_value: float | None = None, sigmoid_noise: float = 0.0,
                 sigmoid_noise_seed: int | None = None, score_bias_init: float = 0.0, mode: str = "parallel",
                 dtype: Any = None, name: str = "BahdanauMonotonicAttention") -> None:
        super().__init__(num_units, memory, memory_sequence_length, normalize, score_mask_value=score_mask_value,
                         dtype=dtype, name=name, sigmoid_noise=sigmoid_noise, sigmoid_noise_seed=sigmoid_noise_seed,
                         score_bias_init=score_bias_init, mode=mode)

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "bahdanau_monotonic_attention", [query]):
            return self._with_bias(sum_score(self.query_layer(query), self.keys, self._num_units, self._normalize))


class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """Monotonic attention whose score is the product of query and key."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, scale: bool = False,
                 score_mask_value: float | None = None, sigmoid_noise: float = 0.0,
                 sigmoid_noise_seed: int | None = None, score_bias_init: float = 0.0, mode: str = "parallel",
                 dtype: Any = None, name: str = "LuongMonotonicAttention") -> None:
        super().__init__(num_units, memory, memory_sequence_length, scale, score_mask_value=score_mask_value,
                         dtype=dtype, name=name, sigmoid_noise=sigmoid_noise, sigmoid_noise_seed=sigmoid_noise_seed,
                         score_bias_init=score_bias_init, mode=mode)

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "luong_monotonic_attention", [query]):
            return self._with_bias(product_score(query, self.keys, self._num_units, self._scale))
