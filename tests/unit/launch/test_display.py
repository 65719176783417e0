"""display: prefixes, colours, the progress bar, and plain lines without a terminal."""

from __future__ import annotations

import io
import json

import pytest

from ps_train.launch import display
from ps_train.launch.display import Display, JsonDisplay
from ps_train.runtime import logs
from ps_train.runtime.reports import FINISHING, Failure, Progress, Stage

NAMES = ["ps:0", "worker:0"]
HALF = Progress(500, 1000, 0.12345, 250.0, 25000.0)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def make(is_terminal=False, has_colours=False, clock=lambda: 0.0):
    stream = io.StringIO()
    return stream, Display(stream, NAMES, "worker:0", is_terminal, has_colours, clock)


@pytest.mark.parametrize(("found", "expected"), [
    (HALF, "[======>     ]  50%  step 500 of 1000  250.0 steps/s  loss 0.1235  ETA 2 s"),
    (HALF._replace(step=0, steps_per_sec=0.0),
     "[>           ]   0%  step 0 of 1000  0.0 steps/s  loss 0.1235  ETA unknown"),
    (HALF._replace(step=1003),
     "[============] 100%  step 1003  250.0 steps/s  loss 0.1235  ETA 0 s"),
    (HALF._replace(loss=float("nan"), steps_per_sec=float("nan")),
     "[======>     ]  50%  step 500 of 1000  nan steps/s  loss nan  ETA unknown"),
])
def test_bar(found, expected):
    """The bar shows part, steps, rate, loss and the time that remains, also for odd numbers."""
    assert display.bar(found, 200) == expected


@pytest.mark.parametrize(("columns", "expected"), [
    (99, "[=======>    ]  62%  step 12345 of 20000  1234.5 steps/s  loss 0.1235  ETA 7 s"),
    (79, "[=======>    ]  62%  step 12345 of 20000  1234.5 steps/s  loss 0.1235  ETA 7 s"),
    (59, "[=====>   ]  62%  12345/20000  1234/s  loss 0.1235  ETA 7 s"),
    (49, "[====>  ]  62%  12345/20000  loss 0.1235  ETA 7 s"),
    (39, "[======>   ]  62%  loss 0.1235  ETA 7 s"),
    (29, " 62%  loss 0.1235  ETA 7 s"),
    (9, " 62%  los"),
])
def test_a_narrow_bar_keeps_loss_and_eta(columns, expected):
    """It never wraps, as it could not be erased then; the names and the bar are shortened first."""
    assert display.bar(Progress(12345, 20000, 0.12345, 1234.5, 1.0), columns) == expected


@pytest.mark.parametrize(("columns", "expected"), [
    (99, "[============] 100%  step 3001  finishing and saving"),
    (40, "[===========] 100%  finishing and saving"),
])
def test_after_the_last_step_the_bar_is_full_and_says_what_the_chief_does(columns, expected):
    """It does not stand at the last progress line."""
    assert display.bar(Stage(3001, 3000, FINISHING), columns) == expected


@pytest.mark.parametrize(("secs", "text"), [
    (0, "0 s"), (0.2, "1 s"), (59.5, "1 min 00 s"), (185, "3 min 05 s"), (7500, "2 h 05 min"),
])
def test_duration(secs, text):
    """Two units at most."""
    assert display.duration(secs) == text


def test_without_a_terminal_lines_are_plain_and_prefixed():
    """No escape sequence, and names of one width."""
    stream, shown = make()
    shown.write_line("ps:0", "serves")
    shown.write_line("worker:0", "trains")
    shown.write("done")
    assert stream.getvalue() == "ps:0     | serves\nworker:0 | trains\ndone\n"


def test_without_a_terminal_the_chiefs_progress_comes_about_once_a_second():
    """The one that ends training is always shown."""
    now = [0.0]
    stream, shown = make(clock=lambda: now[0])
    for secs, step in [(0.0, 1), (0.4, 2), (0.9, 3), (1.1, 4), (1.2, 1000)]:
        now[0] = secs
        progress = HALF._replace(step=step)
        shown.write_line("worker:0", progress.format(), progress)
    assert [int(line.split()[3]) for line in stream.getvalue().splitlines()] == [1, 4, 1000]


def test_the_other_tasks_progress_is_not_shown():
    """It is in their logs."""
    stream, shown = make()
    shown.write_line("ps:0", HALF.format(), HALF)
    assert stream.getvalue() == ""


def test_on_a_terminal_the_bar_stays_under_the_lines():
    """A line takes the bar's place, and the bar follows it; at the end it is erased."""
    stream, shown = make(is_terminal=True)
    shown.write_line("worker:0", "12:00:00 " + HALF.format(), HALF)
    bar_text = stream.getvalue().replace("\r\x1b[K", "")
    assert bar_text.startswith("[===")
    shown.write_line("ps:0", "serves")
    assert stream.getvalue().endswith("\r\x1b[Kps:0     | serves\n" + bar_text)
    shown.close([])
    assert stream.getvalue().endswith("\r\x1b[K")


class Script:
    """A process whose output is that of a script: lines, and what it has begun to write."""

    def __init__(self, name):
        self.name, self.lines, self.unfinished_line = name, [], ""

    def new_output(self):
        while self.lines:
            yield self.lines.pop(0), None


def test_on_a_terminal_a_bar_of_a_script_is_shown_as_it_moves(monkeypatch):
    """Issue: it was shown only at its line break, which may come after hours. Other lines stand above it."""
    monkeypatch.setenv("COLUMNS", "80")
    stream, shown = make(is_terminal=True)
    ps, worker = scripts = [Script("ps:0"), Script("worker:0")]

    def written(**changes):
        stream.truncate(stream.seek(0))
        for script, lines, unfinished_line in changes.get("by", ()):
            script.lines, script.unfinished_line = lines, unfinished_line
        shown.write_output(scripts)
        return stream.getvalue().replace("\r\x1b[K", "<")

    assert written(by=[(worker, [], "\b\b 10%\x1b[A")]) == "<worker:0 |  10%"
    assert written() == ""
    assert written(by=[(ps, [], "waits...")]) == "<ps:0     | waits..."
    assert written(by=[(worker, [], " 20%")]) == "<worker:0 |  20%"
    assert written(by=[(ps, ["waits... done"], "")]) == (
        "<ps:0     | waits... done\nworker:0 |  20%<worker:0 |  20%")
    assert written(by=[(worker, ["100%"], "")]) == "<worker:0 | 100%\nworker:0 |  20%<"
    assert written(by=[(worker, [], "x" * 1000)]) == "<worker:0 | " + "x" * 68
    shown.close([])
    assert stream.getvalue().endswith("\r\x1b[K")
    assert written(by=[(worker, ["end"], "")]) == "worker:0 | end\n"


def test_a_line_that_is_not_finished_shows_neither_elsewhere_nor_beside_the_progress():
    """Without a terminal nothing can be redrawn, and the bar of a training has the place."""
    for is_terminal in (False, True):
        stream, shown = make(is_terminal=is_terminal)
        worker = Script("worker:0")
        if is_terminal:
            shown.write_line("worker:0", HALF.format(), HALF)
        before, worker.unfinished_line = stream.getvalue(), "10%"
        shown.write_output([worker])
        assert stream.getvalue() == before


def test_on_a_terminal_the_chiefs_stage_takes_the_place_of_its_progress():
    """Elsewhere it is a line like others."""
    stage = Stage(1001, 1000, FINISHING)
    line = stage.format()
    stream, shown = make(is_terminal=True)
    shown.write_line("worker:0", HALF.format(), HALF)
    shown.write_line("worker:0", line, stage)
    assert stream.getvalue().endswith("\r\x1b[K[============] 100%  step 1001  finishing and saving")
    stream, shown = make()
    shown.write_line("worker:0", line, stage)
    assert stream.getvalue() == f"worker:0 | {line}\n"


def test_the_traceback_of_the_first_task_only_is_shown():
    """Most others have the same one; their other lines are shown."""
    stream, shown = make()
    failure = Failure(["toy.model_fn failed"], is_in_user_code=True)
    for name in ("worker:0", "ps:0"):
        for line in ("Traceback", "ps_train: toy.model_fn failed"):
            shown.write_line(name, line, failure)
    shown.write_line("ps:0", "ps_train: other", Failure(["other"]))
    assert stream.getvalue() == (
        "worker:0 | Traceback\nworker:0 | ps_train: toy.model_fn failed\nps:0     | ps_train: other\n")


def test_each_task_has_its_colour():
    """Only the name is coloured."""
    stream, shown = make(is_terminal=True, has_colours=True)
    shown.write_line("ps:0", "x")
    shown.write_line("worker:0", "x")
    assert stream.getvalue() == "\x1b[36mps:0     |\x1b[0m x\n\x1b[35mworker:0 |\x1b[0m x\n"


@pytest.mark.parametrize(("stream", "environ", "coloured", "redraws"), [
    (Terminal(), {"TERM": "xterm"}, True, True),
    (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False, True),
    (Terminal(), {"TERM": "dumb"}, False, False),
    (Terminal(), {}, False, False),
    (io.StringIO(), {"TERM": "xterm"}, False, False),
])
def test_what_a_stream_can_show(stream, environ, coloured, redraws):
    """Colours and a bar only on a terminal that can; NO_COLOR takes the colours away."""
    shown = display.on_stream(stream, NAMES, "worker:0", environ)
    shown.write_line("ps:0", "x")
    assert ("\x1b[36m" in stream.getvalue()) is coloured
    shown.write_line("worker:0", HALF.format(), HALF)
    assert ("[====" in stream.getvalue()) is redraws


def test_a_character_that_the_stream_cannot_encode_is_replaced():
    """A task may print anything under LANG=C."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Display(stream, NAMES, "worker:0", False, False).write_line("ps:0", "café")
    assert raw.getvalue() == b"ps:0     | caf?\n"


def test_a_stream_that_is_gone_does_not_end_training():
    """The terminal was closed: later lines are dropped."""
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    shown = Display(Gone(), NAMES, "worker:0", False, False)
    shown.write("one")
    shown.write("two")


def test_json_shows_every_line_as_an_object():
    """A line of JSON as it is, one that a model prints in an object of its task, and the launcher's own."""
    stream = io.StringIO()
    shown = JsonDisplay(stream)
    line = logs.json_line("saved", task="worker:0", step=3)
    shown.write("Starting 2 tasks:\n  ps_train")
    shown.write(line)
    shown.write_line("worker:0", line, HALF)
    shown.write_line("worker:1", "printed by a model")
    shown.write_line("worker:1", "")
    shown.close(())
    first, second, third, fourth = stream.getvalue().splitlines()
    assert second == third == line
    first, fourth = json.loads(first), json.loads(fourth)
    assert (first["task"], first["message"]) == ("launch", "Starting 2 tasks:\n  ps_train")
    assert (fourth["task"], fourth["level"], fourth["message"]) == ("worker:1", "info", "printed by a model")
