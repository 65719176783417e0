"""The files of pushes: what is written is read, and of a damaged file nothing."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest

from ps_train.parts.live import pushes
from ps_train.parts.live.pushes import Begin, Current
from tests.errors import raises
from tests.tensorflow_mode import tf

_BEGIN = Begin(8, 7, "training", 90, 1e9 + 0.125, 1e9 - 5.5)
_NO_IDS = np.zeros([0], np.int64)


def _write(folder):
    with pushes.writing_push(str(folder), _BEGIN) as writer:
        writer.rows("a", np.array([3, -4]), np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([9]))
        writer.rows("a", _NO_IDS, np.zeros([0, 3], np.float32), np.array([10, 11]))
        writer.dense(b"bytes")
    return pushes.push_path(str(folder), 8)


def test_a_push_is_read_as_it_was_written(tmp_path):
    """Rows, dropped ids alone, bytes, and times to the millisecond."""
    begin, contents = pushes.read_push(_write(tmp_path))
    first, second, dense = contents
    assert begin == _BEGIN
    assert (first.table, first.ids.tolist(), first.rows.tolist(), first.dropped.tolist()) == (
        "a", [3, -4], [[1, 2, 3], [4, 5, 6]], [9])
    assert (second.ids.tolist(), second.rows.shape, second.dropped.tolist(), dense) == ([], (0, 3), [10, 11], b"bytes")


@pytest.mark.parametrize("at", range(0, 400, 23))
def test_a_damaged_push_is_refused_as_a_whole(tmp_path, at):
    """One that was cut off anywhere, or in which a byte is wrong: before anything of it is returned."""
    path = _write(tmp_path)
    with open(path, "rb") as file:
        whole = file.read()
    assert len(whole) > 400
    for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]):
        with open(path, "wb") as file:
            file.write(damaged)
        with raises("push_damaged"):
            pushes.read_push(path)


@pytest.mark.parametrize("record", [
    b"text", tf.train.Example(features=tf.train.Features(feature={"loss": tf.train.Feature(
        float_list=tf.train.FloatList(value=[1.0]))})).SerializeToString(),
    tf.train.Example(features=tf.train.Features(feature={"kind": tf.train.Feature(
        int64_list=tf.train.Int64List(value=[1]))})).SerializeToString()], ids=["text", "floats", "another kind"])
def test_a_file_of_other_records_is_no_push(tmp_path, record):
    """Issue: it ended the thread of `LiveModel.follow`, which then served the old rows without a word."""
    path = str(tmp_path / "push-0000000001.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(record)
    with raises("push_damaged"):
        pushes.read_push(path)


def test_a_push_that_fails_leaves_no_file(tmp_path):
    """Neither under its name nor under another."""
    with pytest.raises(ZeroDivisionError), pushes.writing_push(str(tmp_path), _BEGIN):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_push_for_which_there_is_no_room_leaves_no_file(tmp_path):
    """Issue: what was written of it stayed, on the full disk, as the file could not be closed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits[1]))
    try:
        with pytest.raises(tf.errors.OpError, match="File too large"), \
                pushes.writing_push(str(tmp_path), _BEGIN) as writer:
            for _ in range(8):
                writer.dense(bytes(1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [
    {"model": "../../x"}, {"model": "model-0000000006"}, {"last": 6}, {"last": "9"}, {"model_number": None},
    {"model_number": True}, {"model_number": -1}, {"training": 7}, {"format": 2}])
def test_a_current_that_names_what_cannot_be_is_none(tmp_path, wrong):
    """No other folder is loaded, and no later comparison fails."""
    pushes.write_current(str(tmp_path), Current("t", pushes.model_name(7), 7, 9))
    content = json.loads((tmp_path / pushes.CURRENT).read_text())
    assert pushes.read_current(str(tmp_path)) == Current("t", pushes.model_name(7), 7, 9)
    (tmp_path / pushes.CURRENT).write_text(json.dumps({**content, **wrong}))
    assert pushes.read_current(str(tmp_path)) is None


def test_a_current_that_is_no_dict_is_none(tmp_path):
    """Nor what is no JSON."""
    for text in ("[]", "7", "null", "{"):
        (tmp_path / pushes.CURRENT).write_text(text)
        assert pushes.read_current(str(tmp_path)) is None
