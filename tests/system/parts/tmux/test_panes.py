"""Panes of tmux; that they work for real is shown in system/launch/test_launcher.py."""

from __future__ import annotations

import shutil
import sys

from ps_train.parts.tmux.part import Panes
from tests.children import run_to_end, stopped_on_request
from tests.errors import raises


def test_the_panes_note_a_requested_stop(tmp_path):
    """tmux shows the logs, but the reports of the tasks are still read."""
    task = stopped_on_request(tmp_path, "worker:0")
    run_to_end(task)
    object.__new__(Panes).write_output([task])  # it needs no tmux
    assert task.is_stopped_on_request


def test_tmux_that_is_not_installed_is_a_configuration_error(monkeypatch):
    """Refused before any task starts."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with raises("tmux_missing"):
        Panes(sys.stdout)
