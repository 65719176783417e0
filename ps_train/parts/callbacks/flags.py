"""The flag of callbacks."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ps_train.config import fields
from ps_train.config.groups import SAVING
from ps_train.errors import ConfigError, Problem

NO_CALLBACKS = "none"
_PLACE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_PROGRAMS = ("__main__", "__mp_main__")  # the program that runs; the second in children of multiprocessing


def parse_callbacks(flag: str, text: str) -> list[tuple[str, str]]:
    """Returns (module, function) of each entry of a text such as "mymodule:make,other.module:make".

    Raises:
      ConfigError: the text has another form, or a task cannot import the module; the error names `flag`.
    """
    entries = [entry.strip() for entry in text.split(",")] if text not in ("", NO_CALLBACKS) else []
    matches = [_PLACE.fullmatch(entry) for entry in entries]
    for entry, match in zip(entries, matches):
        if match is None:
            raise ConfigError("flag_malformed", f"{flag}: got {entry!r}; allowed: a module and a function in it, as in "
                              "mymodule:make")
    places = [(match[1], match[2]) for match in matches if match]
    for module, function in places:
        if module.partition(".")[0] in _PROGRAMS:
            raise ConfigError("plugin_not_found", f"{flag}: got '{module}:{function}'; each task is a separate "
                              f"program, and cannot import functions of the one that starts it; put {function} "
                              f"in a file, as in mymodule.py, and give mymodule:{function}")
    return places


@dataclasses.dataclass(frozen=True)
class CallbackFlags:
    """Which functions make the callbacks of a training."""

    callbacks: str = fields.field(
        "", SAVING, "Functions that each make a callback, which the chief calls with what happens in the training; "
        f"{NO_CALLBACKS} leaves those of the model out, too.", unit="module:function,...", form=parse_callbacks,
        unset="those of the model")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns no problem: the flag fits all others."""
        return []
