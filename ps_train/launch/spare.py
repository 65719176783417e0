"""A spare process has imported all that a task needs, and becomes the next one that is restarted, seconds sooner.

    launcher                                  spare
    Spare()  --- python -m ... -------------> imports TensorFlow and the modules of a task, waits
    become() --- arguments, open files -----> goes on as `python -m ps_train ARGUMENTS`

The imports are most of the time until a lost task of a small model trains again.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Callable

from ps_train.launch.process import TASK_COMMAND, killed_with_parent
from ps_train.runtime import installed

_MODULE = "ps_train.launch.spare"
_REQUEST_BYTES = 1 << 16  # fits into the buffer of a socket, so that sending never waits for the import
_MOST_FILES = 8
_QUIET_SECS = 10.0  # without a restart, before the next one is started: its import takes a core


class Spare:
    """A process that waits to become a task; it ends with this one."""

    def __init__(self, environ: Mapping[str, str], folder: str | None = None) -> None:
        """Starts it with the environment and the working directory of the tasks; does not wait for its import."""
        self._environ = {**environ, "PYTHONUNBUFFERED": "1"}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(theirs.fileno())], env=self._environ, pass_fds=[theirs.fileno()],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=killed_with_parent())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._popen.poll() is not None

    def become(
        self, command: Sequence[str], environ: Mapping[str, str], log: int, files: Mapping[str, int]
    ) -> subprocess.Popen | None:
        """Returns the process, which is that task from now on, or None if it cannot become it.

        Args:
          environ: of the task, without the variables of the files.
          log: the open file that becomes its stdout and stderr.
          files: the open files that it inherits: environment variable that has the number -> number.
        """
        request = json.dumps({"arguments": command[3:], "names": list(files)}).encode()
        if list(command[:3]) != TASK_COMMAND or environ != self._environ or len(request) > _REQUEST_BYTES:
            return None
        if self.has_ended:  # as without memory for the import
            return None
        try:
            socket.send_fds(self._socket, [request], [log, *files.values()])
        except ConnectionError:  # just now
            return None
        self._socket.close()
        return self._popen

    def end(self) -> None:
        """Ends it, if it has not become a task."""
        self._socket.close()
        self._popen.kill()
        self._popen.wait()


class Spares:
    """Keeps one spare ready for the next restart."""

    def __init__(
        self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic,
        start: Callable[[Mapping[str, str], str], Spare] = Spare, *, folder: str = "",
    ) -> None:
        """Starts none yet; `folder` is the working directory of the tasks, "" for that of this process."""
        self._environ, self._clock, self._start = environ, clock, start
        self._folder = folder or os.getcwd()  # a program may change to another one before a spare is started
        self._spare: Spare | None = None
        self._taken_secs = clock()

    def keep_ready(self) -> None:
        """Starts a spare, if there is none, and the tasks have had the time to start. Call it while all tasks run."""
        if self._spare is None and self._clock() - self._taken_secs > _QUIET_SECS:
            self._taken_secs = self._clock()
            with contextlib.suppress(OSError):  # no process or memory is left for it; the tasks do without
                self._spare = self._start(self._environ, self._folder)

    def become(
        self, command: Sequence[str], environ: Mapping[str, str], log: int, files: Mapping[str, int]
    ) -> subprocess.Popen | None:
        """See `Spare.become`."""
        self._taken_secs = self._clock()
        if self._spare is None:
            return None
        task = self._spare.become(command, environ, log, files)
        if task is None:
            self._spare.end()
        self._spare = None
        return task

    def close(self) -> None:
        """Ends the spare that is left."""
        if self._spare is not None:
            self._spare.end()
            self._spare = None


def main(descriptor: int) -> None:
    """Imports what a task needs and waits; then this process is the task of the request, until it ends."""
    installed.import_tensorflow(needs_gpu=True, tf_log=False)
    for name in ("ps_train.verbs.train", "ps_train.tasks.run", "ps_train.tasks.without_training"):  # not above: they
        importlib.import_module(name)  # import TensorFlow, and the launcher imports this module
    with socket.socket(fileno=descriptor) as connection:
        data, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _MOST_FILES)
    if not data:  # the launcher needs no spare any more
        return
    request = json.loads(data)
    log, *files = descriptors
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    for name, file in zip(request["names"], files):
        os.environ[name] = str(file)
    sys.argv = ["ps_train", *request["arguments"]]
    runpy.run_module("ps_train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
