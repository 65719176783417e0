"""Reports: their lines, and that what a task sends is what the launcher reads."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_train.runtime import reports
from ps_train.runtime.reports import Failure, Progress, Stage
from ps_train.training import reporting

_STEPS = st.integers(min_value=0, max_value=2**63 - 1)
_NUMBERS = st.floats(allow_nan=False)


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """A function that sends a report and returns the lines of the launcher's file."""
    with open(tmp_path / "reports", "ab+") as file:
        monkeypatch.setattr(reports, "_launcher_file", [file.fileno()])

        def send(*arguments):
            reports.send(*arguments)
            return [line for line in (tmp_path / "reports").read_text().split("\n") if line]

        yield send


def test_the_lines_read_like_this():
    """The lines as users see them."""
    assert Progress(100, 20000, 0.123456, 45.67, 1234.5).format() == (
        "step 100 of 20000  loss 0.1235  45.7 steps/s  1234 examples/s")
    assert Stage(3001, 3000, reports.FINISHING).format() == "step 3001, finishing and saving"
    assert Failure(["one", "two"]).lines() == ["ps_train: one", "ps_train: two"]


@pytest.mark.parametrize(("report", "record"), [
    (Progress(1, 2, 0.5, 3.0, 4.0),
     {"progress": {"step": 1, "train_steps": 2, "loss": 0.5, "steps_per_sec": 3.0, "examples_per_sec": 4.0}}),
    (Stage(3, 2, "evaluating"), {"stage": {"step": 3, "train_steps": 2, "activity": "evaluating"}}),
    (Failure(["no file: fetch it"], "no file"),
     {"failure": {"message": ["no file: fetch it"], "missing_data": "no file", "is_in_user_code": False,
                 "is_requested": False}}),
])
def test_a_report_is_one_line_of_json_and_reads_back(sent, report, record):
    """With the lines of the log that say the same."""
    [line] = sent(report, ["first", "second"])
    assert json.loads(line) == {"lines": ["first", "second"], **record}
    assert reports.decode(line) == (report, ["first", "second"])


@given(_STEPS, _STEPS, _NUMBERS, _NUMBERS, _NUMBERS, st.text())
def test_every_number_and_text_reads_back(step, train_steps, loss, steps_per_sec, examples_per_sec, text):
    """Exactly."""
    report = Progress(step, train_steps, loss, steps_per_sec, examples_per_sec)
    assert reports.decode(json.dumps({"lines": [text], "progress": report._asdict()})) == (report, [text])


def test_numbers_that_are_not_finite_or_of_numpy_read_back(sent):
    """A plug-in of Keras may give either."""
    [line] = sent(Progress(np.int64(1), 2, math.nan, np.float32(0.5), math.inf), [])
    report, _ = reports.decode(line)
    assert (report.step, report.steps_per_sec, report.examples_per_sec) == (1, 0.5, math.inf)
    assert math.isnan(report.loss)


@pytest.mark.parametrize("line", [
    "", "step 1 of 2", "{", "[]", "{}", "null", '{"lines": []}', '{"lines": [], "other": {}}',
    '{"lines": [], "stage": {"step": 1}}', '{"lines": [], "stage": 1}', '{"lines": 1, "stage": {}}',
    '{"lines": [], "stage": {"step": 1, "train_steps": 2, "activity": "x"}, "more": {}}'])
def test_a_damaged_line_is_none(line):
    """It was cut short, or is no report."""
    assert reports.decode(line) is None


@given(st.text())
def test_any_text_can_be_decoded(text):
    """No text makes the launcher fail."""
    reports.decode(text)


def test_a_line_that_was_cut_short_costs_no_other(sent):
    """As by a full disk, or by the end of a task that is then restarted."""
    os.write(reports._launcher_file[0], b'{"lines": ["st')
    lines = sent(Stage(1, 2, "evaluating"), ["x"])
    assert [reports.decode(line) for line in lines] == [None, (Stage(1, 2, "evaluating"), ["x"])]


def test_without_a_launcher_nothing_is_sent(monkeypatch):
    """No file, no error."""
    monkeypatch.setattr(reports, "_launcher_file", [])
    reports.send(Stage(1, 2, "evaluating"), ["x"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="it stands for a full disk")
def test_a_full_disk_raises_nothing(monkeypatch):
    """Training continues."""
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(reports, "_launcher_file", [full.fileno()])
        reports.send(Stage(1, 2, "evaluating"), ["x"])


@pytest.mark.parametrize("descriptor", ["", "x", "99999"])
def test_a_variable_that_is_no_open_file_connects_nothing(monkeypatch, descriptor):
    """It is removed, and no child process finds it."""
    monkeypatch.setattr(reports, "_launcher_file", [])
    monkeypatch.setenv(reports.DESCRIPTOR_VARIABLE, descriptor)
    reports.connect()
    assert reports._launcher_file == []
    assert reports.DESCRIPTOR_VARIABLE not in os.environ


def test_the_file_is_not_inherited_further(monkeypatch, tmp_path):
    """Neither the descriptor nor its name."""
    monkeypatch.setattr(reports, "_launcher_file", [])
    with open(tmp_path / "reports", "ab") as file:
        os.set_inheritable(file.fileno(), True)
        monkeypatch.setenv(reports.DESCRIPTOR_VARIABLE, str(file.fileno()))
        reports.connect()
        assert reports._launcher_file == [file.fileno()]
        assert not os.get_inheritable(file.fileno())


def test_every_end_says_why():
    """The report names each way to end."""
    words = [end.value for end in reporting.End]
    assert len(set(words)) == len(words) == 5


def test_a_training_that_ends_by_epochs_has_steps_without_an_end():
    """Nobody knows how many there will be."""
    progress = reports.Progress(7, reports.NO_STEP_LIMIT, 0.5, 1.0, 2.0)
    assert progress.format() == "step 7  loss 0.5  1.0 steps/s  2 examples/s"
    assert reports.Stage(7, reports.NO_STEP_LIMIT, reports.EVALUATING).format() == "step 7, evaluating"


@pytest.mark.parametrize(("step", "train_steps", "text"), [
    (100, 200, "100 of 200"), (200, 200, "200 of 200"), (14693, 100, "14693"), (5, reports.NO_STEP_LIMIT, "5")])
def test_a_step_beyond_the_last_one_stands_alone(step, train_steps, text):
    """A folder may have been trained for longer before."""
    assert reports.of_all(step, train_steps) == text
