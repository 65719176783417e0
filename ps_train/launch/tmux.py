"""Each task in a pane of tmux, as if a person had typed its command there; the methods are those of `Display`."""

from __future__ import annotations

import collections
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from ps_train.errors import ConfigError
from ps_train.launch.process import Process

_CLIENT_POLL_SECS = 0.25


class Panes:
    """A pane for each task, in a tmux server that stays, with what is on the panes, until a person kills it.

    It is a server of its own: it has the environment of this process, and its options disturb nobody else's.
    """

    def __init__(self, stream: TextIO) -> None:
        """Starts nothing yet.

        Raises:
          ConfigError: tmux is not installed.
        """
        if shutil.which("tmux") is None:
            raise ConfigError("--tmux: tmux is not installed; install it (`apt-get install tmux`), or leave the flag "
                              "out to see all tasks in one output")
        self._stream = stream
        self._command = ["tmux", "-L", f"ps_train-{os.getpid()}"]
        self._client: subprocess.Popen | None = None
        self._held_back: list[str] = []
        self._last_pane = ""

    def start(self, name: str, command: Sequence[str], log_path: str, environ: Mapping[str, str],
              port: socket.socket) -> Process:
        """Starts a task in a pane of its own; its port is free from here until its server binds."""
        port.close()
        return _Pane(self, name, command, log_path, environ)

    def open(self, name: str, command: Sequence[str], log_path: str, environ: Mapping[str, str]) -> tuple[str, int]:
        """Runs a command in a new pane; returns the pane and the process id."""
        place = ["split-window", "-t", self._last_pane] if self._last_pane else [
            "start-server", ";",
            "set-option", "-wg", "remain-on-exit", "on", ";",
            "set-option", "-wg", "pane-border-status", "top", ";",
            "set-option", "-wg", "pane-border-format", " #{pane_title} ", ";",
            "new-session", "-s", "tasks", "-x", "200", "-y", "50"]
        opened = self._tmux(*place, "-d", "-P", "-F", "#{pane_id} #{pane_pid}", *command, environ=environ)
        if not opened:
            raise ConfigError(f"--tmux: tmux cannot open a pane for {name}; start fewer tasks, or leave the flag out")
        self._last_pane, pid = opened.split()
        self._tmux("select-pane", "-t", self._last_pane, "-T", name, ";", "select-layout", "-t", "tasks", "tiled", ";",
                   *_copy_to(log_path, self._last_pane))
        return self._last_pane, int(pid)

    def reopen(self, pane: str, log_path: str) -> int | None:
        """Runs a pane's command again; returns its process id, or None where tmux is gone."""
        pid = self._tmux("respawn-pane", "-k", "-t", pane, ";", *_copy_to(log_path, pane), ";",
                         "display-message", "-p", "-t", pane, "#{pane_pid}")
        return int(pid) if pid else None

    def begin(self) -> None:
        """Tells how to see the panes; on a terminal, shows them."""
        self.say(f"The tasks are in tmux: {self._advice()}")
        is_inside_tmux = "TMUX" in os.environ  # which refuses to nest
        if sys.stdin.isatty() and self._stream.isatty() and not is_inside_tmux:
            self._client = subprocess.Popen([*self._command, "attach"])

    def say(self, text: str) -> None:
        """Shows text of the launcher itself, or keeps it until tmux has left the terminal."""
        self._held_back.append(text)
        if self._client is None or self._client.poll() is not None:
            print(*self._held_back, sep="\n", file=self._stream, flush=True)
            self._held_back.clear()

    def show(self, tasks: Iterable[Process]) -> None:
        """Shows nothing, as tmux does; it reads on in the log files, for the last lines of a task that fails."""
        for task in tasks:
            collections.deque(task.new_lines(), maxlen=0)

    def close(self, signals: Sequence[int]) -> None:
        """Waits until the person has detached from tmux; after a signal, detaches."""
        while self._client is not None and self._client.poll() is None:
            if signals:
                self._tmux("detach-client", "-s", "tasks")
            time.sleep(_CLIENT_POLL_SECS)
        self.say(f"The tasks have ended, their panes stay: {self._advice()}")

    def _advice(self) -> str:
        command = " ".join(self._command)
        return f"`{command} attach` shows them, `{command} kill-server` ends tmux"

    def _tmux(self, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
        """Returns what a tmux command prints, "" where it fails: the server may have been killed."""
        return subprocess.run([*self._command, *arguments], env=environ, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def _copy_to(log_path: str, pane: str) -> list[str]:
    return ["pipe-pane", "-t", pane, f"exec cat >> {shlex.quote(log_path)}"]


class _Pane(Process):
    """A task whose parent is tmux.

    A shell around it writes down its exit code: tmux names no signal before 3.3, and 3.3a at times misses the end of
    the command in a pane.
    """

    _SHELL = 'trap : HUP INT TERM; file=$1; shift; "$@"; echo $? >"$file"'

    def __init__(self, panes: Panes, name: str, command: Sequence[str], log_path: str,
                 environ: Mapping[str, str]) -> None:
        self._panes = panes
        self._pane = ""
        self._code_path = f"{log_path}.exit"
        super().__init__(name, ["sh", "-c", self._SHELL, "sh", self._code_path, *command], log_path, environ)

    def _start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._code_path)
        if not self._pane:
            self._pane, self._pid = self._panes.open(self.name, self._command, self.log_path, self._environ)
        elif (pid := self._panes.reopen(self._pane, self.log_path)) is not None:
            self._pid = pid  # without it, the old one is found dead

    def _poll(self) -> int | None:
        is_alive = True
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            is_alive = False
        with contextlib.suppress(FileNotFoundError), open(self._code_path, encoding="ascii") as file:
            if (code := file.read()).endswith("\n"):
                return int(code)
        return None if is_alive else -signal.SIGKILL  # nothing else keeps the shell from writing it down

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)
