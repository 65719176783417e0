"""Which checkpoint there is, and whether it fits."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shutil

import pytest

from ps_train.errors import CheckpointError, ConfigError
from ps_train.storage import checkpoints
from tests.errors import raises
from tests.tensorflow_mode import tf


def save(folder, variables):
    """Saves variables of these shapes and dtypes; returns the path."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name, (shape, dtype) in variables.items():
            tf.get_variable(name, shape, dtype, tf.zeros_initializer())
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, os.path.join(str(folder), "model.ckpt"), 7)


def check(path, variables, partitioner=None):
    """Checks a graph with these variables against the checkpoint."""
    with tf.Graph().as_default(), tf.variable_scope("", partitioner=partitioner):
        for name, (shape, dtype) in variables.items():
            tf.get_variable(name, shape, dtype, tf.zeros_initializer())
        checkpoints.check_fits(path, tf.global_variables())


SAVED = {"a": ([2, 3], tf.float32), "b": ([], tf.int64)}


def test_the_same_variables_fit(tmp_path):
    """So do fewer: another optimizer's slots may be left over."""
    path = save(tmp_path, SAVED)
    check(path, SAVED)
    check(path, {"a": SAVED["a"]})


@pytest.mark.parametrize("name", ["run[1]", "a\\b", "a*b", "a?b", "a["])
def test_tensorflow_finds_no_checkpoint_under_a_path_that_it_takes_for_a_pattern(tmp_path, caplog, name):
    """Issue: sound checkpoints of a folder that was renamed were to be removed. Others are read as ever."""
    (tmp_path / "sound").mkdir()
    path = save(tmp_path / "sound", SAVED)
    (tmp_path / "sound").rename(tmp_path / name)
    path = path.replace("sound", name)
    if not re.search(r"\[1\]|\\", name):
        assert checkpoints.newest_sound(os.path.dirname(path)) == path
        return
    with raises("checkpoint_unreadable", kind=CheckpointError):
        checkpoints.newest_sound(os.path.dirname(path), must_be_one=True)
    assert f"{path} cannot be read: TensorFlow takes {name[1 + name.startswith('run') * 2:]} in " in caplog.text


def test_a_variable_of_unknown_rank_has_any_shape(tmp_path):
    """Issue: a training that had saved one ended in a traceback when it was continued."""
    path = save(tmp_path, SAVED)
    with tf.Graph().as_default():
        tf.get_variable("a", initializer=tf.placeholder(tf.float32), validate_shape=False)
        checkpoints.check_fits(path, tf.global_variables())


def test_a_table_is_missing_in_training_and_left_out_otherwise(tmp_path):
    """A model may count in evaluation only; a training would go on with an empty table. An iterator is not saved."""
    path = save(tmp_path, SAVED)
    with tf.Graph().as_default():
        iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(3))
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
        tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0, name="tally")
        assert [one.name for one in checkpoints.saved_objects()] == ["tally"]
        assert checkpoints.saved_tables(path) == []
        with raises("checkpoint_of_another_model") as caught:
            checkpoints.check_fits(path, checkpoints.saved_objects())
        assert "tally-keys is missing; tally-values is missing" in str(caught.value)
        with tf.variable_scope("b"):
            tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, -1, -2, name="tally")
        with raises("table_named_twice"):
            checkpoints.saved_objects()


@pytest.mark.parametrize(("name", "variable", "difference"), [
    ("c", ([1], tf.float32), "c is missing"),
    ("a", ([2, 4], tf.float32), "a has shape [2, 3] instead of [2, 4]"),
    ("b", ([], tf.int32), "b is int64 instead of int32"),
])
def test_variables_that_differ_are_listed(tmp_path, name, variable, difference):
    """With the path."""
    path = save(tmp_path, SAVED)
    with raises("checkpoint_of_another_model", kind=CheckpointError) as caught:
        check(path, {**SAVED, name: variable})
    assert path in str(caught.value) and f"{difference};" in str(caught.value)


def test_many_differences_are_counted(tmp_path):
    """The line stays readable."""
    path = save(tmp_path, SAVED)
    with raises("checkpoint_of_another_model") as caught:
        check(path, {f"v{index:02}": ([1], tf.float32) for index in range(20)})
    assert "12 more" in str(caught.value)


def test_a_partitioned_variable_is_one_in_the_checkpoint(tmp_path):
    """A model that is cut into three parts fits one that was saved whole, and the other way round."""
    whole = {"a": ([6, 2], tf.float32)}
    check(save(tmp_path, whole), whole, tf.fixed_size_partitioner(3))
    with raises("checkpoint_of_another_model") as caught:
        check(save(tmp_path, whole), {"a": ([7, 2], tf.float32)}, tf.fixed_size_partitioner(3))
    assert "[6, 2] instead of [7, 2]" in str(caught.value)


def save_steps(folder, *steps, seed=1):
    """Saves a small model at each step, without the note that a Saver writes; returns the paths."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("whole", [50], initializer=tf.random_normal_initializer(seed=seed))
        tf.get_variable("cut", [60], initializer=tf.random_normal_initializer(seed=2),
                        partitioner=tf.fixed_size_partitioner(3))
        tf.get_variable("words", initializer=["a", "bc"])
        tf.get_variable("short", [3], tf.bfloat16, tf.zeros_initializer())
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(max_to_keep=100)
        return [saver.save(session, os.path.join(str(folder), "model.ckpt"), step, write_state=False)
                for step in steps]


def data_of(path):
    return pathlib.Path(f"{path}.data-00000-of-00001")


def index_of(path):
    return pathlib.Path(f"{path}.index")


def damage(file, position):
    """Turns one bit over."""
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "data truncated": lambda path: os.truncate(data_of(path), data_of(path).stat().st_size - 1),
    "data empty": lambda path: os.truncate(data_of(path), 0),
    "data missing": lambda path: data_of(path).unlink(),
    "first bit": lambda path: damage(data_of(path), 0),
    "last bit": lambda path: damage(data_of(path), -1),
    "index truncated": lambda path: os.truncate(index_of(path), index_of(path).stat().st_size // 2),
    "index empty": lambda path: os.truncate(index_of(path), 0),
    "index damaged": lambda path: damage(index_of(path), 20),
    "index a folder": lambda path: (index_of(path).unlink(), index_of(path).mkdir()),
    "data of another save": lambda path: shutil.copy(
        data_of(save_steps(pathlib.Path(path).parent / "other", 1, seed=3)[0]), data_of(path)),
}


def test_newest_sound_is_that_of_the_highest_step(tmp_path):
    """By number and not by name or time; None where there is none."""
    assert checkpoints.newest_sound(str(tmp_path / "absent")) is None
    assert checkpoints.newest_sound(str(tmp_path)) is None
    assert save_steps(tmp_path, 100, 9)[0] == checkpoints.newest_sound(str(tmp_path))
    assert [checkpoints.path_of(str(tmp_path), step) for step in (9, 100)] == checkpoints.paths(str(tmp_path))


@pytest.mark.parametrize("do_damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_skipped_with_one_warning(tmp_path, do_damage, caplog):
    """The one before it is taken; the warning names the damaged one and is not said again while nothing changes."""
    (older,), (newest,) = save_steps(tmp_path, 8), save_steps(tmp_path, 9)
    do_damage(newest)
    for _ in range(3):
        assert checkpoints.newest_sound(str(tmp_path)) == older
    (record,) = caplog.records
    assert re.fullmatch(rf"checkpoint {newest} cannot be read: .+; it is skipped", record.getMessage())
    with raises("checkpoint_unreadable"):
        checkpoints.verify(newest)


def test_every_single_byte_of_the_data_counts(tmp_path):
    """Whichever byte is turned over, in a whole or a partitioned variable or a text, the reader notices."""
    (path,) = save_steps(tmp_path, 1)
    for position in range(data_of(path).stat().st_size):
        damage(data_of(path), position)
        with pytest.raises(CheckpointError):
            checkpoints.verify(path)
        damage(data_of(path), position)
    checkpoints.verify(path)


def test_a_damaged_checkpoint_that_is_mended_is_taken_again(tmp_path):
    """What was found once holds as long as the files are the same."""
    _, newest = save_steps(tmp_path, 1, 2)
    content = data_of(newest).read_bytes()
    os.truncate(data_of(newest), 3)
    assert checkpoints.newest_sound(str(tmp_path)) != newest
    data_of(newest).write_bytes(content)
    assert checkpoints.newest_sound(str(tmp_path)) == newest


def refuse(monkeypatch, path, code):
    """Lets the system refuse to read a checkpoint; the texts are those of TensorFlow's reader."""
    load = tf.train.load_checkpoint

    def refusing(name):
        if name == path:
            raise tf.errors.OpError(None, None, f"{path}.data-00000-of-00001; {os.strerror(code)}", 2)
        return load(name)

    monkeypatch.setattr(tf.train, "load_checkpoint", refusing)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_checkpoint_that_the_system_refuses_to_read_is_tried_again(tmp_path, monkeypatch, caplog, code):
    """Its files stay the same while a mount is away, or the rights are wrong; one warning is enough."""
    older, newest = save_steps(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        refuse(patch, newest, code)
        assert [checkpoints.newest_sound(str(tmp_path)) for _ in range(2)] == [older] * 2
    assert checkpoints.newest_sound(str(tmp_path)) == newest
    assert [record.getMessage() for record in caplog.records] == [
        f"checkpoint {newest} cannot be read: {newest}.data-00000-of-00001; {os.strerror(code)}; it is skipped"]


def test_a_damaged_checkpoint_is_read_once(tmp_path, monkeypatch):
    """It may be large."""
    (path,) = save_steps(tmp_path, 1)
    damage(data_of(path), 0)
    verify, read = checkpoints.verify, []
    monkeypatch.setattr(checkpoints, "verify", lambda path: (read.append(path), verify(path)))
    assert [checkpoints.newest_sound(str(tmp_path)) for _ in range(3)] == [None] * 3
    assert read == [path]


@pytest.mark.parametrize("name", ["model.ckpt-7", "pretrained"])
def test_where_one_must_be_readable_none_is_an_error(tmp_path, name):
    """Training would start again, and remove them later: those saved here, and one that the note names."""
    assert checkpoints.newest_sound(str(tmp_path / "new"), must_be_one=True) is None
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.get_variable("a", [2], initializer=tf.zeros_initializer()).initializer)
        path = tf.train.Saver().save(session, str(tmp_path / name))
    assert checkpoints.newest_sound(str(tmp_path), must_be_one=True) == path
    damage(data_of(path), 0)
    assert checkpoints.newest_sound(str(tmp_path)) is None
    with raises("checkpoint_unreadable"):
        checkpoints.newest_sound(str(tmp_path), must_be_one=True)


def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path, monkeypatch):
    """Not the same as one without checkpoints."""
    monkeypatch.setattr(os, "listdir", lambda folder: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with raises("folder_unreadable"):
        checkpoints.newest_sound(str(tmp_path))


def test_a_sound_checkpoint_is_read_once(tmp_path, monkeypatch):
    """An evaluator asks every second."""
    save_steps(tmp_path, 1)
    read = []
    monkeypatch.setattr(checkpoints, "verify", read.append)
    for _ in range(3):
        checkpoints.newest_sound(str(tmp_path))
    assert len(read) == 1


def test_a_delta_that_is_being_written_is_no_reason_to_read_the_checkpoint_again(tmp_path, monkeypatch):
    """Neither are its files, once they are there: the deltas are looked at by themselves."""
    (path,) = save_steps(tmp_path, 1)
    read = []
    monkeypatch.setattr(checkpoints, "verify", read.append)
    parts = pathlib.Path(f"{path}.delta-2_temp")
    for name in ("0-0-0.index", "0-0-0.data-00000-of-00001"):
        assert checkpoints.newest_sound(str(tmp_path)) == path
        parts.mkdir(exist_ok=True)
        (parts / name).touch()
    parts.rename(f"{path}.delta-2.index")
    assert checkpoints.newest_sound(str(tmp_path)) == path
    assert read == [path]
    data_of(path).write_bytes(b"x")
    checkpoints.newest_sound(str(tmp_path))
    assert read == [path] * 2


def test_the_note_may_name_a_missing_file(tmp_path):
    """The file `checkpoint` is not needed: the newest is found by its own files."""
    (path,) = save_steps(tmp_path, 5)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-77"\n')
    assert checkpoints.newest_sound(str(tmp_path)) == path
    (tmp_path / "checkpoint").write_text("not a protocol buffer")
    assert checkpoints.newest_sound(str(tmp_path)) == path


def test_a_checkpoint_of_another_name_is_taken_while_there_is_none_of_ours(tmp_path):
    """The user may have pointed the note to one to start from."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("a", [2], initializer=tf.zeros_initializer())
        session.run(tf.global_variables_initializer())
        foreign = tf.train.Saver().save(session, str(tmp_path / "pretrained"))
    assert checkpoints.newest_sound(str(tmp_path)) == foreign
    (own,) = save_steps(tmp_path, 0)
    assert checkpoints.newest_sound(str(tmp_path)) == own


LEFTOVERS = ["model.ckpt-9.data-00000-of-00001.tempstate123", "model.ckpt-9.index.tempstate123",
             "model.ckpt-9_temp/part-00000-of-00001.index", "model.ckpt-9.meta.tmp0af", "checkpoint.tmp0af",
             "model.ckpt-8.data-00000-of-00001", "model.ckpt-8.meta"]
NOT_OURS = ["model.ckpt-best.data-00000-of-00001", "notes.txt", "events.out.tfevents.1.host", "my_temp/file",
            "pretrained.data-00000-of-00001"]


def test_leftovers_of_a_killed_save_are_ignored_and_then_removed(tmp_path):
    """What is not of a save stays."""
    (path,) = save_steps(tmp_path, 7)
    for name in LEFTOVERS + NOT_OURS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert checkpoints.newest_sound(str(tmp_path)) == path
    checkpoints.record_and_prune(str(tmp_path), path, keep_max=5)
    assert [name for name in LEFTOVERS if (tmp_path / name).exists()] == []
    assert [name for name in NOT_OURS if not (tmp_path / name).exists()] == []
    assert not (tmp_path / "model.ckpt-9_temp").exists()
    assert checkpoints.newest_sound(str(tmp_path)) == path


def test_a_checkpoint_is_removed_with_its_deltas_and_what_a_killed_save_left_of_one(tmp_path):
    """A delta in the middle of which the chief was killed is a folder."""
    older, newest = save_steps(tmp_path, 1, 2)
    for name in ("delta-5.index", "delta-5.data-00000-of-00001", "delta-7_temp/0-0-0.index"):
        file = pathlib.Path(f"{older}.{name}")
        file.parent.mkdir(exist_ok=True)
        file.touch()
    checkpoints.record_and_prune(str(tmp_path), newest, keep_max=1)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("model.ckpt-1.")] == []
    assert checkpoints.paths(str(tmp_path)) == [newest]


def test_settle_keeps_the_last_ones_up_to_the_new_one(tmp_path):
    """A later one, which was skipped because it is damaged, neither counts nor pushes the new one out."""
    saved = save_steps(tmp_path, 1, 2, 3, 10, 99)
    checkpoints.record_and_prune(str(tmp_path), saved[3], keep_max=2)
    assert checkpoints.paths(str(tmp_path)) == saved[2:]
    assert {path.name.split(".")[1] for path in tmp_path.iterdir() if "." in path.name} == {
        "ckpt-3", "ckpt-10", "ckpt-99"}
    assert tf.train.latest_checkpoint(str(tmp_path)) == saved[3]
    assert list(tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths) == saved[2:4]


def test_the_note_is_right_after_the_folder_was_moved_or_named_relatively(tmp_path, monkeypatch):
    """It names the files in its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (path,) = save_steps("a/b", 4)
    checkpoints.record_and_prune("a/b", path, keep_max=1)
    assert checkpoints.newest_sound("a/b") == tf.train.latest_checkpoint("a/b") == path == "a/b/model.ckpt-4"
    (tmp_path / "a").rename(tmp_path / "c")
    assert tf.train.latest_checkpoint("c/b") == "c/b/model.ckpt-4"


def test_a_train_dir_that_cannot_be_made_is_refused(tmp_path):
    """The error names it; a good one is made with its parents."""
    checkpoints.check_writable(str(tmp_path / "new" / "deep"))
    assert (tmp_path / "new" / "deep").is_dir()
    (tmp_path / "file").write_text("")
    with raises("folder_not_writable", kind=ConfigError) as caught:
        checkpoints.check_writable(str(tmp_path / "file" / "below"))
    assert f"{tmp_path}/file/below" in str(caught.value)


def test_every_tensor_is_read_back_by_whichever_reader(tmp_path, monkeypatch):
    """A checkpoint is read back with several readers, since one keeps memory for each file."""
    monkeypatch.setattr(checkpoints, "_NAMES_PER_READER", 2)
    path = save(tmp_path, {name: ([100], tf.float32) for name in "abcde"})
    checkpoints.verify(path)
    for position in (10, 990, 1990):  # in the first, the third and the last tensor
        damage(data_of(path), position)
        with raises("checkpoint_unreadable"):
            checkpoints.verify(path)
        damage(data_of(path), position)
        checkpoints.verify(path)
