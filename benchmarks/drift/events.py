"""Events as they happen: clicks at a rate, appended to growing files; at one moment all ids change their meaning.

    warm-up    each id of the first half of every field once: the rows that the table has at the start
    events     Zipf-distributed ids of all, so new ones come without end; a probe in each append

A probe is an event with an id of its own: when a reader has a row of that id, all of this append that was trained on
before the probe is served. It is the last event of its append.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import NamedTuple

import numpy as np

from data.click_model import hashing, writing
from data.click_model.model import ClickModel, Examples
from data.criteo import NUM_CATEGORIES, NUM_NUMBERS
from data.tabular.features import NUM_HASHES, field_keys

APPEND_SECS = 0.25
_FILE_APPENDS = 240  # a new file each minute
_WARM_CHUNK = 4096
_ZIPF, _PAIRS = 1.1, 20


class Append(NamedTuple):
    """What was appended at one moment.

    Attributes:
      secs: when it was in the file, in seconds since 1970.
      probe: the id that only the last event has.
      events: these events.
    """

    secs: float
    probe: int
    events: Examples


class Stream:
    """Events of a model, and after `drift()` those of another one with the same ids."""

    def __init__(self, folder: str, vocab: int) -> None:
        """Takes a folder for the files, which exists."""
        self._folder, self._vocab = folder, vocab
        self._model = ClickModel(vocab=vocab, num_fields=NUM_CATEGORIES, num_numbers=NUM_NUMBERS, zipf=_ZIPF,
                                 pairs=_PAIRS, seed=1)
        self._rng = np.random.default_rng(1)
        self._probe_key = field_keys(NUM_CATEGORIES)[-1]

    def drift(self) -> None:
        """Gives all ids another meaning."""
        self._model = dataclasses.replace(self._model, seed=2)

    def warm_up(self) -> int:
        """Writes a file whose events have each id of the first half of every field; returns how many ids that is."""
        model = _EachOnce(**{field.name: getattr(self._model, field.name) for field in dataclasses.fields(ClickModel)})
        with open(os.path.join(self._folder, "train-warm.tsv.tmp"), "wb") as file:
            for _ in range(0, model.num_events, _WARM_CHUNK):
                file.writelines(writing.tsv_lines(model.draw(_WARM_CHUNK, self._rng)))
        os.rename(file.name, file.name.removesuffix(".tmp"))
        return model.num_ids

    def append(self, number: int, count: int) -> Append:
        """Appends `count` events to the file of this moment."""
        drawn = self._model.draw(count, self._rng)
        value = hashing.scramble(np.array([self._vocab + number], np.uint64))
        drawn.values[-1, -1], drawn.is_missing[-1, -1] = value[0], False
        probe = int((hashing.fingerprints(hashing.hex_digits(value)) % np.uint64(NUM_HASHES)).astype(np.int64)[0]
                    ^ self._probe_key)
        drawn.ids[-1, -1] = probe
        text = b"".join(writing.tsv_lines(drawn))
        with open(os.path.join(self._folder, f"train-{number // _FILE_APPENDS:05d}.tsv"), "ab") as file:
            file.write(text)
        return Append(time.time(), probe, drawn)


class _EachOnce(ClickModel):
    """Draws the ids of the first half of each field in turn."""

    def _ranks(self, uniform: np.ndarray) -> np.ndarray:
        start = self.__dict__.get("_drawn", 0)
        object.__setattr__(self, "_drawn", start + uniform.shape[1])
        return ((start + np.arange(uniform.shape[1])) % self._halves).astype(np.uint64)

    @property
    def _halves(self) -> np.ndarray:
        return np.maximum(self._sizes // 2, 1)

    @property
    def num_ids(self) -> int:
        """How many ids they are."""
        return int(self._halves.sum())

    @property
    def num_events(self) -> int:
        """How many events have all of them."""
        return int(self._halves.max())
