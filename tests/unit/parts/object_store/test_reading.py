"""What verbs fetch from a store lies in a temporary folder, of which nothing stays and nobody reads."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from ps_train.errors import CheckpointError, StoppedError
from ps_train.parts.object_store import reading
from ps_train.parts.object_store.store import ObjectStore
from ps_train.runtime import logs
from tests.errors import raises
from tests.unit.parts.object_store.stores import mirror, new_store, save


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with a checkpoint; the temporary folder is an empty one."""
    made = new_store("memory", tmp_path)
    save(tmp_path / "here", 5)
    mirror(made, tmp_path / "here").upload()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return made


def folders():
    return os.listdir(tempfile.gettempdir())


def test_results_errors_and_the_log_name_the_url(store, capsys):
    """In place of the folder, as long as the verb runs."""
    logs.setup()
    with (raises("no_checkpoint", kind=CheckpointError) as caught,
          reading.fetched_words(["--train_dir", store.url, "--json"], "checkpoint") as words):
        folder = words[0].removeprefix("--train_dir=")
        assert words[1:] == ["--json"] and os.path.exists(f"{folder}/model.ckpt-5.index")
        logs.show(f"{folder}/model.ckpt-5")
        logging.getLogger("ps_train").info("read %s/model.ckpt-5", folder)
        raise CheckpointError("no_checkpoint", f"{folder}/model.ckpt-5 is another one")
    printed = capsys.readouterr()
    assert printed.out == f"{store.url}/model.ckpt-5\n"
    assert f"read {store.url}/model.ckpt-5" in printed.err
    assert caught.value.lines() == [f"{store.url}/model.ckpt-5 is another one [no_checkpoint]"]
    assert logs.with_names(folder) == folder
    assert not folders()


def test_two_checkpoints_are_fetched_for_a_comparison(store, tmp_path):
    """That of --since beside the newest one, or that of --checkpoint; the record names the later one."""
    save(tmp_path / "here", 9)
    mirror(store, tmp_path / "here").upload()
    url = f"--train_dir={store.url}"
    for flags in (["--since=5"], ["--since", "5", "--checkpoint=9"]):
        with reading.fetched_words([url, *flags], "checkpoint") as words:
            folder = words[0].removeprefix("--train_dir=")
            assert words[1:] == flags and {"model.ckpt-5.index", "model.ckpt-9.index"} <= {*os.listdir(folder)}
            with open(f"{folder}/checkpoint", encoding="utf-8") as file:
                assert 'model_checkpoint_path: "model.ckpt-9"' in file.read()
    with raises("no_checkpoint") as caught, reading.fetched_words([url, "--since=6"], "checkpoint"):
        pass
    assert f"--since: got '6'; {store.url} has 5, 9" in str(caught.value)


@pytest.mark.parametrize("place", ["in the download", "in the verb"])
def test_a_verb_that_is_stopped_leaves_nothing(store, monkeypatch, place):
    """SIGTERM while the checkpoint is fetched, and before the verb itself handles signals."""
    if place == "in the download":
        real = ObjectStore.get

        def get(self, name, path):
            real(self, name, path)
            if name.endswith(".meta"):
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(ObjectStore, "get", get)
    handler = signal.getsignal(signal.SIGTERM)
    with raises("stopped", kind=StoppedError), reading.fetched_words([f"--train_dir={store.url}"], "checkpoint"):
        assert place == "in the verb" and folders()
        os.kill(os.getpid(), signal.SIGTERM)
    assert not folders() and signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.parametrize("step", [3, 7])
def test_a_verb_finds_the_newest_checkpoint_of_the_kind_that_it_reads(store, tmp_path, step):
    """Issue: with a later checkpoint of the other kind in the folder there was none."""
    (tmp_path / "keras").mkdir()
    (tmp_path / f"keras/ckpt-{step:08d}.keras").touch()
    mirror(store, tmp_path / "keras").upload()
    with reading.fetched_words([f"--train_dir={store.url}"], "checkpoint") as words:
        names = set(os.listdir(words[0].removeprefix("--train_dir=")))
    assert {f"ckpt-{step:08d}.keras", "model.ckpt-5.index", "checkpoint"} <= names


@pytest.mark.parametrize(("needs", "more"), [
    ("", set()), ("checkpoint", {"best/training.json"}),
    ("curves", {"events.out.tfevents.1.h", "eval/events.out.tfevents.1.h"})])
def test_of_other_files_a_verb_fetches_only_those_of_this_training(store, needs, more):
    """Not data and other trainings below its folder."""
    own = {"journal.jsonl", "cluster.json", "launch.json", "training.json", "selection.json", "publish.json"}
    for name in own | {"best/training.json", "events.out.tfevents.1.h", "eval/events.out.tfevents.1.h",
                       "data/part-0.csv", "vocabulary.txt", "run2/journal.jsonl", "run2/events.out.tfevents.1.h"}:
        store.write(name, b"{}")
    with reading.fetched_words([f"--train_dir={store.url}"], needs) as words:
        folder = words[0].removeprefix("--train_dir=")
        found = {os.path.relpath(os.path.join(place, name), folder)
                 for place, _, names in os.walk(folder) for name in names if "ckpt" not in name}
    assert found - {".lock", "checkpoint"} == own | more


def test_the_lock_and_the_manifest_of_a_keras_checkpoint_are_fetched_for_status(store, tmp_path):
    """Not the checkpoint itself, which may be large."""
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras/ckpt-00000007.keras").touch()
    mirror(store, tmp_path / "keras").upload()
    store.write("training.lock", b"{}")
    with reading.fetched_words([f"--train_dir={store.url}"], "") as words:
        names = set(os.listdir(words[0].removeprefix("--train_dir=")))
    assert {"ckpt-00000007.manifest.json", "training.lock", "model.ckpt-5.index"} <= names
    assert not {"ckpt-00000007.keras", "model.ckpt-5.meta"} & names


def test_what_a_killed_verb_has_left_is_removed_by_the_next_one(store):
    """What a living one has is not."""
    code = ("import os, sys, time; from ps_train.parts.object_store import reading\n"
            "with reading.temporary_folder() as folder:\n    print(folder, flush=True); time.sleep(1000)")
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "TMPDIR": tempfile.gettempdir()}) for _ in range(2)]
    try:
        (killed, kept) = [process.stdout.readline().strip() for process in processes]
        processes[0].kill()
        processes[0].wait()
        with reading.fetched_words([f"--train_dir={store.url}"], "checkpoint"):
            assert not os.path.exists(killed) and os.path.exists(kept)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def test_a_folder_that_is_just_being_made_is_no_leftover(store, monkeypatch):
    """Another verb looks between the moment when its lock file is made and the one when it is locked."""
    real = fcntl.flock

    def flock(lock, operation):
        if not operation & fcntl.LOCK_NB:
            reading._remove_leftovers()
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with reading.temporary_folder() as folder:
        assert folders() == [os.path.basename(folder)]
        reading._remove_leftovers()
        assert os.path.exists(os.path.join(folder, ".lock"))
    assert not folders()


def test_a_leftover_is_removed_under_its_lock(store, monkeypatch):
    """So that no other process uses it meanwhile."""
    leftover = os.path.join(tempfile.gettempdir(), "ps_train-fetched-x")
    os.mkdir(leftover)
    open(os.path.join(leftover, ".lock"), "wb").close()
    real, removed = shutil.rmtree, []

    def rmtree(path, **options):
        with open(os.path.join(path, ".lock"), "rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        removed.append(path)
        real(path, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    reading._remove_leftovers()
    assert removed == [leftover] and not folders()


def test_a_leftover_without_its_lock_is_removed(store):
    """A verb that was killed while it removed its folder had removed the lock first; the rest stayed for ever."""
    leftover = os.path.join(tempfile.gettempdir(), "ps_train-fetched-y")
    os.mkdir(leftover)
    open(os.path.join(leftover, "model.ckpt-5.data-00000-of-00001"), "wb").close()
    reading._remove_leftovers()
    assert not folders()
