"""`ps_train launch --tmux`: the flag, and the log of each task in a pane of tmux.

    launcher --> task --> its log file --> tail --> a pane
"""

from __future__ import annotations

import collections
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from ps_train.config.fields import field
from ps_train.config.groups import LAUNCH
from ps_train.errors import ConfigError, Problem
from ps_train.launch.display import Display
from ps_train.launch.part import LaunchPart
from ps_train.launch.process import Process, TaskCommand

_CLIENT_POLL_SECS = 0.25
# Follows a log from a byte on until the launcher has ended. In a terminal that shows tmux, Ctrl-C reaches only the
# pane: it is passed on to the launcher. A shell lets a command in the background ignore Ctrl-C.
_FOLLOW = """\
trap "kill -INT $1" INT
tail -c "+$2" -f "$3" & while kill -0 "$1"; do sleep 1; done 2>/dev/null; kill $!"""


@dataclasses.dataclass(frozen=True)
class TmuxFlags:
    """Where the output of the tasks is shown."""

    tmux: bool = field(False, LAUNCH, "Show each task in its own tmux pane instead of merging the output.")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns no problem: the flag fits all others."""
        return []


class TmuxPart(LaunchPart):
    """Shows the tasks in panes, with --tmux."""

    def display(self, launch_config: Any, stream: Any) -> Panes | None:
        """Returns the panes; raises ConfigError if tmux is not installed."""
        return Panes(stream) if launch_config.tmux else None


class Panes:
    """A pane for each task, with the methods of `launch.display.Display`.

    The tmux server is a separate one, so its options do not affect other sessions. It keeps running, and so do the
    panes, until the user ends it.

    Attributes:
      shows_lines: false, as the lines of the tasks are in the panes only.
    """

    shows_lines = False

    def __init__(self, stream: TextIO) -> None:
        """Starts nothing yet.

        Raises:
          ConfigError: tmux is not installed.
        """
        if shutil.which("tmux") is None:
            raise ConfigError("tmux_missing", "--tmux: tmux is not installed; install it (`apt-get install tmux`), or "
                              "omit the flag to see all tasks in one output")
        self._stream = stream
        # A message is lost, and no training, if the terminal was closed or the disk is full.
        self._messages = Display(stream, (), "", is_terminal=False, has_colours=False)
        self._command = ["tmux", "-L", f"ps_train-{os.getpid()}"]
        self._client: subprocess.Popen | None = None
        self._held_back: list[str] = []
        self._last_pane = ""

    def start(self, task: TaskCommand, log_path: str, port: socket.socket | None) -> Process:
        """Starts a task, see `Process`, and shows its output in a new pane."""
        with open(log_path, "ab") as log:
            first_byte = log.tell() + 1
        self._open(task.name, ["sh", "-c", _FOLLOW, "sh", str(os.getpid()), str(first_byte), log_path])
        return Process(task.name, task.command, log_path, task.environ, port, folder=task.folder, start=task.start)

    def _open(self, name: str, command: Sequence[str]) -> None:
        command_start = ["split-window", "-t", self._last_pane] if self._last_pane else [
            "start-server", ";",
            "set-option", "-wg", "remain-on-exit", "on", ";",
            "set-option", "-wg", "pane-border-status", "top", ";",
            "set-option", "-wg", "pane-border-format", " #{pane_title} ", ";",
            "new-session", "-s", "tasks", "-x", "200", "-y", "50"]
        ended = self._tmux(*command_start, "-d", "-P", "-F", "#{pane_id}", *command)
        self._last_pane = ended.stdout.strip()
        if not self._last_pane:
            reason = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
            raise ConfigError("tmux_pane_failed", f"--tmux: tmux cannot open a pane for {name}: {reason}; correct "
                              "that, start fewer tasks if it lacks space, or omit the flag")
        self._tmux("select-pane", "-t", self._last_pane, "-T", name, ";", "select-layout", "-t", "tasks", "tiled")

    def attach(self) -> None:
        """Prints how to see the panes; on a terminal, shows them. Called once all tasks are started."""
        self.write(f"The tasks are in tmux: {self._advice()}")
        is_inside_tmux = "TMUX" in os.environ  # tmux refuses to nest
        if sys.stdin.isatty() and self._stream.isatty() and not is_inside_tmux:
            self._client = subprocess.Popen([*self._command, "attach"])

    def write(self, message: str) -> None:
        """Prints a message of the launcher; while tmux has the terminal, the message is kept."""
        self._held_back.append(message)
        if self._client is None or self._client.poll() is not None:
            self._messages.write("\n".join(self._held_back))
            self._held_back.clear()

    def write_output(self, processes: Iterable[Process]) -> None:
        """Writes nothing, but reads the logs, for the last lines of a task that fails and the reason of its end."""
        for process in processes:
            collections.deque(process.new_output(), maxlen=0)

    def close(self, signals: Sequence[int]) -> None:
        """Waits until the user has detached from tmux; after a signal, detaches."""
        while self._client is not None and self._client.poll() is None:
            if signals:
                self._tmux("detach-client", "-s", "tasks")
            time.sleep(_CLIENT_POLL_SECS)
        self.write(f"The tasks have ended, their panes stay: {self._advice()}")

    def _advice(self) -> str:
        command = " ".join(self._command)
        return f"`{command} attach` shows them, `{command} kill-server` ends tmux"

    def _tmux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Returns what a tmux command has printed; it may fail, as the server may have been killed."""
        return subprocess.run([*self._command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
