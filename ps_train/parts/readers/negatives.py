"""Negative examples for an input_fn: ids that an example does not have, drawn from its mini-batch or a vocabulary.

    positives [batch] --> the ids of other examples of the batch            in-batch
    counts [vocab]    --> ids in proportion to counts^power, but not its own    from a vocabulary
                                                                    --> negatives [batch, num_negatives]

They are TensorFlow operations, for `dataset.map`. What is drawn follows from the seed and from the ids of the batch, so
it is the same in each run and in any number of threads, and needs no state. Draw in input_fn and not in model_fn, which
may be called twice for one mini-batch (docs/data.md).
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError

_MAX_HASH = 2**63 - 1


def negative_samples(
    positives: tf.Tensor, num_negatives: int, *, counts: Sequence[float] | np.ndarray | None = None,
    power: float = 0.75, seed: int | None = None,
) -> tf.Tensor:
    """Returns ids [batch, num_negatives] that examples do not have; int64 from a vocabulary, else as the positives.

    Args:
      positives: integers or strings [batch], the id of each example.
      num_negatives: how many to draw for each example, with repetition.
      counts: how often each id from 0 to len(counts) - 1 occurs; id i is drawn in proportion to counts[i]^power, and an
        example's own id never. 8 bytes for each are in the graph. None draws from the ids of the other examples of the
        batch, each alike; another example may have the same id. A batch of one example has no other: it gets its own.
      power: 1 for the frequencies, 0 for all ids alike; 0.75 is that of word2vec (Mikolov et al. 2013,
        arxiv.org/abs/1310.4546).
      seed: with a seed, the same batch always gets the same ids, so shuffle the examples between epochs. None draws
        other ids in each run.

    Raises:
      UserCodeError: an argument is wrong; the error says what is allowed.
    """
    if not (isinstance(num_negatives, numbers.Integral) and num_negatives > 0):
        raise UserCodeError("bad_negatives", f"negative_samples: got num_negatives={num_negatives!r}; allowed: whole "
                            "numbers above 0")
    positives = tf.convert_to_tensor(positives)
    if positives.shape.rank not in (1, None) or not (positives.dtype == tf.string or positives.dtype.is_integer):
        raise UserCodeError("bad_negatives", f"negative_samples: got positives {positives.dtype.name} "
                            f"{positives.shape}; allowed: integers or strings of the shape [batch]")
    shape = tf.stack([tf.size(positives), int(num_negatives)])
    seed = int(np.random.default_rng().integers(2**62)) if seed is None else seed
    seeds = tf.stack([tf.constant(seed, tf.int64), _digest(positives)])
    if counts is None:
        return _of_batch(positives, shape, seeds)
    if not positives.dtype.is_integer:
        raise UserCodeError("bad_negatives", "negative_samples: got positives of strings, and counts; allowed with "
                            "counts: integers, the places of ids in counts")
    return _of_vocabulary(tf.cast(positives, tf.int64), _shares(counts, power), shape, seeds)


def _digest(ids: tf.Tensor) -> tf.Tensor:
    """Returns a number that follows from the ids and their order, int64."""
    ids = tf.strings.to_hash_bucket_fast(ids, _MAX_HASH) if ids.dtype == tf.string else tf.cast(ids, tf.int64)
    return tf.reduce_sum(ids * (2 * tf.range(tf.size(ids, out_type=tf.int64)) + 1))


def _of_batch(positives: tf.Tensor, shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Returns ids of other examples: those of places that are 1 to batch - 1 further on."""
    size = shape[0]
    offsets = tf.random.stateless_uniform(shape, seeds, minval=0, maxval=tf.maximum(size - 1, 1), dtype=tf.int32)
    return tf.gather(positives, (tf.range(size)[:, tf.newaxis] + 1 + offsets) % tf.maximum(size, 1))


def _shares(counts: Any, power: float) -> np.ndarray:
    """Returns the probability of each id, float64 [vocab]."""
    counts = np.asarray(counts)
    is_numbers = counts.ndim == 1 and (np.issubdtype(counts.dtype, np.integer)
                                       or np.issubdtype(counts.dtype, np.floating))
    if not is_numbers or not np.isfinite(counts).all() or (counts < 0).any() or np.count_nonzero(counts) < 2:
        raise UserCodeError("bad_negatives", f"negative_samples: got counts of the shape {list(counts.shape)}; "
                            "allowed: numbers from 0 of the shape [vocab], at least two of them above 0")
    with np.errstate(over="ignore"):
        weights = np.where(counts > 0, counts, 1).astype(np.float64)**power * (counts > 0)
        total = weights.sum()
    if not np.isfinite(total) or np.count_nonzero(weights) < 2:
        raise UserCodeError("bad_negatives", f"negative_samples: got power={power!r}, by which the counts have the sum "
                            f"{total}; allowed: a number by which it is finite, and at least two of them are above 0")
    return weights / total


def _of_vocabulary(positives: tf.Tensor, shares: np.ndarray, shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Returns ids by the inverse of the distribution function, without the share of an example's own id."""
    ends = np.cumsum(shares)
    ends /= ends[-1]
    known = (positives >= 0) & (positives < len(shares))
    places = tf.where(known, positives, tf.zeros_like(positives))
    begin, end = (tf.where(known, tf.gather(tf.constant(bounds), places), tf.zeros_like(positives, tf.float64))[
        :, tf.newaxis] for bounds in (np.concatenate([[0.0], ends[:-1]]), ends))
    drawn = tf.random.stateless_uniform(shape, seeds, dtype=tf.float64) * (1 - (end - begin))
    drawn = tf.where(drawn >= begin, end + (drawn - begin), drawn)
    found = tf.searchsorted(tf.constant(ends), tf.reshape(drawn, [-1]), side="right", out_type=tf.int64)
    return tf.reshape(tf.minimum(found, int(np.flatnonzero(shares)[-1])), shape)
