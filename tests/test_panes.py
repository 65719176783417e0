"""Panes of tmux; that they work for real is shown in test_launch.py."""

from __future__ import annotations

import shutil
import sys

import pytest

from ps_train import panes
from ps_train.errors import ConfigError


def test_tmux_that_is_not_installed_is_a_configuration_error(monkeypatch):
    """It says how to get it."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="--tmux: tmux is not installed; install it"):
        panes.Panes(sys.stdout)
