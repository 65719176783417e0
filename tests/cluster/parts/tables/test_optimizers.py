"""Schedules and clipping on embedding tables, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.storage import checkpoints
from tests.plugins import constant_gradients
from tests.plugins.constant_gradients import DENSE, ROWS

PLUGIN = "tests.plugins.constant_gradients"
RATE, TABLE_RATE, END, NORM, STEPS = 0.1, 0.2, 0.01, 1.5, 6


@pytest.mark.parametrize("flags", [
    {"clip_norm": NORM}, {"clip_norm": NORM, "sync_replicas": True}, {"clip_norm": NORM, "steps_per_execution": 3},
    {"clip_norm": NORM, "communication_period": 3}, {"sync_replicas": True, "async_embeddings": True}],
    ids=["async", "sync", "several", "rounds", "sync with async rows"])
def test_tables_follow_the_schedule_and_count_in_the_norm(tmp_path, flags):
    """On two ps: the rate of a table falls as that of the dense variables, and one norm clips them all."""
    testing.run_in_threads(
        PLUGIN, PLUGIN, train_dir=tmp_path, num_ps=2, num_workers=1, train_steps=STEPS, optimizer="sgd",
        learning_rate=RATE, embedding_learning_rate=TABLE_RATE, learning_rate_schedule="polynomial",
        end_learning_rate=END, decay_steps=STEPS, log_steps=0, **flags)
    norm = np.sqrt(2 * (DENSE**2 + sum(gradient**2 for gradient in ROWS.values())))  # of two columns each
    scale = NORM / norm if "clip_norm" in flags else 1
    rates = END + (RATE - END) * (1 - np.arange(STEPS) / STEPS)
    moved = -rates.sum() * scale  # by a gradient of 1
    np.testing.assert_allclose(testing.read_checkpoint(tmp_path)["dense"], np.full(2, moved * DENSE), rtol=1e-5)
    pieces = list(ps_train.read_table(checkpoints.newest_sound(str(tmp_path)), "rows"))
    found = {int(number): row for ids, values in pieces for number, row in zip(ids, values)}
    assert found.keys() == set(constant_gradients.IDS.tolist())
    for number, gradient in ROWS.items():
        np.testing.assert_allclose(found[number], np.full(2, moved * gradient * TABLE_RATE / RATE), rtol=1e-5)
