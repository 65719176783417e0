"""Summaries: what is in the event files, and that a folder that fails ends nothing."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

from ps_train.storage import event_files
from tests.children import fill, wait_until
from tests.tensorflow_mode import tf


def loss(value):
    return tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=value)])


def event_files_of(folder):
    """Returns the files in the order in which they were begun, by the number at the end of their names."""
    return sorted(folder.glob("events.*"), key=lambda path: int(path.suffix[1:]))  # two may have the same time


def events(folder):
    return [event for path in event_files_of(folder) for event in tf.train.summary_iterator(str(path))]


def test_graph_start_and_summaries_are_written(tmp_path):
    """The start has its step, by which TensorBoard drops what a lost training had written after it."""
    written = event_files.Summaries(str(tmp_path))
    with tf.Graph().as_default() as graph:
        tf.constant(1, name="one")
    written.start(graph, 7)
    written.write(loss(0.5), 8)
    written.write(loss(0.25).SerializeToString(), 9)
    written.close()
    written = events(tmp_path)
    assert [tf.GraphDef.FromString(event.graph_def).node[0].name for event in written if event.graph_def] == ["one"]
    assert [event.step for event in written if event.session_log.status == tf.SessionLog.START] == [7]
    assert [(event.step, event.summary.value[0].simple_value) for event in written if event.summary.value] == [
        (8, 0.5), (9, 0.25)]


def test_after_a_close_a_new_file_begins(tmp_path):
    """As in the session that follows a lost one; closing twice, or what was never opened, does nothing."""
    written = event_files.Summaries(str(tmp_path))
    written.close()
    assert list(tmp_path.iterdir()) == []
    for step in (1, 2):
        written.write(loss(1.0), step)
        written.close()
        written.close()
    assert [event.step for event in events(tmp_path) if event.summary.value] == [1, 2]


def test_a_folder_that_fails_is_warned_of_once_and_tried_again_later(tmp_path, caplog, monkeypatch):
    """Nothing is raised; in between, summaries are dropped without a word."""
    folder = tmp_path / "train"
    folder.write_text("")  # a file, which root cannot write into either
    written = event_files.Summaries(str(folder))
    for step in range(3):
        written.write(loss(1.0), step)
    written.close()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"cannot write summaries to {folder}: ")
    folder.unlink()
    written._retry_secs = 0.0
    written.write(loss(1.0), 3)
    written.close()
    assert [event.step for event in events(folder) if event.summary.value] == [3]


def test_a_folder_that_hangs_holds_nobody_up(tmp_path, caplog, monkeypatch):
    """Matrix row 52: what does not fit into the queue is dropped, said once, and the close does not wait for ever."""
    never = threading.Event()
    monkeypatch.setattr(event_files.tf.summary, "FileWriter", lambda *args, **kwargs: never.wait(60) and mock.Mock())
    monkeypatch.setattr(event_files, "_MAX_WAITING", 10)
    monkeypatch.setattr(event_files, "_CLOSE_SECS", 0.1)
    written = event_files.Summaries(str(tmp_path))
    for step in range(100):
        written.write(loss(1.0), step)
    written.close()
    never.set()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} is slow: summaries are dropped; training goes on",
        f"{tmp_path} is slow: the last summaries may be missing there"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_drops_summaries_and_nothing_else(small_disk, caplog, monkeypatch):
    """The writer's own thread ends there; the next summary, and the close, say so once and raise nothing."""
    # All are written: TensorFlow tells of no failure if its buffer happens to be empty at the close.
    monkeypatch.setattr(event_files, "_MAX_WAITING", 5000)
    written = event_files.Summaries(str(small_disk))
    written.write(loss(1.0), 0)
    written._add(lambda writer: writer.flush())
    wait_until(lambda: any(path.stat().st_size for path in small_disk.glob("events.*")), "a file of events")
    filler = fill(small_disk)
    for step in range(1, 3000):
        written.write(loss(1.0), step)
    written.close()
    wait_until(lambda: "No space left on device" in caplog.text, "a warning")
    assert caplog.text.count("cannot write summaries") == 1
    filler.unlink()
    written._retry_secs = 0.0
    written.write(loss(1.0), 5000)
    written.close()
    newest = event_files_of(small_disk)[-1]  # the other one is cut short
    assert [event.step for event in tf.train.summary_iterator(str(newest)) if event.summary.value] == [5000]
