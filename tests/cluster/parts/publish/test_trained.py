"""States of a training that stay readable while it removes or replaces them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from ps_train.parts.publish.trained import HeldStates, newest_state
from ps_train.parts.tables import contents
from ps_train.storage import checkpoints
from tests.cluster.parts.publish.test_publisher import Training
from tests.errors import raises


@pytest.fixture
def training(tmp_path):
    """A training with a checkpoint and a delta."""
    training = Training(tmp_path / "train", np.random.default_rng(0))
    training.train()
    training.save()
    training.train()
    training.save_delta()
    return training


def _rows(state):
    return {int(key): row.tolist() for ids, rows in contents.newest_rows(state, "a") for key, row in zip(ids, rows)}


def test_a_state_that_is_held_can_be_read_after_it_was_removed(training, tmp_path):
    """Nothing of it stays in the folder."""
    state, states = newest_state(training.folder), HeldStates(training.folder, str(tmp_path / "out"))
    before = _rows(state)
    with states.holding(state) as held:
        checkpoints.remove(state.path)
        assert not os.path.exists(f"{state.path}.index") and _rows(held) == before
    assert os.listdir(training.folder) == []
    with raises("checkpoint_unreadable"), states.holding(state):
        pass


def test_what_a_killed_publisher_has_held_is_removed_by_the_next_of_its_folder(training, tmp_path):
    """Not by one of another folder."""
    state = newest_state(training.folder)
    with HeldStates(training.folder, str(tmp_path / "out")).holding(state) as held:
        HeldStates(training.folder, str(tmp_path / "other"))
        assert checkpoints.exists(held.path)
        HeldStates(training.folder, str(tmp_path / "out"))
        assert not checkpoints.exists(held.path)


def test_a_folder_without_hard_links_is_read_in_place(training, tmp_path, monkeypatch, caplog):
    """With one warning."""
    def fail(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    state, states = newest_state(training.folder), HeldStates(training.folder, str(tmp_path / "out"))
    for _ in range(2):
        with states.holding(state) as held:
            assert held == state
    assert len([record for record in caplog.records if "hard links" in record.getMessage()]) == 1
