"""Uploads beside training, and what a later training fetches of them."""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import threading
import unittest.mock

import pytest

from ps_train.parts.control.history import PUBLISH_NAME
from ps_train.parts.object_store import calls, fetching, manifests, other_files, uploading
from ps_train.parts.object_store.patience import PatientStore
from ps_train.parts.object_store.store import ObjectStore, RemovedError
from ps_train.parts.selection.record import SELECTION_RECORD
from tests.errors import raises
from tests.unit.parts.object_store import stores
from tests.unit.parts.object_store.stores import FaultyStore, Killed, StoreError, fetched, mirror, new_store, save


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_checkpoint_and_the_other_files_come_back_on_another_machine(tmp_path, protocol):
    """With the best checkpoint in its folder, and without event files, which a training does not read."""
    store, here = new_store(protocol, tmp_path), tmp_path / "here"
    save(here, 5)
    save(here / "best", 3)
    (here / "best" / "training.json").write_text("{}")
    (here / "journal.jsonl").write_text("a line\n")
    (here / "events.out.tfevents.1.host").write_text("events")
    (here / "training.lock").write_text("local")
    (here / "logs").mkdir()
    (here / "logs" / "ps-0.log").write_text("log")
    for folder in ("temp-1700000000", "temp-old-7", "temp-9-ab_3d5fg", "8", "temp-files"):
        (here / "export" / folder).mkdir(parents=True)
        (here / "export" / folder / "saved_model.pb").write_text("a model, or half of one")
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    uploader.start()
    assert uploader.finish(lambda: 60.0) == ""
    assert "events.out.tfevents.1.host" in store.names()
    assert sorted(store.below("export").names(is_deep=True)) == ["8/saved_model.pb", "temp-files/saved_model.pb"]
    assert not {"training.lock", "logs/ps-0.log", manifests.UPLOADING} & set(store.names(is_deep=True))
    there = tmp_path / "there"
    assert fetched(store, there) == ["5"]
    assert (there / "model.ckpt-5.index").read_bytes() == (here / "model.ckpt-5.index").read_bytes()
    assert {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()} == {
        ".store.json", "checkpoint", "journal.jsonl", "best/checkpoint", "best/training.json",
        "export/8/saved_model.pb", "export/temp-files/saved_model.pb",
        *(f"{folder}model.ckpt-{step}.{suffix}" for folder, step in (("", 5), ("best/", 3))
          for suffix in ("data-00000-of-00001", "index", "meta"))}


def _start(store, folder):
    """Returns the Uploader of a training that has fetched what it continues from."""
    folder.mkdir(exist_ok=True)
    fetching.Fetcher(store, str(folder)).fetch_for_training()
    return uploading.Uploader(store, str(folder), 5, lambda: None)


def test_what_a_user_has_below_the_url_is_neither_fetched_nor_replaced(tmp_path):
    """Nor listed. Issue: data and other trainings were downloaded, and later starts put their old state back."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    store._fs = unittest.mock.Mock(wraps=store._fs)
    names = ["vocabulary.txt", "data/part-0.csv", "run2/journal.jsonl", "run2/cluster.json", "run2/best/training.json"]
    for name in names:
        store.write(name, b"old")
    for number in range(3):
        uploader = _start(store, here)
        save(here, 10 * number + 10)
        (here / "journal.jsonl").write_text(f"{number}\n")
        uploader._upload(is_last=True)
        assert not [name for name in names if (here / name).exists()]
        for name in names:
            store.write(name, b"new" * number)
    assert not [call for call in store._fs.ls.mock_calls if call.args[0].endswith(("data", "run2"))]
    assert [store.read(name) for name in names] == [b"newnew"] * len(names)
    assert store.read("journal.jsonl") == b"2\n"


@pytest.mark.parametrize("has_note", [True, False])
def test_what_a_callback_has_written_comes_back_on_another_machine(tmp_path, has_note):
    """Also from a store of an older version, which did not note what it uploaded."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    uploader = _start(store, here)
    save(here, 5)
    (here / "wandb").mkdir()
    for name in ("metrics.csv", "wandb/run.log"):
        (here / name).write_text("1")
    uploader._upload(is_last=True)
    if not has_note:
        store.remove(["uploaded.json"])
    other = _start(store, there)
    assert (there / "metrics.csv").read_text() == (there / "wandb/run.log").read_text() == "1"
    faulty = FaultyStore(store)
    other._store = faulty
    other._upload(is_last=True)
    assert [request for request in faulty.requests if request[0] == "put"] == []
    _start(store, tmp_path / "third")
    assert (tmp_path / "third/metrics.csv").read_text() == "1"


@pytest.mark.parametrize("name", ["../escaped.txt", "a/../../escaped.txt", "/{folder}/escaped.txt"])
def test_a_name_in_the_store_leads_to_no_file_outside_of_the_folder(tmp_path, name):
    """Issue: who may write to the store could write any file of the chief's machine."""
    store = new_store("memory", tmp_path)
    uploader = _start(store, tmp_path / "here")
    save(tmp_path / "here", 5)
    uploader._upload(is_last=True)
    store.write("uploaded.json", json.dumps({"files": [name.format(folder=tmp_path)]}).encode())
    store.write("escaped.txt", b"1")
    _start(store, tmp_path / "there")
    assert not (tmp_path / "escaped.txt").exists() and (tmp_path / "there/journal.jsonl").parent.is_dir()


def test_a_file_counts_where_it_was_changed_last(tmp_path):
    """Here, after its last upload, although the process was killed then; otherwise that of the store."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    names = ("journal.jsonl", "metrics.csv", "best/training.json")
    (here / "best").mkdir(parents=True)
    for machine, text in ((here, "first"), (there, "another machine")):
        uploader = _start(store, machine)
        save(machine, 5)
        for name in names:
            (machine / name).write_text(text)
        uploader._upload(is_last=True)
    uploader = _start(store, here)
    assert {(here / name).read_text() for name in names} == {"another machine"}
    for name in names:
        (here / name).write_text("killed before the upload")
    _start(store, here)._upload(is_last=True)
    assert {store.read(name) for name in names} == {b"killed before the upload"}


def test_a_machine_that_has_the_files_of_an_older_version_does_not_send_them_again(tmp_path):
    """It did not note what it had uploaded; what differs from the store is sent."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    _start(store, here)._upload(is_last=True)
    store.write("vocabulary.txt", b"1")
    (here / "vocabulary.txt").write_text("1")
    (here / "metrics.csv").write_text("2")
    (here / ".store.json").unlink()
    store.write("vocabulary.txt", b"2")
    _start(store, here)._upload(is_last=True)
    assert (store.read("vocabulary.txt"), store.read("metrics.csv")) == (b"2", b"2")


def test_the_files_of_ps_train_are_those_that_its_parts_write():
    """The object store needs none of these parts."""
    assert {SELECTION_RECORD, PUBLISH_NAME} < other_files.OWN


def test_a_reader_never_sees_half_a_checkpoint_however_an_upload_ends(tmp_path):
    """Killed before any of its requests, another machine continues from the checkpoint before or from the new one."""
    here, at, found = tmp_path / "here", 0, []
    while found[-1:] != [["5", "9"]]:
        store = new_store("memory", tmp_path)
        save(here, 5)
        mirror(store, here).upload()
        save(here, 9)
        killed = FaultyStore(store, Killed(), at)
        try:
            mirror(killed, here).upload()
            found.append(["5", "9"])
        except Killed:
            found.append(fetched(store, tmp_path / f"there-{at}"))
        stores.remove(here, 9)
        at += 1
    requests = [request for request in killed.requests]
    visible = requests.index(("write", "model.ckpt-9.manifest.json"))
    assert found[:-1] == [["5"]] * (visible + 1) + [["9"]] * (len(requests) - visible - 1)


def test_an_old_checkpoint_never_loses_its_data_before_its_index(tmp_path):
    """Killed at any point of the pruning, each checkpoint that a reader sees has all of its files."""
    here, at, is_over = tmp_path / "here", 0, False
    while not is_over:
        store = new_store("memory", tmp_path)
        save(here, 5)
        mirror(store, here, keep_max=1).upload()
        save(here, 9)
        try:
            mirror(FaultyStore(store, Killed(), at), here, keep_max=1).upload()
            is_over = True
        except Killed:
            at += 1
        names = store.names()
        unfinished, _ = manifests.read_uploading(store)
        files = manifests.files_by_unit(names)
        assert {len(files[unit]) for unit in manifests.whole_units(names, unfinished)} == {3}
        stores.remove(here, 5)
        stores.remove(here, 9)
    assert at > 6
    assert [unit.step for unit in manifests.whole_units(names, "")] == [9]


def test_an_upload_whose_last_answer_was_lost_is_completed(tmp_path):
    """The manifest is there, and the record and the pruning are not."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    uploads = mirror(store, here, keep_max=1)
    uploads.upload()
    save(here, 9)
    write = store.write

    def lose_answer(name, content):
        write(name, content)
        if name == "model.ckpt-9.manifest.json":
            raise StoreError("connection reset")

    store.write = lose_answer
    with pytest.raises(StoreError):
        uploads.upload()
    store.write = write
    assert uploads.upload()
    assert store.read("checkpoint").decode().startswith('model_checkpoint_path: "model.ckpt-9"')
    assert [unit.step for unit in manifests.whole_units(store.names(), "")] == [9]
    assert manifests.UPLOADING not in store.names()
    assert not uploads.waiting()


def test_the_best_checkpoint_is_the_only_one_in_its_folder(tmp_path):
    """A training that continued from an earlier step may have an earlier best one than the store."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    for step in (9, 7):
        save(here / "best", step)
        uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=True)
        stores.remove(here / "best", step)
    assert [unit.step for unit in manifests.whole_units(store.below("best").names(), "")] == [7]


def test_a_file_may_grow_while_it_is_uploaded(tmp_path):
    """As the journal does; one that arrives short is an error."""
    store, path = new_store("file", tmp_path), tmp_path / "journal.jsonl"
    path.write_text("a line\n")
    put_file = store._fs.put_file

    def put_grown(source, place, **options):
        path.write_text(path.read_text() + "another line\n")
        put_file(source, place, **options)

    store._fs.put_file = put_grown
    store.put("journal.jsonl", str(path))
    assert store.read("journal.jsonl") == b"a line\nanother line\n"
    store._fs.put_file = lambda source, place, **options: store._fs.pipe_file(place, b"a")
    with pytest.raises(StoreError, match="1 bytes there"):
        store.put("journal.jsonl", str(path))


def test_what_a_killed_upload_has_left_is_swept_by_the_next_one(tmp_path):
    """Only that: a checkpoint that a user has copied there has no manifest either."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    for name in ("data-00000-of-00001", "index"):
        store.put(f"model.ckpt-2.{name}", str(here / f"model.ckpt-5.{name}"))
    with pytest.raises(Killed):
        mirror(FaultyStore(store, Killed(), 3), here).upload()
    assert [name for name in store.names() if "ckpt-5" in name]
    save(here, 9)
    mirror(store, here).upload()
    assert sorted(map(str, manifests.files_by_unit(store.names()))) == sorted(
        map(str, [manifests.Unit(2), manifests.Unit(9)]))
    assert manifests.UPLOADING not in store.names()
    assert fetched(store, tmp_path / "there") == ["9"]


def test_what_a_process_killed_while_it_removed_old_checkpoints_has_left_is_removed_later(tmp_path):
    """In any of its requests: nothing of them stays."""
    here, at, num_kills = tmp_path / "here", 0, 0
    while at == 0 or num_kills == at:
        store = new_store("memory", tmp_path)
        for step in (3, 5):
            save(here, step)
            mirror(store, here, keep_max=2).upload()
        save(here, 9)
        faulty = FaultyStore(store, Killed(), at)
        try:
            mirror(faulty, here, keep_max=2).upload()
        except Killed:
            num_kills += 1
        save(here, 12)
        mirror(store, here, keep_max=2).upload()
        kept = {int(name.split("-")[1].split(".")[0]) for name in store.names() if "ckpt" in name}
        assert kept <= {5, 9, 12} and len(kept) == 2, (at, sorted(store.names()))
        at += 1
    assert num_kills > 8  # in its uploads, its record, and its removals


@pytest.mark.parametrize("damage", ["content", "size", "missing"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, caplog, damage):
    """And named."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    for step in (5, 9):
        save(here, step)
        mirror(store, here).upload()
    name = "model.ckpt-9.data-00000-of-00001"
    content = store.read(name)
    if damage == "missing":
        store.remove([name])
    else:
        store.write(name, content[:-1] + (b"?" if damage == "content" else b""))
    assert fetched(store, tmp_path / "there") == ["5"]
    assert f"model.ckpt-9 is damaged: {name}" in caplog.text


def test_a_damaged_checkpoint_is_fetched_once(tmp_path, caplog, monkeypatch):
    """The next starts here see what they have found, and fetch nothing; one that is mended counts again."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (5, 9):
        save(here, step)
        mirror(store, here).upload()
    sound = store.read("model.ckpt-9.index")
    store.write("model.ckpt-9.index", sound[:-1] + b"?")
    fetched(store, there)
    real, got = ObjectStore.get, []
    monkeypatch.setattr(ObjectStore, "get", lambda self, name, path: (got.append(name), real(self, name, path)))
    for _ in range(2):
        caplog.clear()
        assert fetched(store, there) == ["5"]
        assert "model.ckpt-9 is damaged: model.ckpt-9.index has another checksum" in caplog.text
        assert not [name for name in got if "ckpt" in name]
    store.write("model.ckpt-9.index", sound)
    assert fetched(store, there) == ["9"]


def test_a_damaged_file_of_the_best_checkpoint_is_fetched_once(tmp_path, caplog, monkeypatch):
    """A file of the same name that is not the best one's has a memory of its own; one that is mended counts again."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    save(here, 5)
    save(here / "best", 5, "the best")
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=False)
    best = store.below("best")
    sound = best.read("model.ckpt-5.index")
    best.write("model.ckpt-5.index", sound[:-1] + b"?")
    assert fetched(store, there) == ["5"]
    real, got = ObjectStore.get, []
    monkeypatch.setattr(ObjectStore, "get", lambda self, name, path: (got.append(name), real(self, name, path)))
    for _ in range(2):
        caplog.clear()
        assert fetched(store, there) == ["5"]
        assert "best/model.ckpt-5 is damaged: model.ckpt-5.index has another checksum" in caplog.text
        assert not [name for name in got if "ckpt" in name]
    best.write("model.ckpt-5.index", sound)
    fetched(store, there)
    assert (there / "best" / "model.ckpt-5.index").read_bytes() == sound


def test_a_stamp_is_asked_for_again_and_a_removed_file_has_none(tmp_path, monkeypatch):
    """Otherwise one request that fails for a moment would end the start of a training."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (5, 9):
        save(here, step)
        mirror(store, here).upload()
    store.write("model.ckpt-9.index", store.read("model.ckpt-9.index")[:-1] + b"?")
    real, faults = store._fs.checksum, [OSError("503 Slow Down")]
    monkeypatch.setattr(store._fs, "checksum", lambda path: real(path) if not faults else (_ for _ in ()).throw(
        faults.pop()))
    monkeypatch.setattr("ps_train.parts.object_store.patience._PAUSE_SECS", 0.01)
    patient = PatientStore(store, 30.0, threading.Event())
    for _ in range(2):  # the first notes a stamp, the second compares it
        assert fetched(patient, there) == ["5"] and not faults
        faults.append(OSError("503 Slow Down"))
    faults[:] = [FileNotFoundError("model.ckpt-9.index")]
    with pytest.raises(RemovedError):
        patient.stamp("model.ckpt-9.index")


def test_a_full_disk_here_is_no_fault_of_the_store(tmp_path, monkeypatch):
    """It is not asked again; one line names the folder, and what was begun is removed."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    save(here, 5)
    mirror(store, here).upload()

    def fail(path, here):
        with open(here, "w", encoding="utf-8") as file:
            file.write("a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store._fs, "get_file", fail)
    with raises("disk_full") as caught:
        fetched(PatientStore(store, 30.0, threading.Event()), there)
    assert str(there) in str(caught.value) and "No space left on device" in str(caught.value)
    assert not list(there.glob("*.new"))


def test_what_is_there_already_is_not_sent_again(tmp_path, caplog):
    """By a training that continues on this machine; nor does the log say so."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        faulty = FaultyStore(store)
        assert mirror(faulty, here).upload()
    assert not [request for request in faulty.requests if request[0] == "put"]
    assert caplog.text.count("uploaded ") == 1


def test_how_far_the_uploads_are_behind_is_known(tmp_path):
    """Before, after and without an upload, and with the reason of a store that fails."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    here.mkdir()
    uploader = uploading.Uploader(FaultyStore(store, StoreError("503 Slow Down"), 0), str(here), 5, lambda: None)
    assert uploader.progress() == {"step": None, "behind_steps": 0, "secs": None, "reason": ""}
    save(here, 5)
    assert uploader.progress()["behind_steps"] == 5
    with pytest.raises(StoreError):
        uploader._upload(is_last=False)
    uploader._upload(is_last=False)
    save(here, 9)
    progress = uploader.progress()
    assert (progress["step"], progress["behind_steps"]) == (5, 4) and progress["secs"] >= 0


def test_a_call_of_the_store_that_hangs_is_told(tmp_path, monkeypatch):
    """By `status`, at the end, and in one warning. Issue: nothing was uploaded for days, without a reason."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    hangs, goes_on, warnings, put_file = threading.Event(), threading.Event(), queue.Queue(), store._fs.put_file

    def hang(*arguments):
        hangs.set()
        goes_on.wait()
        put_file(*arguments)

    monkeypatch.setattr(store._fs, "put_file", hang)
    for name, value in (("_SILENT_SECS", 0.0), ("_WARN_SECS", 0.0), ("_LOOK_SECS", 0.01)):
        monkeypatch.setattr(calls, name, value)
    monkeypatch.setattr(calls, "_log", unittest.mock.Mock(warning=lambda text, *values: warnings.put(text % values)))
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    uploader.start()
    hangs.wait(60)
    assert uploader.progress()["reason"].startswith("put model.ckpt-5.data-00000-of-00001: no answer for ")
    assert "put model.ckpt-5.data-00000-of-00001: no answer for " in uploader.flush(lambda: 0.0)
    assert any("put model.ckpt-5" in warnings.get(timeout=60) for _ in range(100))
    goes_on.set()
    assert uploader.finish(lambda: 60.0) == ""
    assert uploader.progress()["reason"] == ""


def test_after_a_restart_the_uploads_are_behind_what_the_store_has(tmp_path):
    """Not behind step 0, before the first look; and nothing was sent then."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=False)
    save(here, 9)
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    assert uploader.progress() == {"step": 5, "behind_steps": 4, "secs": None, "reason": ""}
    stores.remove(here, 9)
    save(here, 5)
    uploader._upload(is_last=False)
    assert uploader.progress() == {"step": 5, "behind_steps": 0, "secs": None, "reason": ""}


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "killed before it noted"])
def test_what_was_trained_below_a_damaged_checkpoint_is_kept(tmp_path, caplog, monkeypatch, is_noted):
    """The store has 200, damaged, and 100; it continued from 100, uploaded 150, and saved 170: at every restart."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (100, 200):
        save(here, step)
        mirror(store, here).upload()
    store.write("model.ckpt-200.index", store.read("model.ckpt-200.index")[:-1] + b"?")
    assert fetched(store, there) == ["100"]
    save(there, 150)
    (uploading.Uploader(store, str(there), 5, lambda: None)._mirrors[0] if is_noted else mirror(store, there)).upload()
    save(there, 170)
    real, got = ObjectStore.get, []
    monkeypatch.setattr(ObjectStore, "get", lambda self, name, path: (got.append(name), real(self, name, path)))
    for _ in range(2):
        caplog.clear()
        assert fetched(store, there) == ["100", "150", "170"] and not got
        assert caplog.text.count("model.ckpt-200 is damaged") == 1
    # Another machine finds the same checkpoint; one that lost a file of its own upload in the store keeps its own.
    assert fetched(store, tmp_path / "third") == ["150"]
    store.remove(["model.ckpt-150.meta"])
    assert fetched(store, there) == ["100", "150", "170"]


def test_a_delta_of_a_damaged_checkpoint_is_not_the_newest(tmp_path):
    """Nor is a damaged delta: the checkpoint that is sound is fetched once, and what follows from it is kept."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    uploads = mirror(store, here)
    for step, delta in ((5, None), (5, 7), (9, None), (9, 12)):
        save(here, step, delta=delta)
        uploads.upload()
    for name in ("model.ckpt-9.index", "model.ckpt-5.delta-7.index"):
        store.write(name, store.read(name)[:-1] + b"?")
    assert fetched(store, there) == ["5"]
    save(there, 8)
    for _ in range(2):
        assert fetched(store, there) == ["5", "8"]


def test_a_training_that_continues_below_a_damaged_checkpoint_replaces_it(tmp_path):
    """It comes to the same step again, with other values."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (5, 9):
        save(here, step)
        mirror(store, here).upload()
    store.write("model.ckpt-9.index", b"damaged")
    fetched(store, there)
    save(there, 9, "again")
    mirror(store, there).upload()
    assert fetched(store, tmp_path / "third") == ["9"]
    assert "again" in (tmp_path / "third" / "model.ckpt-9.index").read_text()


def test_what_this_machine_saved_after_its_last_upload_is_kept(tmp_path):
    """A chief was killed before the upload; the files are still here."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    save(here, 5)
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    uploader._upload(is_last=False)
    save(here, 9)
    assert fetched(store, here) == ["5", "9"]


def test_a_chief_that_was_killed_before_it_noted_its_upload_keeps_what_it_has_saved_since(tmp_path):
    """What the store has newest is what is here."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    save(here, 5)
    mirror(store, here).upload()  # notes nothing
    save(here, 9)
    assert fetched(store, here) == ["5", "9"]


def test_a_store_that_cannot_be_listed_is_not_an_empty_one(tmp_path):
    """Otherwise a training would begin again, and remove what is on this machine."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    mirror(store, here).upload()
    fetched(store, tmp_path / "there")
    listed, store._fs = store._fs, unittest.mock.Mock(wraps=store._fs)
    store._fs.ls.side_effect = OSError("503 Slow Down")
    for is_deep in (False, True):
        with pytest.raises(StoreError, match="503 Slow Down"):
            store.names(is_deep=is_deep)
    with pytest.raises(StoreError):
        fetched(store, tmp_path / "there")
    assert (tmp_path / "there" / "model.ckpt-5.index").exists()
    # A request that fails for a while is repeated, and no file is fetched twice.
    store._fs.ls.side_effect = [OSError("503 Slow Down"), *[unittest.mock.DEFAULT] * 20]
    assert fetched(PatientStore(store, 30.0, threading.Event()), tmp_path / "third") == ["5"]
    assert len({str(call) for call in store._fs.get_file.mock_calls}) == store._fs.get_file.call_count
    store._fs = listed


def test_a_checkpoint_that_is_removed_while_it_is_fetched_is_not_taken_for_fetched(tmp_path):
    """The store is listed again, and has a newer one."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    save(here, 5)
    uploads = mirror(store, here, keep_max=1)
    uploads.upload()
    there.mkdir()
    fetcher = fetching.Fetcher(store, str(there))
    [old] = fetcher.units(store.names())
    save(here, 9)
    uploads.upload()
    with pytest.raises(RemovedError):
        fetcher.fetch_unit(old)
    units = iter([[old], fetcher.units(store.names())])
    newest = fetching.listing_again(lambda: fetcher.fetch_newest(next(units)), store.url, threading.Event())
    assert newest.step == 9
    with raises("store_unreachable"), unittest.mock.patch.object(fetching, "_PAUSE_SECS", 0.0):
        fetching.listing_again(lambda: fetcher.fetch_newest([old]), store.url, threading.Event())


@pytest.mark.parametrize("damage", ["cut off", "zeros", "missing"])
@pytest.mark.parametrize("name", [
    "model.ckpt-5.data-00000-of-00001", "model.ckpt-5.delta-7.index", "best/model.ckpt-3.index"])
def test_a_copy_that_was_damaged_on_this_machine_does_not_replace_the_one_in_the_store(tmp_path, damage, name):
    """Issue: a machine lost power, and the next start sent half of a file as a new checkpoint."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    save(here, 5)
    save(here, 5, delta=7)
    save(here / "best", 3)
    uploading.Uploader(store, str(here), 1, lambda: None)._upload(is_last=True)
    sound = (here / name).read_bytes()
    (here / name).unlink()
    if damage != "missing":
        (here / name).write_bytes(sound[:9] if damage == "cut off" else bytes(len(sound)))
    assert fetched(store, here) == ["5", "5.delta-7"]
    assert (here / name).read_bytes() == sound
    uploading.Uploader(store, str(here), 1, lambda: None)._upload(is_last=False)
    assert store.read(name) == sound
    assert fetched(store, tmp_path / "there") == ["5", "5.delta-7"]


@pytest.mark.parametrize(("damaged", "kept", "uploaded"), [
    ([9], ["5", "7"], ["7"]), ([9, 7], ["5"], ["5"]), ([7], ["5", "7", "9"], ["9"])])
def test_an_unreadable_checkpoint_that_was_not_uploaded_does_not_replace_one_in_the_store(
        tmp_path, damaged, kept, uploaded):
    """The machine lost power after the save; what can be read and is later is uploaded."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    save(here, 5)
    save(here / "best", 5)
    uploading.Uploader(store, str(here), 1, lambda: None)._upload(is_last=False)
    stores.remove(here / "best", 5)
    for step in (7, 9):
        save(here, step)
    save(here / "best", damaged[0])
    bad = {str(path) for step in damaged for path in here.rglob(f"model.ckpt-{step}.index")}
    fetching.Fetcher(store, str(here)).fetch_for_training(lambda path: path not in bad)
    assert sorted(path.name.split("-")[1].removesuffix(".index") for path in here.glob("model*.index")) == kept
    aside = {int(path.name.split("-")[2].removesuffix(".index")) for path in here.glob(".unread-*.index")}
    assert aside == {step for step in damaged if step > int(kept[-1])}  # those that would replace it
    assert manifests.recorded_unit(str(here)).step == int(kept[-1])
    assert (here / "best" / "model.ckpt-5.index").exists()
    uploading.Uploader(store, str(here), 1, lambda: None)._upload(is_last=False)
    assert fetched(store, tmp_path / "there") == uploaded


def test_what_can_be_read_here_is_kept_where_the_store_has_only_damaged_checkpoints(tmp_path):
    """Nothing there could replace it."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    save(here, 5)
    uploading.Uploader(store, str(here), 1, lambda: None)._upload(is_last=False)
    store.remove(["model.ckpt-5.meta"])
    assert fetched(store, here) == ["5"]
    assert (here / "model.ckpt-5.meta").exists()


def test_a_training_does_not_start_if_all_checkpoints_are_damaged(tmp_path):
    """It would begin with new parameters, and replace them one by one."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    mirror(store, here).upload()
    store.write("model.ckpt-5.index", b"damaged")
    with raises("checkpoint_unreadable"):
        fetched(store, tmp_path / "there")


def test_unfinished_uploads_of_this_training_only_are_removed(tmp_path):
    """Another one may train in a folder below."""
    keys = ["run/model.ckpt-5.index", "run/best/model.ckpt-5.index", "run/other/model.ckpt-5.index", "run2/x"]
    files = unittest.mock.Mock()
    files.list_multipart_uploads.return_value = [{"Key": key, "UploadId": key} for key in keys]
    ObjectStore(files, "bucket/run", "s3://bucket/run").abort_unfinished_uploads()
    assert [call.kwargs["Key"] for call in files.call_s3.call_args_list] == keys[:2]


def test_the_store_counts_where_another_machine_has_trained(tmp_path, caplog):
    """Else a training would go on from what somebody has replaced. The log names what is removed."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    fetched(store, here)
    save(here, 5)
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=False)
    save(here, 9)
    fetched(store, there)
    save(there, 7)
    uploading.Uploader(store, str(there), 5, lambda: None)._upload(is_last=False)
    assert fetched(store, here) == ["7"]
    [line] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert line.endswith("is removed: model.ckpt-5, model.ckpt-9")


def test_what_was_changed_here_is_not_lost_where_another_machine_has_trained(tmp_path, caplog):
    """A file that is only here stays and is uploaded; of one that the store has, too, both versions are kept."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    fetched(store, here)
    save(here, 5)
    for name in ("metrics.csv", "same.csv", "journal.jsonl", "events.out.tfevents.1.here"):
        (here / name).write_text("5\n")
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=True)
    for name in ("metrics.csv", "journal.jsonl", "events.out.tfevents.1.here"):
        (here / name).write_text("5\n9\n")
    (here / "export").mkdir()
    (here / "export" / "model").write_text("never uploaded")
    (here / "both.csv").write_text("first made by both, here\n")
    fetched(store, there)
    save(there, 7)
    for name in ("metrics.csv", "same.csv", "journal.jsonl"):
        (there / name).write_text("5\n7\n")
    (there / "both.csv").write_text("there\n")
    uploading.Uploader(store, str(there), 5, lambda: None)._upload(is_last=True)
    assert fetched(store, here) == ["7"]
    texts = {path.name: path.read_text() for path in here.rglob("*") if path.is_file()}
    assert texts["metrics.csv"] == texts["same.csv"] == texts["journal.jsonl"] == "5\n7\n"
    assert texts[".changed-metrics.csv"] == texts["events.out.tfevents.1.here"] == "5\n9\n"
    assert texts["model"] == "never uploaded"
    assert (texts["both.csv"], texts[".changed-both.csv"]) == ("there\n", "first made by both, here\n")
    assert f"is kept as {here / '.changed-metrics.csv'}" in caplog.text and "same.csv" not in caplog.text
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=True)
    assert store.read("metrics.csv") == b"5\n7\n" and "export/model" in store.names(is_deep=True)


@pytest.mark.parametrize(("back_to", "kept"), [("5", ["5"]), ("9", ["9"]), ("9.delta-11", ["9", "9.delta-11"])])
def test_a_user_goes_back_by_removing_later_checkpoints_in_the_store(tmp_path, caplog, back_to, kept):
    """Issue: the machine that had saved them uploaded them again. The log names what is removed here."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    for step, delta in ((5, None), (9, None), (9, 11), (12, None), (12, 14)):
        save(here, step, delta=delta)
        uploader._upload(is_last=False)
    later = [unit for unit in manifests.whole_units(store.names(), "")
             if unit > manifests.unit_of(f"model.ckpt-{back_to}.index")]
    store.remove([name for name in store.names() if manifests.unit_of(name) in later])
    assert fetched(store, here) == kept
    [line] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert line.endswith("model.ckpt-12, model.ckpt-12.delta-14")


@pytest.mark.parametrize("keep_max", [1, 5])
def test_a_chief_killed_while_it_replaces_a_checkpoint_in_the_store_keeps_its_own(tmp_path, keep_max):
    """The one there has no manifest meanwhile; nobody has removed it."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    fetched(store, here)
    for step in (5, 9):
        save(here, step)
        uploading.Uploader(store, str(here), keep_max, lambda: None)._upload(is_last=False)
    save(here, 9, "again")
    stores.remove(here, 5)
    with pytest.raises(Killed):
        uploading.Uploader(FaultyStore(store, Killed(), 3), str(here), keep_max, lambda: None)._upload(is_last=False)
    assert not [unit for unit in fetching.Fetcher(store, str(here)).units(store.names()) if unit.step == 9]
    assert fetched(store, here) == ["9"]
    uploading.Uploader(store, str(here), keep_max, lambda: None)._upload(is_last=False)
    assert "again" in store.read("model.ckpt-9.index").decode()


@pytest.mark.parametrize("removed", [".store.json", "*"])
def test_a_store_that_was_emptied_does_not_take_the_checkpoints_on_this_machine_with_it(tmp_path, removed):
    """Issue: AWS_ENDPOINT_URL named another store, and the last checkpoints were gone. The message says what to do."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=False)
    save(here, 9)
    store.remove(store.names())
    with raises("store_emptied") as caught:
        fetched(store, here)
    assert f"remove {here}/.store.json;" in str(caught.value) and "model.ckpt-5" in str(caught.value)
    assert len(list(here.glob("*.index"))) == 2
    for path in here.glob(removed):
        path.unlink()
    assert fetched(store, here) == (["5", "9"] if removed == ".store.json" else [])


def test_old_checkpoints_and_deltas_are_removed_there(tmp_path):
    """The last ones stay, and of deltas the newest; TensorFlow's record names what is there."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    uploads = mirror(store, here, keep_max=2)
    for step, delta in ((5, None), (5, 6), (5, 7), (9, None), (12, None), (12, 13), (12, 14)):
        save(here, step, delta=delta)
        uploads.upload()
    assert [unit.name for unit in manifests.whole_units(store.names(), "")] == [
        "model.ckpt-9", "model.ckpt-12", "model.ckpt-12.delta-14"]
    assert store.read("checkpoint").decode().splitlines() == [
        'model_checkpoint_path: "model.ckpt-12"', 'all_model_checkpoint_paths: "model.ckpt-9"',
        'all_model_checkpoint_paths: "model.ckpt-12"']
    assert fetched(store, tmp_path / "there") == ["12", "12.delta-14"]


def test_what_cannot_be_removed_in_the_store_does_not_stop_the_uploads(tmp_path, caplog, monkeypatch):
    """Issue: neither the best checkpoint nor the journal came there. It is removed when that is possible."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    rm_file = store._fs.rm_file
    monkeypatch.setattr(store._fs, "rm_file", unittest.mock.Mock(side_effect=PermissionError("Access Denied")))
    uploader = uploading.Uploader(store, str(here), 1, lambda: None)
    for step in (5, 9):
        save(here, step)
        save(here / "best", step)
        (here / "journal.jsonl").write_text(f"{step}")
        uploader._upload(is_last=True)
        assert not [unit for mirror in uploader._mirrors for unit in mirror.waiting()]
    assert store.read("journal.jsonl") == b"9" and "Access Denied; the next upload tries again" in caplog.text
    assert fetched(store, tmp_path / "there") == ["9"]
    monkeypatch.setattr(store._fs, "rm_file", rm_file)
    save(here, 12)
    uploader._upload(is_last=True)
    assert [unit.step for unit in manifests.files_by_unit(store.names())] == [12]
    assert manifests.UPLOADING not in store.names()


def test_the_newest_is_uploaded_next_and_training_may_remove_what_is_under_way(tmp_path):
    """Nothing queues up in a store that is slower than training."""
    store, here = FaultyStore(new_store("memory", tmp_path)), tmp_path / "here"
    uploads = mirror(store, here)
    save(here, 5)

    def train_on(name, path):
        stores.remove(here, 5)
        for step in (7, 9):
            save(here, step)
        FaultyStore.put(store, name, path)

    store.put = train_on
    uploads.upload()
    del store.put
    uploads.upload()
    assert fetched(store, tmp_path / "there") == ["9"]
    assert [unit.step for unit in manifests.whole_units(store.names(), "")] == [5, 9]
    assert not uploads.waiting()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_folder_without_hard_links_is_uploaded_from_copies(tmp_path, monkeypatch, caplog, number):
    """Issue: on FUSE, exFAT, some NFS and SMB, nothing was uploaded, and each try warned."""
    store, here = FaultyStore(new_store("memory", tmp_path)), tmp_path / "here"
    monkeypatch.setattr(os, "link", unittest.mock.Mock(side_effect=OSError(number, os.strerror(number))))
    uploads = mirror(store, here)
    save(here, 5)

    def train_on(name, path):
        stores.remove(here, 5)
        save(here, 7)
        FaultyStore.put(store, name, path)

    store.put = train_on
    assert uploads.upload()
    del store.put
    assert [unit.step for unit in manifests.whole_units(store.names(), "")] == [5]
    uploads.upload()
    assert fetched(store, tmp_path / "there") == ["7"]
    assert not (here / ".upload").exists()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"cannot make hard links in {here}: {os.strerror(number)}; ")


@pytest.fixture
def without_links(monkeypatch):
    """Makes hard links fail, as on FUSE; returns what counts the copies."""
    monkeypatch.setattr(os, "link", unittest.mock.Mock(side_effect=PermissionError(errno.EPERM, "no links")))
    copies = unittest.mock.Mock(wraps=uploading.shutil.copyfile)
    monkeypatch.setattr(uploading.shutil, "copyfile", copies)
    return copies


def test_half_a_copy_is_removed_at_once(tmp_path, without_links):
    """Issue: it kept the rest of a full disk until the next try, so that training could not save."""
    here = tmp_path / "here"

    def fill(source, target):
        with open(target, "w", encoding="utf-8") as file:
            file.write("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    without_links.side_effect = fill
    uploads = mirror(new_store("memory", tmp_path), here)
    save(here, 5)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        uploads.upload()
    assert not (here / ".upload").exists()


def test_copies_leave_training_the_space_of_its_next_save(tmp_path, monkeypatch, without_links):
    """After the last save, they may take it; a file system that does not say how much it has may have enough."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    save(here, 5)
    size = sum(path.stat().st_size for path in here.glob("model.*"))
    usage = unittest.mock.Mock(total=10 * size, free=2 * size - 1)
    monkeypatch.setattr(uploading.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="has no hard links, and .* for a copy of the checkpoint and the next save"):
        uploader._upload(is_last=False)
    assert not without_links.mock_calls and not (here / ".upload").exists()
    uploader._upload(is_last=True)
    for step, usage.total, usage.free in ((7, 10 * size, 2 * size), (9, 0, 0)):
        save(here, step)
        uploader._upload(is_last=False)
    assert fetched(store, tmp_path / "there") == ["9"]
    save(here, 11)
    usage.total, usage.free = 10 * size, size // 2
    with pytest.raises(OSError, match="needed for a copy of the checkpoint; make"):
        uploader._upload(is_last=True)


def test_a_store_that_is_away_costs_no_copies(tmp_path, monkeypatch, without_links):
    """Each try made them before it asked the store."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    uploads = mirror(store, here)
    save(here, 5)
    monkeypatch.setattr(store, "names", unittest.mock.Mock(side_effect=StoreError("503")))
    with pytest.raises(StoreError):
        uploads.upload()
    assert not without_links.mock_calls


@pytest.mark.parametrize("change", [stores.remove, lambda folder, step: save(folder, step, "of another training")])
def test_a_checkpoint_that_is_removed_or_replaced_while_it_is_copied_is_not_uploaded(tmp_path, monkeypatch, change):
    """Half of it would be of the other one; the next look takes what is there then."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    monkeypatch.setattr(os, "link", unittest.mock.Mock(side_effect=PermissionError(errno.EPERM, "")))
    uploads, copy = mirror(store, here), uploading.shutil.copyfile
    save(here, 5)

    def copy_and_change(source, target):
        copy(source, target)
        monkeypatch.undo()
        change(here, 5)

    monkeypatch.setattr(uploading.shutil, "copyfile", copy_and_change)
    uploads.upload()
    assert not store.names()
    save(here, 6)
    uploads.upload()
    assert fetched(store, tmp_path / "there") == ["6"]


def test_an_upload_that_failed_goes_on_with_the_files_that_are_missing(tmp_path):
    """The others are there, with their checksums."""
    store, here = FaultyStore(new_store("memory", tmp_path), StoreError("503"), at=3), tmp_path / "here"
    save(here, 5)
    uploads = mirror(store, here)
    with pytest.raises(StoreError):
        uploads.upload()
    before = [name for method, name in store.requests[:-1] if method == "put"]
    uploads.upload()
    after = [name for method, name in store.requests[4:] if method == "put"]
    assert before and after and not set(before) & set(after)
    assert fetched(store, tmp_path / "there") == ["5"]


def test_the_end_waits_for_a_store_that_fails_for_a_while_and_names_what_is_missing_when_time_is_over(tmp_path):
    """The wait has a bound."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    failing = threading.Event()
    failing.set()
    put = store.put

    def put_or_fail(name, path):
        if failing.is_set():
            raise StoreError("503 Slow Down")
        put(name, path)

    store.put = put_or_fail
    uploader = uploading.Uploader(store, str(here), 5, lambda: None)
    uploader.start()
    missing = uploader.flush(lambda: 0.0 if uploader._reason else 60.0)
    assert "model.ckpt-5" in missing and "503 Slow Down" in missing
    failing.clear()
    assert uploader.finish(lambda: 60.0) == ""
    assert fetched(store, tmp_path / "there") == ["5"]


def test_a_manifest_cannot_write_outside_of_the_folder(tmp_path):
    """Whoever can write to a store must not be able to write to the machines that read it."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    save(here, 5)
    mirror(store, here).upload()
    manifest = json.loads(store.read("model.ckpt-5.manifest.json"))
    manifest["files"]["../outside"] = [1, ""]
    store.write("model.ckpt-5.manifest.json", json.dumps(manifest).encode())
    assert fetched(store, tmp_path / "there") == ["5"]
    assert not os.path.exists(tmp_path / "outside")
