"""What a watcher writes to its relay: a JSON object per line, for a line of the task's output or for its end.

    {"line": "..."}                        a line of the log
    {"lines": ["..."], "progress": {...}}  the same with the report of which it is part, as `runtime/reports.py` has it
    {"exit_code": 0}                       the task has ended
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ps_train.runtime import reports
from ps_train.runtime.reports import Report


class OutputFrame(NamedTuple):
    """A line of output with its report, if any; or, in the last one, the exit code."""

    line: str
    report: Report | None = None
    exit_code: int | None = None


def pack_frame(frame: OutputFrame) -> bytes:
    """Returns the bytes of a frame, with its line break."""
    if frame.exit_code is not None:
        text = json.dumps({"exit_code": frame.exit_code})
    elif frame.report is not None:
        text = reports.encode(frame.report, [frame.line])
    else:
        text = json.dumps({"line": frame.line})
    return f"{text}\n".encode()


def unpack_frame(raw: bytes) -> OutputFrame:
    """Returns the frame in a line; one of another form is output of the host's shell, and a line as it is."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    known = reports.decode(text)
    if known is not None:
        report, lines = known
        return OutputFrame(lines[0] if lines else "", report)
    try:
        record = json.loads(text)
        if "exit_code" in record:
            return OutputFrame("", exit_code=int(record["exit_code"]))
        return OutputFrame(str(record["line"]))
    except (ValueError, TypeError, KeyError):
        return OutputFrame(text)
