"""What the tests of the benchmarks share."""

from __future__ import annotations

import os
import subprocess
import types

import pytest

from ps_train.launch import process
from ps_train.runtime import reports
from tests import fork_server


@pytest.fixture
def forked_tasks(monkeypatch):
    """Makes the tasks of a run forks of a process that has imported TensorFlow."""
    def start(command, *, stdout, env, **options):
        # TensorFlow has read that variable in the fork server.
        if command[1] != "-m" or "TF_CPP_VMODULE" in env:
            return subprocess.Popen(command, stdout=stdout, env=env, **options)
        environ = {name: value for name, value in env.items() if name != reports.DESCRIPTOR_VARIABLE}
        return fork_server.of_this_process().start(command[3:], os.getcwd(), environ, stdout.fileno(), command[2])

    monkeypatch.setattr(process, "subprocess", types.SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL))
