"""The lines that a task prints about its training, and what it sends to the launcher."""

from __future__ import annotations

import re

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config.groups import LOG_FORMATS
from ps_train.runtime import reports
from ps_train.runtime.reports import Evaluation, Progress, Stage
from ps_train.training import reporting
from ps_train.training.reporting import End, Outcome

ADDRESSES = {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}}
OUTCOME = Outcome(End.STEPS, 0, 201, 100, 2.5, "staleness 1")
EVALUATION = Evaluation(201, 2000, "cross entropy", 1530.04, {"accuracy": 0.9579})
LIFE = """\
job name = worker
task index = 1
worker device = /job:worker/task:1/cpu:0
Worker 1: Waiting for session to be initialized...
Worker 1: Session initialization complete.
Training begins @ TIME
TIME: Worker 1: training step 7 done (global step: 12)
Worker 1: Session initialization complete.
Training ends @ TIME
Training elapsed time: SECS s
After 201 training step(s), validation cross entropy = 1530.04
"""


def test_an_outcome_has_the_reason_that_was_announced():
    """And else how it ended; only one that begins as the end of the data is one."""
    early = OUTCOME._replace(end=End.ANNOUNCED, reason="early stopping: x")
    data = early._replace(reason="the data ran out for worker:1, and too few workers are left for an update")
    assert [one.why for one in (OUTCOME, early, data)] == [End.STEPS.value, early.reason, data.reason]
    assert [one.is_data_end for one in (OUTCOME, OUTCOME._replace(end=End.DATA), early, data)] == [
        False, True, False, True]


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """A function that returns what has been sent to the launcher."""
    with open(tmp_path / "reports", "ab+") as file:
        monkeypatch.setattr(reports, "_launcher_file", [file.fileno()])
        yield lambda: [reports.decode(line) for line in (tmp_path / "reports").read_text().split("\n") if line]


def report_of(log_format, job="worker", index=1):
    return reporting.create(log_format, Cluster(job, index, ADDRESSES))


def live(report):
    """Prints a whole life, in which the session is lost once."""
    report.task()
    report.device("/job:worker/task:1/cpu:0")
    report.opening("")
    report.training()
    report.step(Progress(12, 200, 0.5, 10.0, 1000.0), 7)
    report.training()
    report.trained()
    report.ended(OUTCOME, 200, 100)
    report.evaluated(EVALUATION)
    report.result("Steps of each worker")


def test_dist_mnist_has_the_scripts_lines_on_stdout_and_nothing_else(capsys, caplog):
    """Word for word those of mnist_replica.py; what ps_train says besides is in the log, which is stderr."""
    with caplog.at_level("INFO"):
        live(report_of("dist_mnist"))
    found = re.sub(r"time: \d+\.\d{6} s", "time: SECS s", capsys.readouterr().out)
    assert re.sub(r"\b\d{10}\.\d{6}\b", "TIME", found) == LIFE
    assert caplog.messages[1:] == [
        "staleness 1", *EVALUATION.format().splitlines(), "Steps of each worker"]


def test_the_elapsed_time_is_that_between_the_two_times(capsys, monkeypatch):
    """In seconds, with six digits, as the script's %f."""
    times = iter([1000.25, 1003.5])
    monkeypatch.setattr(reporting.time, "time", lambda: next(times))
    report = report_of("dist_mnist")
    report.training()
    report.trained()
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Training begins @ 1000.250000", "Training ends @ 1003.500000", "Training elapsed time: 3.250000 s"]


def test_the_chief_initialises_and_an_existing_server_is_named(capsys):
    """The script's lines for worker 0, and for --existing_servers."""
    report_of("dist_mnist", "worker", 0).opening("grpc://b:1")
    assert capsys.readouterr().out == (
        "Worker 0: Initializing session...\nUsing existing server at: grpc://b:1\n")


def test_ps_trains_own_lines_are_in_the_log_and_the_results_on_stdout(capsys, caplog):
    """Progress, then how it ended; the evaluation as it stands."""
    with caplog.at_level("INFO"):
        live(report_of("ps_train"))
    assert capsys.readouterr().out == f"{EVALUATION.format()}\nSteps of each worker\n"
    assert caplog.messages == [
        "step 12 of 200  loss 0.5  10.0 steps/s  1000 examples/s",
        "training ended at step 201: the global step reached train_steps; this worker did 100 steps in 2.50 s, "
        "4000 examples/s", "staleness 1"]


@pytest.mark.parametrize("log_format", LOG_FORMATS)
def test_the_launcher_gets_the_progress_and_the_line_in_either_format(log_format, sent, capsys, caplog):
    """The values are the same, and the line is in the log after the report was sent; no other line of a life is."""
    with caplog.at_level("INFO"):
        live(report_of(log_format, index=0))
    lines = [*caplog.messages, *capsys.readouterr().out.splitlines()]
    [(progress, [line])] = sent()
    assert progress == Progress(12, 200, 0.5, 10.0, 1000.0)
    assert line in lines


@pytest.mark.parametrize("log_format", LOG_FORMATS)
def test_the_launcher_gets_the_stages_of_the_chief(log_format, sent, capsys, caplog):
    """Their line is in the log in either format."""
    stage = Stage(201, 200, reports.EVALUATING)
    with caplog.at_level("INFO"):
        report_of(log_format).stage(stage)
    assert sent() == [(stage, caplog.messages)]
    assert capsys.readouterr().out == ""
