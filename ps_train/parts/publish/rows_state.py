"""What was published of a table: its ids and a hash of each row, 16 bytes a row, to find the rows that differ.

    rows of a checkpoint or a delta --changed--> those to publish
    all rows have come --missing--> the ids that were dropped

It depends on nothing but the rows: not on which ps had them, nor on what happened between two states of the training.
"""

from __future__ import annotations

import numpy as np

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64, https://prng.di.unimi.it/splitmix64.c, as are the two below
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """Returns a hash of the bits of each row, uint64 [n], of rows float32 [n, dim].

    Two rows that differ have the same hash with a probability of 2^-64.
    """
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    hashes = np.zeros(len(bits), np.uint64)
    for column in range(bits.shape[1]):
        hashes = _mixed(hashes + bits[:, column].astype(np.uint64) + _FACTOR)
    return hashes


def _mixed(words: np.ndarray) -> np.ndarray:
    """Returns splitmix64's permutation of words uint64 [n]."""
    words = (words ^ (words >> np.uint64(30))) * _MIX[0]
    words = (words ^ (words >> np.uint64(27))) * _MIX[1]
    return words ^ (words >> np.uint64(31))


class PublishedTable:
    """The rows of one table that were published.

    Attributes:
      ids: int64 [n], in ascending order.
      hashes: uint64 [n], of their rows.
    """

    def __init__(self, ids: np.ndarray | None = None, hashes: np.ndarray | None = None) -> None:
        """Takes ids in ascending order; nothing for a table without rows."""
        self.ids = np.zeros([0], np.int64) if ids is None else ids
        self.hashes = np.zeros([0], np.uint64) if hashes is None else hashes

    def with_rows(self, ids: np.ndarray, hashes: np.ndarray) -> PublishedTable:
        """Returns it with these ids int64 [m], each once, in place of what it has of them."""
        order = np.argsort(ids)
        ids, hashes = ids[order], hashes[order]
        places, is_known = self.find(ids)
        replaced = self.hashes.copy()
        replaced[places[is_known]] = hashes[is_known]
        is_new = ~is_known
        return PublishedTable(np.insert(self.ids, places[is_new], ids[is_new]),
                              np.insert(replaced, places[is_new], hashes[is_new]))

    def without(self, ids: np.ndarray) -> PublishedTable:
        """Returns it without these ids int64 [m]."""
        if not len(ids):
            return self
        is_kept = ~np.isin(self.ids, ids)
        return PublishedTable(self.ids[is_kept], self.hashes[is_kept])

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of ids int64 [m], and which of them it has, bool [m]."""
        order = np.argsort(ids)  # in ascending order, they are found several times as fast
        places = np.empty(len(ids), np.intp)
        places[order] = np.searchsorted(self.ids, ids[order])
        is_known = places < len(self.ids)
        is_known[is_known] = self.ids[places[is_known]] == ids[is_known]
        return places, is_known


class Comparison:
    """Compares the rows of one state of the training with those that were published; each id comes once."""

    def __init__(self, published: PublishedTable) -> None:
        """Has compared nothing yet."""
        self._published = published
        self._is_seen = np.zeros(len(published.ids), bool)
        self._ids: list[np.ndarray] = []
        self._hashes: list[np.ndarray] = []

    def changed(self, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns which rows are new or differ, bool [n], of ids int64 [n] and rows float32 [n, dim]."""
        places, is_known = self._published.find(ids)
        hashes = hash_rows(rows)
        self._is_seen[places[is_known]] = True
        is_changed = ~is_known
        is_changed[is_known] = self._published.hashes[places[is_known]] != hashes[is_known]
        self._ids.append(ids[is_changed])
        self._hashes.append(hashes[is_changed])
        return is_changed

    def missing(self) -> np.ndarray:
        """Returns the published ids that have not come, int64 [m]: they were dropped, if all rows have come."""
        return self._published.ids[~self._is_seen]

    def finished(self) -> PublishedTable:
        """Returns what was published with the changed rows, without dropping any."""
        return self._published.with_rows(np.concatenate(self._ids), np.concatenate(self._hashes)) if self._ids else (
            self._published)
