"""A log of JSON: an object on each line, also of what others log."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from ps_train.runtime import logs, reports
from ps_train.training import reporting
from tests.processes import GUARD_SECS, REPO


@pytest.fixture
def json_log():
    """A function that makes the log of this process JSON, as that of worker:1, and returns it; restored after the test.

    It is called in the test, which has another stderr than its fixtures.
    """
    logger, root = logging.getLogger("ps_train"), logging.getLogger()
    settings = logger.handlers[:], logger.level, logger.propagate
    root_handlers, excepthook = root.handlers[:], logs.threading.excepthook

    def start():
        logs.setup_json("worker:1")
        return logger

    yield start
    logs.setup()
    logging.captureWarnings(False)
    logs.threading.excepthook, root.handlers[:] = excepthook, root_handlers
    logger.handlers[:], logger.level, logger.propagate = settings


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_has_time_level_task_and_message(json_log, capsys):
    """And what the caller adds, such as the loss; a step that is not known is left out."""
    json_log().warning("hello %d\nthere", 3, extra={"fields": {"loss": np.float32(0.5), "metrics": {"auc": 0.75}}})
    [line] = lines_of(capsys.readouterr().err)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {"level": "warning", "task": "worker:1", "message": "hello 3\nthere", "loss": 0.5,
                    "metrics": {"auc": 0.75}}


def test_the_step_is_added_where_it_is_known(json_log, capsys):
    """A line that is about another step says so itself."""
    log = json_log()
    logs.find_step_with(lambda: 7)
    log.info("one")
    log.info("two", extra={"fields": {"step": 5}})
    assert [line["step"] for line in lines_of(capsys.readouterr().err)] == [7, 5]


def test_numbers_that_json_lacks_are_texts(json_log, capsys):
    """Python would write NaN, which other readers refuse."""
    json_log().info("x", extra={"fields": {"loss": float("nan"), "metrics": {"a": np.float32("inf")}}})
    [line] = lines_of(capsys.readouterr().err)
    assert (line["loss"], line["metrics"]["a"]) == ("nan", "inf")


@pytest.mark.parametrize(("train_steps", "given"), [(200, 200), (reports.NO_STEP_LIMIT, None)])
def test_progress_has_the_last_step_if_there_is_one(json_log, capsys, train_steps, given):
    """There is none where only --num_epochs ends the training."""
    json_log()
    reporting.Report().step(reports.Progress(7, train_steps, 0.5, 1.0, 2.0), 3)
    [line] = lines_of(capsys.readouterr().err)
    assert (line["step"], line["local_steps"], line.get("train_steps")) == (7, 3, given)


def test_results_are_on_stdout(json_log, capsys):
    """As without JSON."""
    json_log()
    logs.show("After 5 steps", step=5)
    out, err = capsys.readouterr()
    assert err == "" and lines_of(out)[0]["message"] == "After 5 steps" and lines_of(out)[0]["step"] == 5


def test_what_stdout_cannot_show_is_shown_as_its_number(monkeypatch):
    """In a Latin-1 locale, or for the name of a file that is no text: the work is done by then."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stdout)
    logs.show("in caf\u00e9 \u2192 b\udce9")
    assert stdout.buffer.getvalue().decode("latin-1") == "in caf\u00e9 \\u2192 b\\udce9\n"


def test_what_others_log_is_json(tmp_path):
    """absl, warnings, a library, an exception in a thread: each is one line."""
    code = """
        import logging, threading, warnings
        from ps_train.runtime import logs
        logs.setup_json("ps:0")
        from absl import logging as absl_logging
        absl_logging.warning("from absl")
        warnings.warn("from warnings")
        logging.getLogger("library").error("from a library")
        def fail():
            raise ValueError("from a thread")
        thread = threading.Thread(target=fail, name="worker thread")
        thread.start()
        thread.join()
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
                           timeout=GUARD_SECS, check=True, env={**os.environ, "PYTHONPATH": str(REPO)}, cwd=tmp_path)
    absl, warning, library, thread = lines_of(ended.stderr)
    assert (absl["logger"], absl["message"], absl["task"]) == ("absl", "from absl", "ps:0")
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning") and "from warnings" in warning["message"]
    assert (library["logger"], library["level"], library["message"]) == ("library", "error", "from a library")
    assert thread["level"] == "error" and "worker thread" in thread["message"]
    assert thread["traceback"].endswith("ValueError: from a thread")


@pytest.mark.parametrize("flag", [["--log_format=json"], ["--log_format", "json"]])
def test_the_error_of_a_flag_is_a_line_of_json(flag):
    """With its code and the exit code of the process; each problem is a line."""
    ended = subprocess.run([sys.executable, "-m", "ps_train", *flag, "--train_steps=0", "--batch_size=0"],
                           capture_output=True, text=True, timeout=GUARD_SECS, cwd=REPO)
    assert ended.returncode == 2 and ended.stdout == ""
    lines = lines_of(ended.stderr)
    assert [(line["level"], line["code"], line["exit_code"], line["message"].split(":")[0]) for line in lines] == [
        ("error", "flag_out_of_range", 2, "--train_steps"), ("error", "flag_out_of_range", 2, "--batch_size")]
