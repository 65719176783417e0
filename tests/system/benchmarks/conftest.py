"""What the tests of the benchmarks share."""

from __future__ import annotations

import os
import subprocess
import types

import pytest

from ps_train.launch import process
from ps_train.runtime import reports
from tests import fork_server, processes


@pytest.fixture
def forked_tasks(monkeypatch):
    """Makes the tasks of a run forks of a process that has imported TensorFlow."""
    telling = []  # the server of the tasks that log what they receive, which TensorFlow asks for when it is imported

    def start(command, *, stdout, env, **options):
        if command[1] != "-m":
            return subprocess.Popen(command, stdout=stdout, env=env, **options)
        if "TF_CPP_VMODULE" in env and not telling:
            wanted = {name: env[name] for name in ("TF_CPP_VMODULE", "TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY")}
            telling.append(fork_server.ForkServer(wanted))
        server = telling[0] if "TF_CPP_VMODULE" in env else fork_server.of_this_process()
        environ = {name: value for name, value in env.items() if name != reports.DESCRIPTOR_VARIABLE}
        return server.start(command[3:], os.getcwd(), environ, stdout.fileno(), command[2])

    monkeypatch.setattr(process, "subprocess", types.SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL))
    yield
    for server in telling:
        server.end()


@pytest.fixture
def forked_group(monkeypatch):
    """Makes the tasks of a ProcessGroup forks, also where the tool measures the start and asks for new processes."""
    start = processes.ProcessGroup.start
    monkeypatch.setattr(
        processes.ProcessGroup, "start", lambda *args, is_exec=False, **options: start(*args, **options))
