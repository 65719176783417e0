"""Panes of tmux; that they work for real is shown in system/launch/test_launcher.py."""

from __future__ import annotations

import io
import os
import shutil
import sys

from ps_train.launch.process import TaskCommand
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


def test_a_pane_that_cannot_be_opened_has_the_reason_of_tmux(monkeypatch, tmp_path):
    """Which may be the locale, or its folder of sockets, and not only the space."""
    program = tmp_path / "tmux"
    program.write_text("#!/bin/sh\necho 'tmux: need UTF-8 locale (LC_CTYPE)' >&2\necho ' but have ASCII' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with raises("tmux_pane_failed") as caught:
        Panes(sys.stdout).start(TaskCommand("ps:0", ["true"], os.environ), str(tmp_path / "log"), None)
    assert "a pane for ps:0: tmux: need UTF-8 locale (LC_CTYPE) but have ASCII; " in str(caught.value)


class FullDisk(io.TextIOWrapper):
    """The output of a launcher under nohup; with the encoding of an old locale."""

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="iso-8859-1")
        self.is_full = False

    def write(self, text):
        """Writes, unless the disk is full."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_message_that_cannot_be_written_is_lost_and_no_training(monkeypatch):
    """An error in the launcher would kill all tasks before they have saved."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    stream = FullDisk()
    panes = Panes(stream)
    panes.write("Checkpoints: /tmp/\u043e\u0431\u0443\u0447\u0435\u043d\u0438\u0435")
    assert stream.buffer.getvalue() == b"Checkpoints: /tmp/????????\n"
    stream.is_full = True
    panes.write("SIGTERM: stopping the tasks")
    panes.close([])
