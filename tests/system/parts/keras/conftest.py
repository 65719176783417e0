"""What the processes of Keras tests have in their environment."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_thread_for_an_operation(monkeypatch):
    """Idle threads of TensorFlow's pool spin, which takes a sixth of the CPU time of a small training."""
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
