"""What a task prints, and what TensorFlow may not."""

from __future__ import annotations

import logging
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

from ps_train.runtime import logs

REPO = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def own_logger():
    """The logger of ps_train, as it was before after the test."""
    logger = logging.getLogger("ps_train")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def _import_quietly(search_path, **environ):
    """Runs `import_tensorflow_quietly` in a process of its own; modules in `search_path` go first."""
    code = ("import os; from ps_train.runtime import logs; logs.import_tensorflow_quietly(); "
            "print(os.environ['TF_CPP_MIN_LOG_LEVEL']); os.write(2, b'after')")
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(search_path), str(REPO)]), **environ})


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A function that makes a module named tensorflow which, imported, writes to descriptor 2 and runs a line."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)

    def make(line=""):
        (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, b'noise from C++')\n{line}\n")
        return tmp_path

    return make


def test_lines_go_to_stderr_with_the_time(own_logger, capsys):
    """A line of ps_train's own has the time of day before it, and is there once however often setup is called."""
    logs.setup()
    logs.setup()
    logging.getLogger("ps_train.anything").info("hello %d", 3)
    out, err = capsys.readouterr()
    time_of_day, _, text = err.partition(" ")
    assert (out, text) == ("", "hello 3\n")
    assert [len(part) for part in time_of_day.split(":")] == [2, 2, 2]
    assert not own_logger.propagate  # absl's root handler would print the line a second time


def test_what_is_written_while_tensorflow_is_imported_is_not_shown(stand_in):
    """Start-up noise is held back; what is written later is shown."""
    ended = _import_quietly(stand_in())
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "after")


def test_a_failing_import_shows_everything(stand_in):
    """If TensorFlow cannot be imported, what it wrote is there beside the traceback."""
    ended = _import_quietly(stand_in("raise ImportError('no libcudart')"))
    assert ended.returncode == 1
    assert "noise from C++" in ended.stderr and "ImportError: no libcudart" in ended.stderr


def test_the_users_own_log_level_is_kept(stand_in):
    """TF_CPP_MIN_LOG_LEVEL is a default of ours, no order."""
    assert _import_quietly(stand_in(), TF_CPP_MIN_LOG_LEVEL="0").stdout == "0\n"


def test_the_real_tensorflow_is_quiet(tmp_path, monkeypatch):
    """The TensorFlow that is installed writes nothing while it is imported."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    ended = _import_quietly(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "after")


def test_tensorflows_own_logger_is_quiet():
    """TensorFlow's Python side says errors only, and its deprecation warnings are ignored."""
    level = logging.getLogger("tensorflow").level
    with warnings.catch_warnings():
        logs.import_tensorflow_quietly()  # a second time, which must do no harm
        assert any(entry[0] == "ignore" and entry[3] and entry[3].match("tensorflow.python")
                   for entry in warnings.filters)
        assert logging.getLogger("tensorflow").level == logging.ERROR
    logging.getLogger("tensorflow").setLevel(level)


def test_a_full_disk_under_stderr_takes_no_complaint_and_raises_nothing():
    """The exit code of the process still says what was wrong."""
    done = subprocess.run([sys.executable, "-m", "ps_train", "--no_such_flag"], cwd=REPO, stdout=subprocess.DEVNULL,
                          stderr=open("/dev/full", "wb"))  # noqa: SIM115 (it is the child's)
    assert done.returncode == 2
