"""The events of the drift benchmark, and its figures."""

from __future__ import annotations

import numpy as np

from benchmarks.drift.events import Stream
from benchmarks.drift.serving import Figures, Window
from data.click_model import hashing
from data.criteo import NUM_CATEGORIES
from data.tabular.features import NUM_HASHES, field_keys


def _categories(path):
    return [line.split("\t")[-NUM_CATEGORIES:] for line in path.read_text().splitlines()]


def test_an_append_ends_with_a_probe_whose_id_a_reader_makes_of_its_line(tmp_path):
    """No other event has this id; the next append has another one."""
    stream = Stream(str(tmp_path), vocab=1000)
    appends = [stream.append(number, 50) for number in (0, 1)]
    lines = _categories(tmp_path / "train-00000.tsv")
    for append, of_append in zip(appends, (lines[:50], lines[50:])):
        digits = np.array([of_append[-1][-1]], "S8").view(np.uint64)
        key = int(hashing.fingerprints(digits)[0] % np.uint64(NUM_HASHES)) ^ int(field_keys(NUM_CATEGORIES)[-1])
        assert append.probe == key == append.events.ids[-1, -1]
        assert sum((one.events.ids == key).sum() for one in appends) == 1


def test_the_warm_up_has_as_many_ids_as_it_says(tmp_path):
    """Each of the first half of its field."""
    num_ids = Stream(str(tmp_path), vocab=1000).warm_up()
    ids = {(field, value) for line in _categories(tmp_path / "train-warm.tsv") for field, value in enumerate(line)}
    assert len(ids) == num_ids and 480 <= num_ids <= 500


def test_after_the_drift_the_same_ids_have_other_weights(tmp_path):
    """And another chance of a click."""
    stream = Stream(str(tmp_path), vocab=1000)
    ids = np.arange(52, dtype=np.uint64).reshape(26, 2)
    before = stream._model._weights(ids)[0]
    stream.drift()
    assert not np.isclose(stream._model._weights(ids)[0], before).any()


def test_the_figures_tell_the_windows_before_and_after_the_drift():
    """The seconds are those of all probes."""
    windows = [Window(5, 0.7, 0.7, 0.8), Window(15, 0.5, 0.4, 0.8), Window(25, 0.6, 0.4, 0.8)]
    served = [(number, age) for number, age in enumerate([1.0, 2.0, 3.0])]
    about, table = Figures(windows, served, 10.0, {"reader": 0.25}, 0.0, 1, 9).lines()
    assert "2.0 s in the median" in about and "3.0 s at most" in about and "reader 0.25" in about
    assert table.splitlines()[2:] == [
        "| before the drift | 0.700 | 0.700 | 0.800 |", "| 0 to 10 s after it | 0.500 | 0.400 | 0.800 |",
        "| 10 to 30 s after it | 0.600 | 0.400 | 0.800 |"]
