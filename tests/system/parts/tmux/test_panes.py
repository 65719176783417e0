"""Panes of tmux; that they work for real is shown in system/launch/test_launcher.py."""

from __future__ import annotations

import shutil
import sys

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.tmux import panes
from tests.children import run_to_end, stopped_on_request


def test_the_panes_hear_of_a_requested_stop(tmp_path):
    """They show the logs by themselves; what the tasks report is read on."""
    task = stopped_on_request(tmp_path, "worker:0")
    run_to_end(task)
    object.__new__(panes.Panes).write_output([task])  # it needs no tmux
    assert task.is_stopped_on_request


def test_tmux_that_is_not_installed_is_a_configuration_error(monkeypatch):
    """It says how to get it."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="--tmux: tmux is not installed; install it"):
        panes.Panes(sys.stdout)
