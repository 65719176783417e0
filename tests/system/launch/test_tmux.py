"""Panes of tmux; that they work for real is shown in system/launch/test_launcher.py."""

from __future__ import annotations

import shutil
import sys

import pytest

from ps_train.errors import ConfigError
from ps_train.launch import tmux


def test_tmux_that_is_not_installed_is_a_configuration_error(monkeypatch):
    """It says how to get it."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="--tmux: tmux is not installed; install it"):
        tmux.Panes(sys.stdout)
