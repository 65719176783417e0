"""The journal of a train_dir."""

from __future__ import annotations

import json

from ps_train.storage import journal
from ps_train.storage.journal import Journal, read_journal


def test_events_are_read_in_the_order_in_which_they_were_noted(tmp_path):
    """Each with the time of day; two processes after each other write to the same file."""
    for number in range(2):
        notes = Journal(str(tmp_path))
        notes.note("start", run={"model": "m"})
        notes.note("session", source="new parameters", step=number)
        notes.close()
    events = read_journal(str(tmp_path))
    assert [(event["event"], event.get("step")) for event in events] == [
        ("start", None), ("session", 0), ("start", None), ("session", 1)]
    assert all(event["time"] > 1.6e9 for event in events)


def test_a_torn_line_costs_only_itself(tmp_path):
    """That of a process that was killed while it wrote: the next process begins a new line."""
    whole, torn = json.dumps({"time": 1.0, "event": "start"}), '{"time": 2.0, "eve'
    (tmp_path / journal.JOURNAL_NAME).write_text(f"{whole}\n{torn}")
    notes = Journal(str(tmp_path))
    notes.note("end", why="done", step=3)
    notes.close()
    assert [event["event"] for event in read_journal(str(tmp_path))] == ["start", "end"]


def test_lines_that_are_no_events_are_left_out(tmp_path):
    """Such as those of another program."""
    (tmp_path / journal.JOURNAL_NAME).write_text('[1]\n{"event": "x"}\n\n\xff\n{"time": 1, "event": "end"}\n')
    assert read_journal(str(tmp_path)) == [{"time": 1, "event": "end"}]


def test_a_folder_that_fails_is_named_once_and_ends_nothing(tmp_path, caplog):
    """The folder is missing; when it exists again, the next event is written."""
    folder = tmp_path / "missing"
    notes = Journal(str(folder))
    notes.note("start")
    notes.note("session", step=0)
    notes.close()
    assert len(caplog.records) == 1 and "training goes on" in caplog.text
    folder.mkdir()
    notes.note("end", step=1)
    notes.close()
    assert [event["event"] for event in read_journal(str(folder))] == ["end"]


def test_a_task_without_a_folder_keeps_no_journal(tmp_path, monkeypatch):
    """As every worker but the chief."""
    monkeypatch.chdir(tmp_path)
    notes = Journal("")
    notes.note("start")
    notes.close()
    assert list(tmp_path.iterdir()) == []
    assert read_journal(str(tmp_path)) == []
