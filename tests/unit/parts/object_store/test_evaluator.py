"""What an evaluator takes from a store, and what it puts there."""

from __future__ import annotations

import contextlib
import pathlib
import threading

import pytest

from ps_train.config.task import Config
from ps_train.parts.object_store import evaluator
from ps_train.parts.object_store.part import StorePart
from ps_train.parts.object_store.patience import PatientStore
from ps_train.parts.object_store.store import ObjectStore
from tests.unit.parts.object_store.stores import mirror, new_store, remove, save


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return new_store("memory", tmp_path)


def _part(store, folder):
    patient = PatientStore(store, 1.0, threading.Event())
    evaluations = evaluator.StoreEvaluations(patient, str(folder), threading.Event())
    return StorePart(Config(train_dir=str(folder), train_url=store.url, evaluations=evaluations), None)


def test_an_evaluator_has_the_newest_checkpoints_and_the_journal(store, tmp_path):
    """Nothing of an empty store; of a store that does not change, each file once; two checkpoints at most."""
    chief, here = tmp_path / "chief", tmp_path / "here"
    here.mkdir()
    part, uploads, listened = _part(store, here), mirror(store, chief), []

    @contextlib.contextmanager
    def listening():
        listened.append(None)
        yield

    part.before_look(listening)
    assert not list(here.iterdir())
    for number, step in enumerate((10, 20, 30), 1):
        save(chief, step)
        uploads.upload()
        store.write("journal.jsonl", b"x" * step)
        for _ in range(2):
            part.before_look(listening)
            assert len(listened) == number
            assert (here / f"model.ckpt-{step}.index").exists()
            assert (here / "journal.jsonl").stat().st_size == step
    assert {path.suffix for path in here.glob("model.ckpt-20.*")} == {".index", ".meta", ".data-00000-of-00001"}
    assert not list(here.glob("model.ckpt-10.*"))


def test_the_journal_of_an_earlier_training_does_not_end_an_evaluator(store, tmp_path):
    """It is in the store until the new chief uploads its own."""
    part = _part(store, tmp_path)
    store.write("journal.jsonl", b'{"event": "end", "step": 10}')
    for _ in range(2):
        part.before_look(contextlib.nullcontext)
    assert not (tmp_path / "journal.jsonl").exists()
    store.write("journal.jsonl", b"another")
    part.before_look(contextlib.nullcontext)
    assert (tmp_path / "journal.jsonl").read_bytes() == b"another"


def test_the_journal_is_read_only_if_it_has_changed(store, tmp_path, monkeypatch):
    """Issue: that of a long training is some MB, and was read each second. A change of the same size counts."""
    part, read, real = _part(store, tmp_path), [], ObjectStore.read
    monkeypatch.setattr(ObjectStore, "read", lambda self, name: (read.append(name), real(self, name))[1])
    for number, content in enumerate((None, b"first", b"other", b"longer"), 1):
        if content:
            store.write("journal.jsonl", content)
        for _ in range(3):
            part.before_look(contextlib.nullcontext)
        assert read.count("journal.jsonl") == number
        assert (not content) or (tmp_path / "journal.jsonl").read_bytes() == content


def test_a_checkpoint_that_is_damaged_in_the_store_is_not_evaluated(store, tmp_path, caplog):
    """The one before is there instead."""
    chief, here = tmp_path / "chief", tmp_path / "here"
    here.mkdir()
    part, uploads = _part(store, here), mirror(store, chief)
    for step in (10, 20):
        save(chief, step)
        uploads.upload()
    remove(chief, 10)
    store.write("model.ckpt-20.meta", b"another")
    part.before_look(contextlib.nullcontext)
    assert [path.name for path in here.glob("*.index")] == ["model.ckpt-10.index"]
    assert "model.ckpt-20 is damaged" in caplog.text


def test_a_new_training_in_an_emptied_store_is_evaluated(store, tmp_path):
    """Its steps begin again. Issue: those of the training before stayed here, and hid the new ones."""
    here = tmp_path / "here"
    here.mkdir()
    part = _part(store, here)
    for chief, steps in ((tmp_path / "first", (100, 200)), (tmp_path / "second", (10, 20, 30))):
        store.remove(list(store.names()))
        part.before_look(contextlib.nullcontext)
        uploads = mirror(store, chief)
        for step in steps:
            save(chief, step)
            uploads.upload()
            part.before_look(contextlib.nullcontext)
            assert max(int(path.stem.rpartition("-")[2]) for path in here.glob("*.index")) == step
    assert sorted(path.name for path in here.glob("*.index")) == ["model.ckpt-20.index", "model.ckpt-30.index"]


def test_only_summaries_of_an_evaluator_go_to_the_store_and_each_state_once(store, tmp_path):
    """What it has fetched does not."""
    (tmp_path / "eval").mkdir()
    save(tmp_path, 10)
    events = tmp_path / "eval/events.out.tfevents.1.host.7.0"
    events.write_text("1")
    part = _part(store, pathlib.Path(tmp_path))
    part.after_evaluation(None, "")
    assert store.names(is_deep=True) == {"eval/events.out.tfevents.1.host.7.0": 1}
    store.remove(list(store.names(is_deep=True)))
    part.after_evaluation(None, "")
    assert not store.names(is_deep=True)
    events.write_text("12")
    part.after_evaluation(None, "")
    assert store.names(is_deep=True) == {"eval/events.out.tfevents.1.host.7.0": 2}
