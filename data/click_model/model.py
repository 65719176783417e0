"""Draws click examples from a logistic model with pairwise interactions, and knows the probability of each click.

    logit = bias + sum over fields of w(id) + sum over pairs of fields of <e(id), e'(id')> / sqrt(rank) + <v, numbers>
    click ~ Bernoulli(sigmoid(logit))

w(id) and e(id) are made of a hash of the id, not kept in a table, so any number of ids can be drawn. Ids of a field
are drawn by a bounded Zipf law: the id of rank k with a probability of about (k + 1)^-zipf.

The pairs are either drawn at random, or all those of a group of fields. In the group, a factorisation machine with
vectors of 4 floats is the model itself. Random pairs need about 4 floats for each pair: e(id) has to be in other
dimensions for each pair, since a factorisation machine has the products of all pairs of fields.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ..tabular.features import NUM_HASHES, field_keys
from . import hashing

_RANK = 4  # a hash has four pieces of 16 bits
_UNIFORM_SCALE = np.float32(np.sqrt(12) / 65536)  # makes the variance of a piece 1
_SMALLEST_FIELD = 10
# Every fourth field has a value that is missing in the files: that of rank 0.
_FIRST_WITH_MISSING, _MISSING_EVERY = 3, 4
_USUAL_PAIRS = 20
_NUMBER_MEAN, _NUMBER_STD = 1.0, 1.5  # of the logarithm of a number


class Examples(NamedTuple):
    """Drawn examples.

    Attributes:
      counts: int64 [n, num_numbers], numbers of at least 0.
      values: uint64 [n, num_fields], below 2^32: the categories; the string of a value has its 8 hexadecimal digits.
      is_missing: bool [n, num_fields], whether the string is empty.
      ids: int64 [n, num_fields], as `data.tabular.features.category_ids` makes them of the strings.
      labels: float32 [n], 0 or 1.
      logits: float32 [n]; sigmoid(logit) is the probability of label 1.
      linear_logits: float32 [n], the sum of functions of one field or number each that is closest to the logit.
    """

    counts: np.ndarray
    values: np.ndarray
    is_missing: np.ndarray
    ids: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    linear_logits: np.ndarray | None = None

    @property
    def numbers(self) -> np.ndarray:
        """The numbers as features: float32 [n, num_numbers], log(1 + x)."""
        return np.log1p(self.counts.astype(np.float32))


@dataclasses.dataclass(frozen=True)
class ClickModel:
    """The model.

    Attributes:
      vocab: the number of ids, over all fields; fields have 10 ids to a fifth of all, in equal ratios.
      num_fields: fields of categories.
      num_numbers: numbers.
      zipf: exponent of the Zipf law, above 0.
      pairs: pairs of fields that interact, drawn at random.
      group: in place of these, so many fields interact, each with each; 0 for the pairs. All terms together then have
        the standard deviation of those of 20 pairs.
      wide_std: standard deviation of w.
      pair_std: standard deviation of the term of a pair.
      number_std: standard deviation of the weights of the numbers.
      bias: the logit of an average example.
      seed: seed of the weights.
    """

    vocab: int
    num_fields: int
    num_numbers: int
    zipf: float
    pairs: int
    wide_std: float = 0.35
    pair_std: float = 0.30
    number_std: float = 0.1
    bias: float = -1.35
    seed: int = 1
    group: int = 0

    def __post_init__(self) -> None:
        sizes = np.exp(np.linspace(np.log(_SMALLEST_FIELD), np.log(max(self.vocab / 4, 11)), self.num_fields))
        sizes = np.maximum(3, sizes * (self.vocab / sizes.sum())).astype(np.int64)
        rng = np.random.default_rng(self.seed)
        attributes = {
            "_sizes": sizes[:, np.newaxis],
            "_offsets": (np.cumsum(sizes) - sizes)[:, np.newaxis].astype(np.uint64),
            "_pairs": [rng.choice(self.num_fields, 2, replace=False) for _ in range(self.pairs)],
            "_number_weights": (rng.standard_normal(self.num_numbers) * self.number_std).astype(np.float32),
            "_keys": field_keys(self.num_fields)[:, np.newaxis],
            "_salt": np.uint64(rng.integers(2**62)),
            "_group": rng.choice(self.num_fields, self.group, replace=False),
        }
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def draw(self, num: int, rng: np.random.Generator, *, with_linear: bool = False) -> Examples:
        """Returns `num` examples; with their linear logits if `with_linear`."""
        # Arrays are [fields, n] here: an operation on a field runs through memory in order.
        ranks = self._ranks(rng.random((self.num_fields, num)))
        ids = ranks + self._offsets
        counts = np.exp(rng.standard_normal((self.num_numbers, num), np.float32) * np.float32(_NUMBER_STD)
                        + np.float32(_NUMBER_MEAN)).astype(np.int64)
        weights, vectors = self._weights(ids)
        centred = np.log1p(counts.astype(np.float32)) - np.float32(_NUMBER_MEAN + 0.3)
        additive = self.bias + weights.sum(axis=0) * np.float32(self.wide_std) + self._number_weights @ centred
        logits = additive + self._pair_terms(vectors)
        labels = (rng.random(num) < 1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
        values = hashing.scramble(ids)
        is_missing = np.zeros(values.shape, bool)
        is_missing[_FIRST_WITH_MISSING::_MISSING_EVERY] = ranks[_FIRST_WITH_MISSING::_MISSING_EVERY] == 0
        linear = additive + self._linear_pair_terms(vectors) if with_linear else None
        return Examples(np.ascontiguousarray(counts.T), np.ascontiguousarray(values.T),
                        np.ascontiguousarray(is_missing.T), np.ascontiguousarray(self._hashed(values, is_missing).T),
                        labels, logits, linear)

    def _ranks(self, uniform: np.ndarray) -> np.ndarray:
        """Returns Zipf-distributed ranks uint64 [fields, n] for uniform numbers in [0, 1)."""
        # The inverse of the continuous distribution function on [1, size + 1), rounded down.
        power, ends = 1.0 - self.zipf, self._sizes + 1.0
        if abs(power) < 1e-9:
            drawn = np.exp(uniform * np.log(ends))
        else:
            drawn = np.exp(np.log(uniform * (ends**power - 1.0) + 1.0) / power)
        return np.minimum(drawn.astype(np.int64) - 1, self._sizes - 1).astype(np.uint64)

    def _weights(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns w float32 [fields, n] and e float32 [rank, fields, n] of the ids, each with variance 1."""
        bits = hashing.mixed_bits(ids + self._salt)
        pieces = bits.view(np.uint16).reshape(*bits.shape, _RANK)
        vectors = np.stack([pieces[..., index].astype(np.float32) for index in range(_RANK)])
        vectors -= np.float32(32767.5)
        vectors *= _UNIFORM_SCALE
        bits *= np.uint64(0xD6E8FEB86659FD93)  # its high bits depend on all bits of the hash
        weights = ((bits >> np.uint64(48)).astype(np.float32) - np.float32(32767.5)) * _UNIFORM_SCALE
        return weights, vectors

    def _pair_terms(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the sum of the terms of all pairs, float32 [n]."""
        if self.group:
            # 2 * sum over i < j of <e_i, e_j> = |sum of e_i|^2 - sum of |e_i|^2
            group = vectors[:, self._group]
            terms = (np.square(group.sum(axis=1)).sum(axis=0) - np.square(group).sum(axis=(0, 1))) / 2
            std = self.pair_std * np.sqrt(_USUAL_PAIRS / (self.group * (self.group - 1) / 2))
            return terms * np.float32(std / np.sqrt(_RANK))
        terms = np.zeros(vectors.shape[2], np.float32)
        for left, right in self._pairs:
            for vector in vectors:
                terms += vector[left] * vector[right]
        return terms * np.float32(self.pair_std / np.sqrt(_RANK))

    def _linear_pair_terms(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the part of the pair terms that is a sum of functions of one field: fields are independent."""
        means = vectors.mean(axis=2, keepdims=True)
        return self._pair_terms(vectors) - self._pair_terms(vectors - means)

    def _hashed(self, values: np.ndarray, is_missing: np.ndarray) -> np.ndarray:
        hashes = hashing.fingerprints(hashing.hex_digits(values))
        hashes[is_missing] = hashing.FINGERPRINT_OF_EMPTY
        hashes %= np.uint64(NUM_HASHES)
        return hashes.view(np.int64) ^ self._keys
