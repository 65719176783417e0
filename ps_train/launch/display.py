"""All tasks' lines together in one stream.

    on a terminal   lines behind their task's coloured name; the chief's progress lines become a bar under them
    elsewhere       plain lines; of the chief's progress lines about one a second

When the chief has taken its last step, the bar says what it does then.

The other workers' progress lines are in their log files only. `panes.Panes` has the same methods as `Display`, so that
`launch` need not know which one it has.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable, TextIO

from ps_train.launch.process import Process
from ps_train.runtime import reports
from ps_train.runtime.reports import Progress, Stage
from ps_train.runtime.tracebacks import FirstReport

_COLOURS = (36, 35, 33, 32, 34, 31)  # cyan, magenta, yellow, green, blue, red: SGR codes
_BAR_CELLS = 12
_FEWEST_CELLS = 4
_ERASE_LINE = "\r\x1b[K"
_PROGRESS_PERIOD_SECS = 1.0


class Display:
    """Writes lines and a progress bar to a stream; where that is gone, to nowhere."""

    def __init__(
        self, stream: TextIO, names: Sequence[str], chief: str, is_terminal: bool, has_colours: bool,
        clock: Callable[[], float] = time.monotonic, read: Callable[[str], Progress | None] = reports.parse,
    ) -> None:
        """Prepares the display.

        Args:
          names: the tasks' names, in the order of their colours.
          chief: the task whose progress is that of the cluster.
          is_terminal: whether a line may be redrawn.
          has_colours: whether names are coloured.
          read: finds the progress in a line of a worker, see `reporting.reader_of`.
        """
        self._stream: TextIO | None = stream
        self._chief = chief
        self._is_terminal = is_terminal
        self._clock = clock
        self._read = read
        self._bar: Progress | Stage | None = None
        self._reports = FirstReport()
        self._next_progress_secs = -math.inf
        width = max(map(len, names), default=0)
        self._prefixes = {name: _prefix(name, width, _COLOURS[index % len(_COLOURS)] if has_colours else None)
                          for index, name in enumerate(names)}

    def start(self, name: str, command: Sequence[str], log_path: str, environ: Mapping[str, str],
              port: socket.socket | None) -> Process:
        """Starts a task whose lines `show` will find; see `Process`."""
        return Process(name, command, log_path, environ, port)

    def begin(self) -> None:
        """Has nothing to do: lines are shown as they come."""

    def say(self, text: str) -> None:
        """Shows text of the launcher itself."""
        self._write(text)

    def show(self, tasks: Iterable[Process]) -> None:
        """Shows what the tasks have written since the last call."""
        for task in tasks:
            for line in task.new_lines():
                if not self._reports.hides(task.name, line):
                    self.show_line(task.name, line)

    def show_line(self, name: str, line: str) -> None:
        """Shows a line of a task's output, or the progress that it reports."""
        found = self._read(line)
        stage = reports.parse_stage(line) if name == self._chief and self._is_terminal else None
        if stage:
            self._redraw(stage)
        elif found is None:
            self._write(self._prefixes[name] + line)
        elif name == self._chief:
            self._show_progress(found, line)

    def close(self, signals: Sequence[int]) -> None:
        """Takes the bar away, when the tasks have ended."""
        if self._bar is not None:
            self._bar = None
            self._put(_ERASE_LINE)

    def _show_progress(self, found: Progress, line: str) -> None:
        if self._is_terminal:
            self._redraw(found)
        elif self._clock() >= self._next_progress_secs or found.step >= found.train_steps:
            self._next_progress_secs = self._clock() + _PROGRESS_PERIOD_SECS
            self._write(self._prefixes[self._chief] + line)

    def _redraw(self, found: Progress | Stage) -> None:
        self._bar = found
        self._put(_ERASE_LINE + self._bar_text())

    def _bar_text(self) -> str:
        return "" if self._bar is None else bar(self._bar, shutil.get_terminal_size().columns - 1)

    def _write(self, text: str) -> None:
        self._put(f"{_ERASE_LINE}{text}\n{self._bar_text()}" if self._bar else f"{text}\n")

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:  # the terminal was closed, or the reader of the pipe has ended: training goes on
            self._stream = None


def on_stream(
    stream: TextIO, names: Sequence[str], chief: str, environ: Mapping[str, str] = os.environ,
    read: Callable[[str], Progress | None] = reports.parse,
) -> Display:
    """Returns the Display that suits a stream: NO_COLOR (no-color.org) and TERM=dumb are honoured."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") != "dumb"
    return Display(stream, names, chief, is_terminal, is_terminal and not environ.get("NO_COLOR"), read=read)


def _prefix(name: str, width: int, colour: int | None) -> str:
    text = f"{name:<{width}} |"
    return f"{text} " if colour is None else f"\x1b[{colour}m{text}\x1b[0m "


def bar(found: Progress | Stage, columns: int) -> str:
    """Returns the progress bar, `[======>     ]  45%  step 450 of 1000  312.0 steps/s  loss 0.1234  ETA 2 s`.

    Where that does not fit, the words become shorter and the bar too, and then the rate goes: loss and ETA stay.
    """
    part = min(found.step / found.train_steps, 1.0) if found.train_steps else 1.0
    texts = [f"{part:4.0%}  {text}" for text in _texts(found)]
    for text in texts:
        num_cells = min(columns - len(text) - len("[] "), _BAR_CELLS)
        if num_cells >= _FEWEST_CELLS:
            filled = int(part * num_cells)
            cells = "=" * filled + ">" * (filled < num_cells)
            return f"[{cells:<{num_cells}}] {text}"
    return texts[-1][:columns]


def _texts(found: Progress | Stage) -> list[str]:
    """Returns what stands behind the percentage, the longest first."""
    if isinstance(found, Stage):
        return [f"step {found.step} of {found.train_steps}  {found.what}", found.what]
    loss = "" if found.loss is None else f"loss {found.loss:.4g}  "
    rest = f"{loss}ETA {_remaining(found)}"
    return [f"step {found.step} of {found.train_steps}  {found.steps_per_sec:.1f} steps/s  {rest}",
            f"{found.step}/{found.train_steps}  {found.steps_per_sec:.0f}/s  {rest}",
            f"{found.step}/{found.train_steps}  {rest}", rest]


def _remaining(found: Progress) -> str:
    steps = max(found.train_steps - found.step, 0)
    if steps and not 0 < found.steps_per_sec < math.inf:  # NaN too
        return "unknown"
    return duration(steps / found.steps_per_sec if steps else 0)


def duration(secs: float) -> str:
    """Returns `12 s`, `3 min 05 s` or `2 h 05 min`."""
    minutes, seconds = divmod(math.ceil(secs), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
