"""One training at a time saves to a train_dir: in threads, then with real processes as a user meets it."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import signal
import threading
import time

import pytest

from ps_train.errors import ConfigError, FolderLostError, StoppedError
from ps_train.storage import folder_lock
from ps_train.storage.folder_lock import FolderLock
from tests import clusters
from tests.errors import raises
from tests.processes import DEADLINE_SECS, TaskCluster
from tests.training import GATE_BATCH

ELSEWHERE = {"host": "elsewhere", "process": 1, "since": "2030-01-02 03:04:05 +0000", "machine": "another",
             "start": "5", "token": "0c"}


@pytest.fixture
def fast_beats(monkeypatch):
    """Beats 50 times a second."""
    monkeypatch.setattr(folder_lock, "_BEAT_SECS", 0.02)


def wait_for(condition, what):
    """Returns when the condition holds, which must be before the deadline."""
    end_secs = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < end_secs, what
        time.sleep(0.01)


def lock_of(train_dir):
    """Returns the content of the lock."""
    return json.loads((pathlib.Path(train_dir) / folder_lock.LOCK_NAME).read_text())


def take(train_dir, count=0):
    """Takes the folder as a training on another machine does."""
    temporary = pathlib.Path(train_dir) / "temporary"
    temporary.write_text(json.dumps({**ELSEWHERE, "count": f"{count:012}"}))
    temporary.replace(pathlib.Path(train_dir) / folder_lock.LOCK_NAME)


def test_a_held_folder_has_a_lock_whose_count_goes_up(tmp_path, stop, fast_beats):
    """It names the process; afterwards no file is left."""
    lock = FolderLock(str(tmp_path), 9.0, stop)
    with lock.holding():
        assert lock_of(tmp_path)["process"] == os.getpid()
        wait_for(lambda: int(lock_of(tmp_path)["count"]) > 3, "the count goes up")
        lock.check()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_held_once(tmp_path, stop, fast_beats):
    """The second holder is refused and leaves the lock as it is; after the end of the first it may hold it."""
    with FolderLock(str(tmp_path), 9.0, stop).holding():
        with raises("train_dir_in_use", kind=ConfigError), FolderLock(str(tmp_path), 9.0, stop).holding():
            pytest.fail("held twice")
        assert lock_of(tmp_path)["process"] == os.getpid()
    with FolderLock(str(tmp_path), 9.0, stop).holding():
        assert lock_of(tmp_path)["process"] == os.getpid()


def test_a_removed_lock_is_created_again(tmp_path, stop, fast_beats):
    """As when the folder is emptied while training goes on."""
    lock = FolderLock(str(tmp_path), 9.0, stop)
    with lock.holding():
        (tmp_path / folder_lock.LOCK_NAME).unlink()
        lock.check()
        before = lock_of(tmp_path)
        wait_for(lambda: lock_of(tmp_path) != before, "the count goes up in the new one")


def test_a_training_that_lost_its_folder_is_stopped_and_leaves_the_lock_alone(tmp_path, stop, fast_beats):
    """It ends as after a signal, but with exit code 138, and the error says why."""
    lock = FolderLock(str(tmp_path), 9.0, stop)
    with raises("folder_lost", kind=FolderLostError) as caught, lock.holding():
        take(tmp_path)
        assert stop.wait(DEADLINE_SECS)
        with pytest.raises(FolderLostError):
            lock.check()
        raise StoppedError("stopped", "stopped at step 7")
    assert caught.value.exit_code == 138 and "process 1 on elsewhere" in str(caught.value)
    assert lock_of(tmp_path)["token"] == ELSEWHERE["token"]


def test_a_check_alone_notices_the_loss(tmp_path, stop):
    """A process that wakes up may save before its next beat."""
    lock = FolderLock(str(tmp_path), 9.0, stop)
    with lock.holding():
        take(tmp_path)
        with pytest.raises(FolderLostError):
            lock.check()
        assert stop.is_set()


def test_where_no_lock_can_be_written_training_goes_on(tmp_path, stop, fast_beats, monkeypatch, caplog):
    """It warns once, and tries again."""
    caplog.set_level(logging.WARNING, "ps_train")
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    write, full = folder_lock.write_lock, threading.Event()
    full.set()

    def write_to_full_disk(file, content):
        if full.is_set():
            raise OSError(28, "No space left on device")
        write(file, content)

    monkeypatch.setattr(folder_lock, "write_lock", write_to_full_disk)
    lock = FolderLock(str(tmp_path), 9.0, stop)
    with lock.holding():
        lock.check()
        full.clear()
        wait_for(lambda: folder_lock.read_lock(str(tmp_path / folder_lock.LOCK_NAME)), "it is tried again")
        full.set()
        wait_for(lambda: "the next try is in" in caplog.text, "a warning about a beat that fails")
        lock.check()
    assert caplog.text.count("No space left on device") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_lost_and_comes_back_is_held_again(tmp_path, stop, fast_beats):
    """No other training can have it while it is missing."""
    folder = tmp_path / "train"
    folder.mkdir()
    lock = FolderLock(str(folder), 9.0, stop)
    with lock.holding():
        folder.rename(tmp_path / "elsewhere")
        lock.check()
        folder.mkdir()
        wait_for(lambda: folder_lock.read_lock(str(folder / folder_lock.LOCK_NAME)), "it is held again")
    assert not stop.is_set()


def other_training(training, name, *flags):
    """Starts the chief of another cluster in the training's folder."""
    elsewhere = TaskCluster(1, 1)
    training.group.start(name, [*elsewhere.flags("worker", 0), *training.flags, *flags], cwd=training.folder)


def test_a_second_training_in_the_folder_is_refused_and_the_first_goes_on(train):
    """Matrix row 56: exit code 2 in one line, before a socket opens; launch says so before it starts a task."""
    training = train(1, 1)
    training.wait_for_gates()
    chief = lock_of(training.train_dir)
    other_training(training, "second")
    training.group.start("launch", ["launch", "--num_ps=1", *training.flags], cwd=training.folder)
    for name in ("second", "launch"):
        assert training.group.exit_code(name) == 2
        line = training.group.log(name).splitlines()[-1]
        assert line.endswith("[train_dir_in_use]") and f" {training.train_dir};" in line
        assert f"process {chief['process']} on {chief['host']}, since {chief['since']}," in line
        assert "serves at" not in training.group.log(name)
    assert "Starting" not in training.group.log("launch")
    training.open_gates()
    training.assert_ends_well(killed=["second", "launch"])
    assert not (training.train_dir / folder_lock.LOCK_NAME).exists()


def test_a_killed_chief_leaves_the_folder_to_the_next_one(train):
    """Matrix row 56: at once, as the machine knows that it has ended."""
    training = train(1, 1)
    training.wait_for_gates()
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    training.group.wait_for_line("worker-0-again", "has ended: removing its lock on")
    training.wait_for_gates("worker-0-again")
    assert "waiting" not in training.group.log("worker-0-again").partition("serves at")[0]
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])


def test_a_holder_on_another_machine_is_waited_for_and_then_forgotten(train):
    """Matrix row 56: the chief names the holder, which gives no sign of life."""
    training = train(1, 1, absent=["worker-0"])
    training.train_dir.mkdir()
    take(training.train_dir)
    training.open_gates()
    training.start("worker", 0)
    training.assert_ends_well()
    log = training.group.log("worker-0")
    assert ("process 1 on elsewhere, since 2030-01-02 03:04:05 +0000, has a lock on "
            f"{training.train_dir}; waiting 4 s for a sign of life") in log
    assert "has ended: removing its lock on" in log


def test_a_frozen_chief_that_lost_the_folder_saves_nothing_and_ends_with_138(train):
    """Matrix row 56: when it wakes up, another training is there."""
    training = train(1, 1, flags=["--save_model_steps=1", "--keep_checkpoint_max=100", "--idle_timeout_secs=12"],
                     is_ps_last=True)
    training.wait_for_gates()
    # A save that is under way when it is frozen would end when it wakes up.
    training.group.wait_for_line("worker-0", f"saved {training.train_dir}/model.ckpt-{GATE_BATCH}")
    training.group.pause("worker-0")
    take(training.train_dir)
    before = sorted(path.name for path in training.train_dir.glob("*ckpt*"))
    training.open_gates()
    training.group.resume("worker-0")
    assert training.group.exit_code("worker-0") == 138
    assert training.group.log("worker-0").splitlines()[-1].endswith("[folder_lost]")
    assert sorted(path.name for path in training.train_dir.glob("*ckpt*")) == before
    assert lock_of(training.train_dir)["token"] == ELSEWHERE["token"]
    training.group.exit_code("ps-0")
    assert clusters.read_checkpoint(training.train_dir)["global_step"] < training.train_steps


def test_on_the_keras_road_a_folder_is_held_too(start_process, tmp_path):
    """Matrix row 56: the second `ps_train keras` is refused, and the first one ends well."""
    pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")
    flags = ["keras", "--dataset=data.digits", "--train_steps=1000000", f"--train_dir={tmp_path}/train"]
    start_process.start("first", flags)
    start_process.wait_for_line("first", " step ")
    start_process.start("second", flags)
    assert start_process.exit_code("second") == 2
    assert "[train_dir_in_use]" in start_process.log("second")
    start_process.signal("first", signal.SIGTERM)
    assert start_process.exit_code("first") == 143
    assert not (tmp_path / "train" / folder_lock.LOCK_NAME).exists()
