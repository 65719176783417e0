"""Lets a launcher that is a fork start its tasks as forks, too; see fork_server.py."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Callable


class ForkedTask:
    """A task that the launcher starts, with the part of `subprocess.Popen` that launch/process.py uses."""

    def __init__(
        self, become_task: Callable[..., None], command: Sequence[str], stdout, env, cwd, pass_fds, preexec_fn
    ):
        """Forks; returns when the task has a session of its own and ends with the launcher, as after Popen."""
        self.returncode: int | None = None
        sys.stdout.flush()  # the task has a copy of what is not written yet
        ready, is_ready = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                if preexec_fn is not None:
                    preexec_fn()
                os.close(is_ready)
                request = {"module": command[2], "arguments": command[3:], "cwd": cwd, "environ": env}
                become_task(request, stdout.fileno(), pass_fds)
            finally:
                os._exit(1)
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)

    def poll(self) -> int | None:
        """Returns the exit code, or None while the task runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def install(become_task: Callable[..., None]) -> None:
    """Makes this process's launcher fork what would be `python -m ps_train`.

    Args:
      become_task: see fork_server.py.
    """
    from ps_train.launch import fork_server, process  # noqa: PLC0415 (the fork server has imported them)

    def start(command, *, stdin, stdout, stderr, env, cwd, pass_fds, start_new_session, preexec_fn):
        if list(command[1:3]) == ["-m", "ps_train"]:
            return ForkedTask(become_task, command, stdout, env, cwd, pass_fds, preexec_fn)
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, pass_fds=pass_fds,
                                start_new_session=start_new_session, preexec_fn=preexec_fn)

    fork_server.ForkServer.begin = lambda self, *task: None  # these forks start as soon as its own
    fork_server.ForkServer.keep_ready = lambda self: None
    process.subprocess = types.SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
