"""Checkpoints of `ps_train keras` in a store: one file each, without a record of TensorFlow."""

from __future__ import annotations

import zipfile

import pytest

from ps_train.parts.object_store import fetching, manifests, other_files, part, uploading
from tests.unit.parts.object_store import stores
from tests.unit.parts.object_store.stores import FaultyStore, Killed, mirror, new_store


def _save(folder, step):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"ckpt-{step:08d}.keras").write_text(f"the model after step {step}")


def _fetched(store, folder):
    folder.mkdir(exist_ok=True)
    fetching.Fetcher(store, str(folder)).fetch_for_training()
    return sorted(path.name for path in folder.glob("*.keras"))


def _visible(store):
    return [unit.name for unit in manifests.whole_units(store.names(), manifests.read_uploading(store)[0])]


@pytest.mark.parametrize("name", ["ckpt-00000005.keras", "ckpt-123456789.keras", "model.ckpt-5.index",
                                  "model.ckpt-5.delta-7.index"])
def test_a_unit_is_known_by_the_name_of_its_head(name):
    """And by that of its manifest."""
    unit = manifests.unit_of(name)
    assert unit.head == name and manifests.unit_of(unit.manifest) == unit


@pytest.mark.parametrize("name", ["ckpt-5.keras", ".saving.keras", "ckpt-00000005.keras.new", "my-ckpt-00000005.keras"])
def test_other_files_are_no_checkpoints(name):
    """A model that a user has put there, and what is being written."""
    assert manifests.unit_of(name) is None


def test_the_newest_of_keras_comes_back_on_another_machine_and_older_ones_are_removed(tmp_path):
    """With the small files, without the one that is being written; a record of TensorFlow is never made."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (5, 9, 12):
        _save(here, step)
        (here / ".saving.keras").write_text("half of it")
        (here / "training.json").write_text("{}")
        uploading.Uploader(store, str(here), 2, lambda: None)._upload(is_last=True)
    assert _fetched(store, there) == ["ckpt-00000012.keras"]
    assert (there / "ckpt-00000012.keras").read_text() == "the model after step 12"
    assert set(store.names()) == {"training.json", "uploaded.json", *(
        f"ckpt-{step:08d}.{suffix}" for step in (9, 12) for suffix in ("keras", "manifest.json"))}
    assert {path.name for path in there.iterdir()} == {".store.json", "ckpt-00000012.keras", "training.json"}


def test_a_reader_sees_the_checkpoint_of_keras_before_or_the_new_one_wherever_an_upload_is_killed(tmp_path):
    """And the next upload sweeps what it has left."""
    here, at, found = tmp_path / "here", 0, []
    while "whole" not in found:
        store = new_store("memory", tmp_path)
        _save(here, 5)
        mirror(store, here, keep_max=1).upload()
        _save(here, 9)
        try:
            mirror(FaultyStore(store, Killed(), at), here, keep_max=1).upload()
            found.append("whole")
        except Killed:
            found += _fetched(store, tmp_path / f"there-{at}")
        (here / "ckpt-00000009.keras").unlink()
        _save(here, 12)
        mirror(store, here, keep_max=1).upload()
        assert set(store.names()) == {"ckpt-00000012.keras", "ckpt-00000012.manifest.json"}
        (here / "ckpt-00000012.keras").unlink()
        at += 1
    before = found.index("ckpt-00000009.keras")
    assert before >= 3  # the note, the file, the manifest
    assert found == ["ckpt-00000005.keras"] * before + ["ckpt-00000009.keras"] * (len(found) - before - 1) + ["whole"]


def test_a_damaged_file_of_keras_is_passed_over_and_fetched_once(tmp_path, caplog):
    """The checkpoint before counts."""
    store, here, there = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "there"
    for step in (5, 9):
        _save(here, step)
        mirror(store, here).upload()
    store.write("ckpt-00000009.keras", b"the model after step 8")
    for _ in range(2):
        assert _fetched(store, there) == ["ckpt-00000005.keras"]
    assert caplog.text.count("ckpt-00000009 is damaged") == 2
    assert caplog.text.count("as at the last start") == 1


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_copy_of_keras_that_was_damaged_on_this_machine_is_fetched_again(tmp_path, is_noted):
    """A later one here stays if it can be read."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    _save(here, 5)
    uploading.Uploader(store, str(here), 1, lambda: None, True)._upload(is_last=False)
    if not is_noted:
        (here / other_files.KNOWN).unlink()
    (here / "ckpt-00000005.keras").write_bytes(b"half")
    fetcher = fetching.Fetcher(store, str(here), is_keras=True)
    fetcher.fetch_for_training()
    assert (here / "ckpt-00000005.keras").read_text() == "the model after step 5"
    for step in (7, 9):
        _save(here, step)
    fetching.Fetcher(store, str(here), is_keras=True).fetch_for_training(lambda path: not path.endswith("9.keras"))
    assert manifests.recorded_unit(str(here), True) == manifests.Unit(7, is_keras=True)
    uploading.Uploader(store, str(here), 1, lambda: None, True)._upload(is_last=False)
    assert _visible(store) == ["ckpt-00000007"]


@pytest.mark.parametrize(("end", "is_readable"), [(None, True), (30, False), (0, False)])
def test_a_file_of_keras_is_readable_if_its_archive_is_whole(tmp_path, caplog, end, is_readable):
    """Otherwise a warning names it."""
    path = tmp_path / "ckpt-00000005.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.weights.h5", "the weights")
    path.write_bytes(path.read_bytes()[:end])
    assert part._check_of(True)(str(path)) == is_readable
    assert (str(path) in caplog.text) != is_readable


@pytest.mark.parametrize("value", [0x01, 0x20])
def test_a_wrong_bit_in_the_directory_of_an_archive_is_a_warning(tmp_path, caplog, value):
    """It was a traceback at each start: the first is that of a password, the second that of patches."""
    path = tmp_path / "ckpt-00000005.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.weights.h5", "the weights")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] ^= value  # the flags of the file in it
    path.write_bytes(content)
    assert not part._check_of(True)(str(path))
    assert str(path) in caplog.text


def test_uploads_of_keras_remove_no_checkpoints_of_graph_training(tmp_path):
    """Nor the other way round: one has a user's old results, which nobody can make again."""
    store, here, graph = new_store("memory", tmp_path), tmp_path / "here", tmp_path / "graph"
    stores.save(graph, 3)
    mirror(store, graph, keep_max=1).upload()
    for step in (5, 9):
        _save(here, step)
        mirror(store, here, keep_max=1).upload()
    stores.save(graph, 12)
    mirror(store, graph, keep_max=1).upload()
    assert _visible(store) == ["ckpt-00000009", "model.ckpt-12"]


@pytest.mark.parametrize(("graph_step", "keras_step"), [(12, 5), (5, 12)])
@pytest.mark.parametrize("has_folder", [True, False])
def test_each_kind_of_training_goes_on_from_its_own_checkpoints(tmp_path, graph_step, keras_step, has_folder):
    """Issue: beside a record of TensorFlow, Keras' were never uploaded; a later step of the other kind was fetched."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    here.mkdir()
    steps = {False: graph_step, True: keras_step}
    for is_keras, step in steps.items():
        fetching.Fetcher(store, str(here), is_keras=is_keras).fetch_for_training()
        _save(here, step) if is_keras else stores.save(here, step)
        uploading.Uploader(store, str(here), 5, lambda: None, is_keras)._upload(is_last=True)
    assert sorted(_visible(store)) == sorted([f"model.ckpt-{graph_step}", f"ckpt-{keras_step:08d}"])
    for is_keras, step in steps.items():
        there = here if has_folder else tmp_path / f"there-{is_keras}"
        there.mkdir(exist_ok=True)
        fetching.Fetcher(store, str(there), is_keras=is_keras).fetch_for_training()
        newest = manifests.recorded_unit(str(there), is_keras)
        assert newest == manifests.Unit(step, is_keras=is_keras) and (there / newest.head).exists()


def test_how_far_the_uploads_of_keras_are_behind_is_known_after_a_restart(tmp_path):
    """From what this machine knows of the store."""
    store, here = new_store("memory", tmp_path), tmp_path / "here"
    _save(here, 5)
    uploading.Uploader(store, str(here), 5, lambda: None)._upload(is_last=False)
    _save(here, 9)
    progress = uploading.Uploader(store, str(here), 5, lambda: None).progress()
    assert (progress["step"], progress["behind_steps"]) == (5, 4)
