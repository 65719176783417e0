"""The mini-batches of the recommender benchmarks: clicks with Zipf ids, written once, mapped into memory by everybody.

    FOLDER/ids.npy int64 [n, 26]   numbers.npy float32 [n, 13]   labels.npy float32 [n]

A click has the probability sigmoid(sum of a weight per id + products of some pairs of ids): what a factorisation
machine can learn. Weights are hashes of ids, so no table of them is kept.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import numpy as np

NUM_FIELDS, NUM_NUMBERS = 26, 13
_ZIPF = 1.1
_PAIRS = 20


class Clicks(NamedTuple):
    """Examples, or mini-batches of them: ids int64 [..., 26], numbers float32 [..., 13], labels float32 [...]."""

    ids: np.ndarray
    numbers: np.ndarray
    labels: np.ndarray


def field_sizes(num_ids: int) -> np.ndarray:
    """Returns the ids of each field, int64 [26]: geometrically from 10 to about a quarter of all."""
    sizes = np.exp(np.linspace(np.log(10), np.log(num_ids / 4), NUM_FIELDS))
    return np.maximum(3, sizes * (num_ids / sizes.sum())).astype(np.int64)


def field_offsets(num_ids: int) -> np.ndarray:
    """Returns the first id of each field, int64 [26]."""
    return np.concatenate([[0], np.cumsum(field_sizes(num_ids))[:-1]])


def draw(count: int, num_ids: int, seed: int) -> Clicks:
    """Returns examples, always the same for the same arguments."""
    rng = np.random.default_rng(seed)
    sizes, power = field_sizes(num_ids), 1.0 - _ZIPF
    # The inverse of the continuous distribution function on [1, size + 1), rounded down.
    ranks = ((rng.random((count, NUM_FIELDS)) * ((sizes + 1.0) ** power - 1.0) + 1.0) ** (1.0 / power)).astype(np.int64)
    ids = np.clip(ranks - 1, 0, sizes - 1) + field_offsets(num_ids)
    numbers = rng.standard_normal((count, NUM_NUMBERS), np.float32)
    probabilities = 1.0 / (1.0 + np.exp(-_logits(ids, numbers)))
    return Clicks(ids, numbers, (rng.random(count) < probabilities).astype(np.float32))


def _logits(ids: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    pairs = np.random.default_rng(1).permuted(np.tile(np.arange(NUM_FIELDS), (_PAIRS, 1)), axis=1)[:, :2]
    weights, *vectors = (_normal(ids, number) for number in range(5))
    products = sum(vector[:, pairs[:, 0]] * vector[:, pairs[:, 1]] for vector in vectors)
    return 0.35 * weights.sum(1) + 0.15 * products.sum(1) + 0.1 * numbers.sum(1) - 1.35


def _normal(ids: np.ndarray, number: int) -> np.ndarray:
    """Returns a float of variance 1 for each id, the sum of 4 uniform ones (splitmix64; Steele et al. 2014)."""
    mixed = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (number + 1) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    pieces = (mixed ^ (mixed >> np.uint64(31))).view(np.uint16).reshape(*ids.shape, 4)
    return (pieces.astype(np.float32).sum(-1) / 65536 - 2) * np.float32(3**0.5)


def write(folder: pathlib.Path, count: int, num_ids: int) -> None:
    """Writes examples to a folder, unless they are there."""
    if (folder / "labels.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in draw(count, num_ids, seed=1)._asdict().items():  # the labels last
        np.save(folder / f"{name}.npy", array)


def batches(folder: str, batch_size: int, shard: tuple[int, int] = (0, 1)) -> Clicks:
    """Returns a worker's mini-batches: every `count`-th one, each array with the shape [batches, batch_size, ...]."""
    index, count = shard

    def cut(name: str) -> np.ndarray:
        array = np.load(f"{folder}/{name}.npy", mmap_mode="r")
        num_batches = len(array) // batch_size
        return array[:num_batches * batch_size].reshape(num_batches, batch_size, *array.shape[1:])[index::count]

    return Clicks(*map(cut, Clicks._fields))
