"""The model that records its updates, in a cluster of threads: its history is whole."""

from __future__ import annotations

import logging

from ps_train import testing
from tests import history
from tests.history import SAVED, Promise
from tests.history_files import Observer

_PLUGIN = "tests.plugins.recorded"


def test_the_history_of_an_undisturbed_training_keeps_each_promise(tmp_path, caplog):
    """Each mini-batch is in the last checkpoint, once on each ps, and no worker was too far ahead of the other."""
    caplog.set_level(logging.INFO)
    observer = Observer(tmp_path / "history", num_ps=2)
    testing.run_in_threads(
        _PLUGIN, _PLUGIN, train_dir=tmp_path / "train", num_ps=2, train_steps=60, optimizer="sgd", learning_rate=1.0,
        params=f"history={observer.folder},batch_secs=0.005", staleness_bound=3, log_steps=0, save_summaries_steps=0)
    observer.look(caplog.text)
    recorded = observer.read()
    promise = Promise(num_workers=2, bound=3, is_undisturbed=True)
    assert history.find_violations(recorded, promise) == []
    assert sum(taken.step is not None for taken in recorded.taken.values()) >= 60
    assert {taken.worker for taken in recorded.taken.values() if taken.step is not None} == {0, 1}
    last = [event.name for event in recorded.events if event.kind == SAVED][-1]
    assert sum(map(recorded.saved[last].has_all, recorded.taken)) == int(last.rpartition("-")[2])
    assert " lead " in history.describe(recorded, promise)
