"""When deltas are saved between the checkpoints, and which of them stay."""

from __future__ import annotations

import os
import queue
import threading

import pytest

from ps_train.parts.tables import contents
from ps_train.parts.tables.part import TableSettings, install_tables
from ps_train.parts.tables.rules import Sgd
from ps_train.storage import checkpoints, saver
from tests.children import wait_until
from tests.cluster.storage.test_saver import NEVER, Training
from tests.tensorflow_mode import tf


class TrainingWithDeltas(Training):
    """Parameters in a local session, and deltas of variables only."""

    def __init__(self, folder, delta_secs):
        with tf.Graph().as_default():
            self.tables = install_tables([""], TableSettings(Sgd(1.0)))
            self.tables.add_saving()
        super().__init__(folder, saver.Deltas(
            delta_secs, self.tables.delta_path_of,
            lambda session, _, cut: self.saver.save(session, cut(), write_state=False), self.tables.remove_old_deltas))

    def counted_save(self, session, folder, cut):
        """Saves, after which deltas follow the new checkpoint."""
        def noting_cut():
            self.tables.files.base = cut()
            return self.tables.files.base

        super().counted_save(session, folder, noting_cut)


@pytest.fixture
def training(tmp_path):
    """A function that makes a training with deltas; its thread ends with the test."""
    made = []

    def make(delta_secs):
        made.append(TrainingWithDeltas(tmp_path / "train", delta_secs))
        return made[-1]

    yield make
    for one in made:
        one.saving.stop()


def _write_damaged(path):
    for end in ("index", "data-00000-of-00001"):
        with open(f"{path}.{end}", "wb") as file:
            file.write(b"damaged")


def test_deltas_follow_the_checkpoint_that_this_process_has_saved(training):
    """Also while a damaged one of a later step lies in the folder; two of them are kept."""
    run = training(0.02)
    os.makedirs(run.folder)
    _write_damaged(checkpoints.path_of(run.folder, 5000))
    run.saving.start(run.session)
    answers = queue.Queue()
    run.saving.request(lambda *answer: answers.put(answer))
    base, _ = answers.get(timeout=60)
    for step in (3, 6, 9):
        run.go_to(step)
        newest = contents.delta_path(base, step)
        wait_until(lambda newest=newest: newest in contents.deltas_of(base), f"the delta {newest}")
    wait_until(lambda: [path[-2:] for path in contents.deltas_of(base)] == ["-6", "-9"], "two deltas")
    run.saving.stop()


def test_no_delta_follows_a_checkpoint_that_was_removed(training):
    """It was not sound. The next delta follows the next checkpoint."""
    run = training(NEVER)
    run.save_last(5)
    checkpoints.remove(run.tables.files.base)
    run.saving._save_delta(run.session, 6, threading.Event())
    assert os.listdir(run.folder) == ["checkpoint"]
    run.save_last(7)
    run.go_to(8)
    run.saving._save_delta(run.session, 8, threading.Event())
    assert contents.deltas_of(run.tables.files.base) == [contents.delta_path(checkpoints.path_of(run.folder, 7), 8)]


def test_damaged_deltas_of_later_steps_displace_no_new_one(training):
    """As after a loss of power: the training went back behind them, and they stay until their checkpoint goes."""
    run = training(NEVER)
    run.save_last(5)
    base = run.tables.files.base
    for step in (5000, 5010):
        _write_damaged(contents.delta_path(base, step))
    for step in (6, 7, 8):
        run.go_to(step)
        run.saving._save_delta(run.session, step, threading.Event())
        assert contents.newest_sound_delta(base) == contents.delta_path(base, step)
    assert contents.deltas_of(base) == [contents.delta_path(base, step) for step in (7, 8, 5000, 5010)]
