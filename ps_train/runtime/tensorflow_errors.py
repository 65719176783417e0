"""Reads the texts of TensorFlow's errors, which say in one of many lines what happened. Does not import TensorFlow.

    Graph execution error:                                 |
    Detected at node 'save/SaveV2' defined at ...:         |  where in the graph it was
        File "/home/me/model.py", line 10, in ...          |
    Node: 'save/SaveV2'                                    |
    /checkpoints; No space left on device                  <- the reason
         [[{{node save/SaveV2}}]]
"""

from __future__ import annotations

import re

_NODE = "\nNode: "  # the last line of the part that says where in the graph it was
# The lines around the reason, where that part is missing or incomplete.
_AROUND = re.compile(r"(\(\d+\) )?([A-Z_]+: )?(From /job:\S+:)?$|Graph execution error|Detected at node|File \x22|<|"
                     r"Node:|\[\[|node |=====|\d+ root error|Traceback |Additional GRPC|:UNKNOWN:|in user code:")
_PATTERN = re.compile(r"\[.+\]|\\\S?")  # of fnmatch(3), without * and ?, which fit themselves, too


def reason(error: BaseException) -> str:
    """Returns the line of an error that says what happened, or the error's type if it has no text."""
    return next(iter(telling_lines(error)), type(error).__name__)


def problem_of_path(path: str) -> str:
    """Returns why TensorFlow finds no checkpoint under a path that exists, or ""."""
    pattern = _PATTERN.search(path)
    return f"TensorFlow takes {pattern[0]} in that path for a pattern; give the folder another name" if pattern else ""


def telling_lines(error: BaseException) -> list[str]:
    """Returns the lines of an error's text without those that TensorFlow writes around them; [] if it has no text."""
    message = str(getattr(error, "message", None) or error)
    if _NODE in message:
        message = message.partition(_NODE)[2].partition("\n")[2]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return [line for line in lines if not _AROUND.match(line)] or lines
