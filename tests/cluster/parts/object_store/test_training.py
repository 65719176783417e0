"""Trainings whose train_dir is a URL, in threads: they go on from the store on a machine that has nothing else."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
import uuid

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.__main__ import main
from ps_train.config.folders import local_folder
from ps_train.errors import SaveError
from ps_train.parts.doctor import store as doctor_store
from ps_train.parts.object_store import store as stores
from ps_train.parts.object_store.store import StoreError
from ps_train.storage import checkpoints, run_record
from ps_train.storage.folder_lock import FolderLock
from tests.errors import raises

pytest.importorskip("fsspec", reason="the extra `stores` is not installed")
PLUGIN = "tests.plugins.tiny"
TABLES = "tests.plugins.constant_gradients"


@pytest.fixture
def url(tmp_path, monkeypatch):
    """The URL of an empty folder in memory; the folder of the tasks is in tmp_path."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return f"memory://{uuid.uuid4().hex}/my run"


def train(url, train_steps, plugin=PLUGIN, **flags):
    """Trains up to a global step with two ps."""
    return testing.run_in_threads(plugin, plugin, train_dir=url, num_ps=2, num_workers=1, train_steps=train_steps,
                                  log_steps=0, **flags)


def test_a_training_goes_on_from_the_store(url, caplog):
    """On another machine; nothing of it was kept but the store."""
    train(url, 20)
    store, folder = stores.open_store(url), local_folder(url)
    assert {"model.ckpt-20.manifest.json", "checkpoint", "training.json", "journal.jsonl", "cluster.json"} <= set(
        store.names())
    assert "training.lock" not in store.names()
    assert f"--train_dir={url}" in run_record.read_run(folder)["command"]
    shutil.rmtree(folder)
    caplog.set_level(logging.INFO)
    assert train(url, 30).outcomes[0].first_step == 20
    assert "continuing from" in caplog.text
    assert "model.ckpt-30.manifest.json" in store.names()
    ends = [json.loads(line) for line in store.read("journal.jsonl").splitlines()]
    assert [event["step"] for event in ends if event["event"] == "end"] == [20, 30]
    with raises("other_training_in_folder") as caught:
        train(url, 40, hidden_units=7)
    assert f"{url} belongs to another training" in str(caught.value) and folder not in str(caught.value)


def test_a_chief_whose_machine_lost_power_goes_on_from_the_store(url, caplog):
    """Its copy of the last upload is cut off, and so is what it saved after that."""
    train(url, 20, keep_checkpoint_max=1)
    folder = local_folder(url)
    for suffix in ("index", "data-00000-of-00001"):
        path = os.path.join(folder, f"model.ckpt-20.{suffix}")
        shutil.copy(path, path.replace("-20.", "-30."))
    for step in (20, 30):
        os.truncate(os.path.join(folder, f"model.ckpt-{step}.data-00000-of-00001"), 9)
    assert train(url, 40, keep_checkpoint_max=1).outcomes[0].first_step == 20
    assert "model.ckpt-30" in caplog.text
    assert "model.ckpt-40.manifest.json" in stores.open_store(url).names()


def test_a_second_training_on_this_machine_is_refused_with_the_url(url):
    """Not with the folder in which the first one works, of which the user knows nothing."""
    folder = local_folder(url)
    os.makedirs(folder)
    with FolderLock(folder, 10.0, threading.Event()).holding(), raises("train_dir_in_use") as caught:
        train(url, 20)
    assert url in str(caught.value) and folder not in str(caught.value)


def test_the_rows_of_tables_come_back(url):
    """From the pieces of both ps, which were merged on the machine of the chief."""
    flags = {"plugin": TABLES, "optimizer": "sgd", "learning_rate": 0.1, "embedding_learning_rate": 0.2}
    train(url, 3, **flags)
    folder = local_folder(url)

    def rows():
        pieces = ps_train.read_table(checkpoints.newest_sound(folder), "rows")
        return {int(number): row for ids, values in pieces for number, row in zip(ids, values)}

    before = rows()
    shutil.rmtree(folder)
    train(url, 6, **flags)
    after = rows()
    assert before.keys() == after.keys() and before
    for number, row in before.items():  # by a constant gradient at each step
        np.testing.assert_allclose(after[number], 2 * row, rtol=1e-5)


def test_a_last_upload_that_fails_ends_the_training_with_what_is_missing(url, monkeypatch):
    """The files are on this machine, from where the same command goes on and uploads them."""
    def fail(store, name, path):
        raise StoreError("503 Slow Down")

    with monkeypatch.context() as patched:
        patched.setattr(stores.ObjectStore, "put", fail)
        with raises("upload_unfinished", kind=SaveError) as caught:
            train(url, 20, save_timeout_secs=2)
    assert "model.ckpt-20" in str(caught.value) and "503 Slow Down" in str(caught.value)
    assert os.path.exists(os.path.join(local_folder(url), "model.ckpt-20.index"))
    assert train(url, 20).outcomes[0].first_step == 20
    assert "model.ckpt-20.manifest.json" in stores.open_store(url).names()


@pytest.mark.parametrize(("call", "kind", "code"), [
    ("create", "missing", "store_missing"), ("create", "denied", "store_denied"), ("create", "", "store_unreachable"),
    ("write", "denied", "store_denied"), ("remove", "denied", "store_denied"), ("names", "denied", "store_denied")])
def test_a_store_that_cannot_be_used_is_refused_before_a_socket_opens(url, monkeypatch, call, kind, code):
    """A bucket that does not exist, a right that is missing, and no answer."""
    def fail(store, *arguments, **options):
        raise StoreError("the reason", kind)

    with monkeypatch.context() as patched:
        patched.setattr(stores.ObjectStore, call, fail)
        with raises(code) as caught:
            train(url, 20, start_timeout_secs=0.5)
    assert "the reason" in str(caught.value)
    assert (call == "remove") == bool(stores.open_store(url).names())


def test_verbs_read_a_train_dir_by_its_url(url, tmp_path, monkeypatch, capsys):
    """They fetch what they need, and leave nothing in the temporary folder."""
    train(url, 20, plugin="tests.plugins.tiny_clicks", keep_best="loss", batch_size=50)
    shutil.rmtree(local_folder(url))
    monkeypatch.chdir(tmp_path)
    shown = {}
    for name, more in {"evaluate": ["--checkpoint=20"], "export": ["--export_dir=exported", "--checkpoint=best"],
                       "report": [], "status": [], "resume": []}.items():
        code = main([name, url, *more])
        shown[name] = capsys.readouterr()
        assert code == 0, shown[name]
    assert "loss" in shown["evaluate"].out and os.listdir("exported") == ["20"]
    assert os.path.getsize("report.html") > 1000
    assert "finished" in shown["status"].out + shown["status"].err
    assert f"in {url}\n" in shown["status"].out and f"newest checkpoint: {url}/model.ckpt-20" in shown["status"].out
    assert f"'--train_dir={url}'" in shown["resume"].out
    assert main(["evaluate", url, "--checkpoint=19"]) == 2 and "[no_checkpoint]" in capsys.readouterr().err
    assert main(["evaluate", f"{url}/other"]) == 2 and "[train_dir_missing]" in capsys.readouterr().err
    assert not list(tmp_path.glob("ps_train-*"))


@pytest.mark.parametrize("name", ["", "/model.ckpt-20"])
def test_a_warm_start_takes_the_checkpoint_of_a_store(url, tmp_path, caplog, name):
    """By its folder or its own name; the log and errors have the URL."""
    train(url, 20)
    caplog.set_level(logging.INFO)
    train(str(tmp_path / "new"), 1, init_checkpoint=f"{url}{name}")
    assert "begin with the values in" in caplog.text
    with raises("train_dir_missing") as caught:
        train(str(tmp_path / "other"), 1, init_checkpoint=f"{url}/none")
    assert f"--init_checkpoint: no training in {url}/none" in str(caught.value)


def test_doctor_examines_a_store(url, capsys, monkeypatch):
    """It writes, reads and removes an object; what fails is a line."""
    def lines():
        findings = list(doctor_store.store_folder(url))
        return {finding.subject: (finding.verdict, finding.text) for finding in findings}

    found = lines()
    assert url in found["train_dir"][1] and found["lock"] == ("ok", "no training has this folder")
    assert not stores.open_store(url).names()
    stores.open_store(url).create("training.lock", b"{}")
    assert lines()["lock"] == ("ok", "a training has this folder now")

    def fail(store, name, path):
        raise StoreError("Forbidden", "denied")

    monkeypatch.setattr(stores.ObjectStore, "put", fail)
    assert lines()["train_dir"][0] == "fail" and "Forbidden" in lines()["train_dir"][1]


def test_several_doctors_examine_a_store_at_once(url, monkeypatch):
    """Issue: one removed the object of another one. None leaves an object, not even if it cannot be read."""
    put, others = stores.ObjectStore.put, []

    def put_beside_another(store, name, path):
        put(store, name, path)
        if not others:
            others.append(None)
            others[:] = [finding.verdict for finding in doctor_store.store_folder(url)]

    monkeypatch.setattr(stores.ObjectStore, "put", put_beside_another)
    verdicts = [finding.verdict for finding in doctor_store.store_folder(url)]
    assert "fail" not in verdicts + others and len(others) == len(verdicts)

    def fail(store, name):
        raise StoreError("Forbidden", "denied")

    monkeypatch.setattr(stores.ObjectStore, "read", fail)
    assert "fail" in [finding.verdict for finding in doctor_store.store_folder(url)]
    assert not stores.open_store(url).names()
