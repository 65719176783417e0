"""TensorFlow in the mode that a task uses, and its servers in this process."""

from __future__ import annotations

import gc
import os

# With oneDNN, TensorFlow looks through all of its kernels for each op of each graph that a session runs: a quarter of
# the CPU time of a training of 30 steps. Which kernels compute is nothing that these tests are about.
is_chosen = "TF_ENABLE_ONEDNN_OPTS" in os.environ
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from tests.server_fixtures import start_servers  # noqa: E402 (TensorFlow reads the variable when it is imported)

if not is_chosen:
    del os.environ["TF_ENABLE_ONEDNN_OPTS"]  # a process that a test starts decides for itself
gc.freeze()  # what the imports have made stays; without it each collection looks through it

__all__ = ["start_servers"]
