"""The reports of a child, matched with the lines of its log."""

from __future__ import annotations

import errno
import os

import pytest

from ps_train.errors import ClusterLostError
from ps_train.launch import process
from ps_train.launch.process import ChildReports, Process, error_of, message_in, plain_lines
from ps_train.runtime import logs, reports
from ps_train.runtime.reports import Failure, Stage
from tests.errors import raises

STAGES = [Stage(step, 9, "evaluating") for step in range(3)]


@pytest.fixture
def child_reports(tmp_path, monkeypatch):
    """The launcher's side of a file to which `reports.send` of this process writes."""
    found = ChildReports(str(tmp_path))
    monkeypatch.setattr(reports, "_launcher_file", [found.descriptor])
    return found


def send(stage):
    reports.send(stage, [stage.format()])


def test_a_line_is_found_after_the_time_of_day_and_only_once(child_reports):
    """A line that is part of no report gives None."""
    send(STAGES[0])
    assert child_reports.of_line("serves at localhost:2222") is None
    assert child_reports.of_line(f"x{STAGES[0].format()}") is None
    assert child_reports.of_line(f"12:00:00 {STAGES[0].format()}") == STAGES[0]
    assert child_reports.of_line(f"12:00:00 {STAGES[0].format()}") is None


def test_a_report_is_found_in_a_line_of_json(child_reports):
    """By its message; that of another line is no report."""
    send(STAGES[0])
    assert child_reports.of_line(logs.json_line("saved", task="worker:0")) is None
    assert child_reports.of_line(logs.json_line(STAGES[0].format(), task="worker:0")) == STAGES[0]


def test_every_line_of_a_report_gives_it(child_reports):
    """Those of a traceback, but the empty ones."""
    failure = Failure(["no"], is_in_user_code=True)
    reports.send(failure, ["Traceback", "  x", "", "  x", "ps_train: no"])
    lines = ["Traceback", "  x", "", "  x", "ps_train: no", "  x"]
    assert [child_reports.of_line(line) for line in lines] == [failure, failure, None, failure, failure, None]


def test_a_report_whose_line_is_missing_costs_no_other(child_reports):
    """The disk of the log was full for a while."""
    for stage in STAGES:
        send(stage)
    assert child_reports.of_line(STAGES[1].format()) == STAGES[1]
    assert child_reports.of_line(STAGES[0].format()) is None
    assert child_reports.of_line(STAGES[2].format()) == STAGES[2]


def test_a_damaged_line_of_the_file_is_skipped(child_reports):
    """The next report is read nevertheless."""
    os.write(child_reports.descriptor, b'{"lines"')
    send(STAGES[0])
    assert child_reports.of_line(STAGES[0].format()) == STAGES[0]


def test_the_file_has_no_name(child_reports, tmp_path):
    """Nothing is left of it, however the launcher ends."""
    send(STAGES[0])
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_line_of_json_is_that_of_the_lines_of_text():
    """With its code, the class of its exit code, and the traceback; a line of text stays as it is."""
    trace = ["Traceback", "  File x", "ValueError: no"]
    line = logs.json_line("input_fn failed\n  look there", task="worker:1", level="error", code="user_code_failed",
                          exit_code=1, traceback="\n".join(trace))
    expected = error_of([*trace, "ps_train: input_fn failed [user_code_failed]", "  look there"], 1, "worker:1")
    found = error_of(plain_lines(line), 1, "worker:1")
    assert (type(found), str(found), found.problems) == (type(expected), str(expected), expected.problems)
    assert found.code == "user_code_failed" and "ValueError: no" in str(found)
    assert plain_lines("a line of text") == ["a line of text"]


def test_a_message_is_found_in_its_line():
    """A line that is no JSON of ps_train is its own message."""
    for message in ("step 3 of 5", 'a "quoted"\none', "日本"):
        assert message_in(logs.json_line(message, task="x")) == message
    for line in ("step 3", '{"a": 1}', '{"time": "x'):
        assert message_in(line) == line


def test_a_log_that_cannot_be_written_is_one_line(tmp_path):
    """It may be another user's, from an earlier launch in that folder."""
    for path in (tmp_path, tmp_path / "missing" / "ps-0.log"):
        with raises("folder_not_writable") as caught:
            Process("ps:0", ["true"], str(path), os.environ)
        assert repr(str(path)) in str(caught.value) and "--log_dir" in str(caught.value)


@pytest.mark.parametrize(("what", "number"), [
    ("subprocess.Popen", errno.EAGAIN), ("subprocess.Popen", errno.ENOMEM), ("subprocess.Popen", errno.EMFILE),
    ("tempfile.TemporaryFile", errno.EMFILE)])
def test_a_machine_without_room_for_a_task_is_one_line(tmp_path, monkeypatch, what, number):
    """It names the task, and the same command may be run again."""
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    module, name = what.split(".")
    monkeypatch.setattr(getattr(process, module), name, fail)
    with raises("process_not_started", kind=ClusterLostError) as caught:
        Process("worker:1", ["true"], str(tmp_path / "worker-1.log"), os.environ)
    assert str(caught.value).startswith(f"cannot start worker:1: {os.strerror(number)}; ")


def test_a_folder_that_is_gone_is_no_lack_of_room(tmp_path):
    """The same command would fail again."""
    folder = tmp_path / "removed"
    with raises("process_cannot_start") as caught:
        Process("worker:1", ["true"], str(tmp_path / "worker-1.log"), os.environ, folder=str(folder))
    assert str(caught.value).startswith(f"cannot start worker:1 in {folder}: No such file or directory; ")
