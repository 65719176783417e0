"""What `ps_train run` prepares for a script."""

from __future__ import annotations

import io
import logging

import pytest

from ps_train.parts.legacy import run


@pytest.fixture
def levels():
    """Restores the levels of the loggers."""
    loggers = logging.getLogger("tensorflow"), logging.getLogger()
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels):
        logger.setLevel(level)


def after_quiet_import(monkeypatch):
    """Returns what reads the lines of TensorFlow's handler and of another, and the other, for the root logger."""
    logger, root = logging.getLogger("tensorflow"), logging.getLogger()
    streams = io.StringIO(), io.StringIO()
    own, of_script = (logging.StreamHandler(stream) for stream in streams)
    for owner, handlers in ((logger, [own]), (root, [])):
        monkeypatch.setattr(owner, "handlers", handlers)
        monkeypatch.setattr(owner, "filters", [])
    logger.setLevel(logging.ERROR)
    root.setLevel(logging.WARNING)
    run.let_script_show_tensorflow_log()
    return lambda: [stream.getvalue().split() for stream in streams], of_script


def log_all():
    """Logs a line of each level, as an Estimator does."""
    for level in ("info", "warning", "error"):
        getattr(logging.getLogger("tensorflow"), level)(level)


def test_a_script_that_configures_logging_sees_the_log_of_tensorflow_once(monkeypatch, levels):
    """Issue: the losses of an Estimator were missing from the log of a script that calls logging.basicConfig."""
    lines, handler = after_quiet_import(monkeypatch)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    log_all()
    assert lines() == [[], ["info", "warning", "error"]]


def test_other_scripts_see_errors_only(monkeypatch, levels):
    """TensorFlow warns of much that such a script cannot change."""
    lines, handler = after_quiet_import(monkeypatch)
    log_all()
    logging.getLogger().addHandler(handler)  # absl does this, in `tf.app.run`
    log_all()
    assert lines() == [["error"], ["error"]]


def test_a_script_may_set_the_level_by_tf_logging(monkeypatch, levels):
    """As most scripts do that show losses."""
    lines, _ = after_quiet_import(monkeypatch)
    logging.getLogger("tensorflow").setLevel(logging.INFO)  # what `tf.logging.set_verbosity` does
    log_all()
    assert lines() == [["info", "warning", "error"], []]
