"""The output of all tasks in one stream.

    on a terminal   each line after the coloured name of its task; below, a bar in place of the chief's progress lines,
                    or, without any, the line that a task has begun and may redraw, as a script with a bar does
    elsewhere       plain lines; about one of the chief's progress lines per second
    as JSON         every line of every task, as one object (--log_format=json)

After the last step the bar shows the activity of the chief. The progress lines of the other workers are only in their
log files. A part may have something else with the same methods (parts/tmux).
"""

from __future__ import annotations

import math
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, TextIO

from ps_train.launch.process import Process, TaskCommand
from ps_train.runtime import logs
from ps_train.runtime.reports import NO_STEP_LIMIT, Failure, Progress, Report, Stage, of_all

_COLOURS = (36, 35, 33, 32, 34, 31)  # cyan, magenta, yellow, green, blue, red: SGR codes
_BAR_CELLS = 12
_FEWEST_CELLS = 4
_ERASE_LINE = "\r\x1b[K"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]")  # escape sequences of a terminal, and backspaces
_PROGRESS_PERIOD_SECS = 1.0
JSON_NAME = "launch"  # the task in the launcher's own lines of JSON


class Display:
    """Writes lines and a progress bar to a stream; after the stream is closed, nothing.

    Attributes:
      shows_lines: whether the last lines of a task that failed have been shown.
      progress: the chief's last report, if `is_terminal`; None before the first.
      activity: the first clause of the launcher's last message.
    """

    shows_lines = True

    def __init__(
        self, stream: TextIO | None, names: Sequence[str], chief: str, is_terminal: bool, has_colours: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the display.

        Args:
          stream: where they are written; None to write nothing, for a reader of the attributes.
          names: the names of the tasks, in the order of their colours.
          chief: the task whose progress is that of the cluster.
          is_terminal: whether a line may be redrawn.
          has_colours: whether names are coloured.
          clock: returns seconds.
        """
        self._stream = stream
        self._chief = chief
        self._is_terminal = is_terminal
        self._clock = clock
        self.progress: Progress | Stage | None = None
        self.activity = ""
        self._failed_first = ""  # the task whose traceback is shown: most others have the same one
        self._next_progress_secs = -math.inf
        self._unfinished: dict[str, str] = {}  # name of a task -> the line that it has begun; the last changed one last
        self._width = width = max(map(len, names), default=0)
        self._prefixes = {name: _prefix(name, width, _COLOURS[index % len(_COLOURS)] if has_colours else None)
                          for index, name in enumerate(names)}

    def start(self, task: TaskCommand, log_path: str, port: socket.socket | None) -> Process:
        """Starts a task; see `Process`."""
        return Process(task.name, task.command, log_path, task.environ, port, folder=task.folder, start=task.start)

    def attach(self) -> None:
        """Does nothing, because the stream needs no preparation; called once all tasks are started."""

    def write(self, message: str) -> None:
        """Writes a message of the launcher."""
        self.activity = re.split("[;\n]", message, maxsplit=1)[0]
        self._write(message)

    def _write(self, lines: str) -> None:
        below = self._bar_text()
        self._put(f"{_ERASE_LINE}{lines}\n{below}" if below else f"{lines}\n")

    def write_output(self, processes: Iterable[Process]) -> None:
        """Writes the output of the tasks since the last call."""
        for process in processes:
            for line, report in process.new_output():
                self.write_line(process.name, line, report)
            if self._is_terminal:
                self._show_unfinished(process.name, _CONTROL.sub("", process.unfinished_line))

    def write_line(self, name: str, line: str, report: Report | None = None) -> None:
        """Writes a line of a task's output, or shows the report of which it is part.

        The lines of a traceback are hidden if another task has already shown one.
        """
        if isinstance(report, Failure) and report.is_in_user_code:
            self._failed_first = self._failed_first or name
            is_hidden = name != self._failed_first
        else:
            is_hidden = isinstance(report, Progress) and not self._is_due(name, report)
        if name == self._chief and self._is_terminal and isinstance(report, (Progress, Stage)):
            self._redraw(report)
        elif not is_hidden:
            self._write(self._prefixes[name] + line)

    def close(self, signals: Sequence[int]) -> None:
        """Erases the bar, when the tasks have ended."""
        if self._stream is not None and self._bar_text():
            self.progress = None
            self._unfinished.clear()
            self._put(_ERASE_LINE)

    def _is_due(self, name: str, progress: Progress) -> bool:
        """Returns whether a progress line is written, where no bar shows the progress."""
        is_early = self._clock() < self._next_progress_secs and progress.step < progress.train_steps
        if name != self._chief or is_early:
            return False
        self._next_progress_secs = self._clock() + _PROGRESS_PERIOD_SECS
        return True

    def _redraw(self, report: Progress | Stage) -> None:
        self.progress = report
        self._put(_ERASE_LINE + self._bar_text())

    def _show_unfinished(self, name: str, line: str) -> None:
        if line == self._unfinished.get(name, ""):
            return
        self._unfinished.pop(name, None)
        if line:
            self._unfinished[name] = line
        if self.progress is None:
            self._put(_ERASE_LINE + self._bar_text())

    def _bar_text(self) -> str:
        columns = shutil.get_terminal_size().columns - 1
        if self.progress is not None:
            return bar(self.progress, columns)
        for name, line in reversed(self._unfinished.items()):
            return self._prefixes[name] + line[:max(columns - self._width - len(" | "), 0)]
        return ""

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:  # the terminal was closed, or the reader of the pipe has ended: training continues
            self._stream = None


class JsonDisplay(Display):
    """Writes each line of every task as a JSON object, and the messages of the launcher, too."""

    def __init__(self, stream: TextIO) -> None:
        """Takes the output of the launcher."""
        super().__init__(stream, (), "", is_terminal=False, has_colours=False)

    def write(self, message: str) -> None:
        """Writes a message of the launcher, or a line of JSON as it is."""
        self.write_line(JSON_NAME, message)

    def write_line(self, name: str, line: str, report: Report | None = None) -> None:
        """Writes a line of a task; one that is no JSON, as of a `print` in the model, becomes a message."""
        if line:
            self._put(f"{line if logs.is_json_line(line) else logs.json_line(line, task=name)}\n")


def on_stream(
    stream: TextIO, names: Sequence[str], chief: str, environ: Mapping[str, str] = os.environ,
) -> Display:
    """Returns a Display with what the stream supports; NO_COLOR (no-color.org) and TERM=dumb are honoured."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") != "dumb"
    return Display(stream, names, chief, is_terminal, is_terminal and not environ.get("NO_COLOR"))


class StatusLine:
    """A line with the progress of a training, in place: on a terminal, or in the output of a notebook's cell."""

    def __init__(self, stream: TextIO | None) -> None:
        """Shows nothing on a stream that is neither, nor without one."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        self._is_notebook = stream is not None and hasattr(shell, "kernel")
        self._stream = stream if stream is not None and stream.isatty() else None
        self._last_line = ""
        self._handle: Any = None

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        """Keeps the line."""
        if self._stream and self._last_line:
            print(file=self._stream, flush=True)

    def show(self, display: Display) -> None:
        """Draws the state of a display."""
        columns = shutil.get_terminal_size().columns - 1
        self.write(bar(display.progress, columns) if display.progress else (display.activity or "starting")[:columns])

    def write(self, line: str) -> None:
        """Writes the line in place of the last one."""
        if line == self._last_line:
            return
        if self._is_notebook:
            self._show_in_cell({"text/plain": line})
        elif self._stream:
            print(f"\r{line:<{len(self._last_line)}}", end="", file=self._stream, flush=True)
        self._last_line = line

    def _show_in_cell(self, content: Mapping[str, str]) -> None:
        if self._handle is None:
            self._handle = sys.modules["IPython"].display.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _prefix(name: str, width: int, colour: int | None) -> str:
    prefix = f"{name:<{width}} |"
    return f"{prefix} " if colour is None else f"\x1b[{colour}m{prefix}\x1b[0m "


def bar(report: Progress | Stage, columns: int) -> str:
    """Returns the progress bar, `[======>     ]  45%  step 450 of 1000  312.0 steps/s  loss 0.1234  ETA 2 s`.

    If that does not fit, the words and the bar become shorter, and then the rate is left out: loss and ETA stay.
    """
    part = min(report.step / report.train_steps, 1.0) if report.train_steps else 1.0
    labels = [f"{part:4.0%}  {details}" for details in _details(report)]
    for label in labels:
        num_cells = min(columns - len(label) - len("[] "), _BAR_CELLS)
        if num_cells >= _FEWEST_CELLS:
            filled = int(part * num_cells)
            cells = "=" * filled + ">" * (filled < num_cells)
            return f"[{cells:<{num_cells}}] {label}"
    return labels[-1][:columns]


def _details(report: Progress | Stage) -> list[str]:
    """Returns the words behind the percentage, the longest first."""
    if isinstance(report, Stage):
        return [f"step {of_all(report.step, report.train_steps)}  {report.activity}", report.activity]
    loss = f"loss {report.loss:.4g}  ETA {_remaining(report)}"
    short = of_all(report.step, report.train_steps, "/")
    return [f"step {of_all(report.step, report.train_steps)}  {report.steps_per_sec:.1f} steps/s  {loss}",
            f"{short}  {report.steps_per_sec:.0f}/s  {loss}", f"{short}  {loss}", loss]


def _remaining(progress: Progress) -> str:
    steps = max(progress.train_steps - progress.step, 0)
    if progress.train_steps >= NO_STEP_LIMIT:
        return "unknown"
    if steps and not 0 < progress.steps_per_sec < math.inf:  # also not for NaN
        return "unknown"
    return duration(steps / progress.steps_per_sec if steps else 0)


def duration(secs: float) -> str:
    """Returns `12 s`, `3 min 05 s` or `2 h 05 min`."""
    minutes, seconds = divmod(math.ceil(secs), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
