"""A name that only an `import` statement asks for and TensorFlow no longer has: it fails where it is used.

Libraries import all that one of their modules needs, and a job seldom uses all of it: a language model runs, though the
library's reader begins with `from tensorflow.contrib.cloud import BigQueryReader`. An import in a `try` fails at once,
as another one stands behind it; so does a call of `importlib.import_module`.
"""

from __future__ import annotations

import dis
import linecache
import re
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ps_train.errors import MissingNameError

_IMPORT = dis.opmap["IMPORT_NAME"]
_TAB = 8  # columns between Python 2's tab stops


class MissingName:
    """Stands for a function, a class or a module; whatever is done with it raises a MissingNameError."""

    def __init__(self, name: str, name_error: Callable[[], MissingNameError]) -> None:
        """Takes its name in `sys.modules`, and what makes the error, which has the line of the script."""
        self.__dict__.update(__name__=name, _name_error=name_error)

    def submodule(self, name: str) -> MissingName:
        """Returns what stands for a module below it."""
        return MissingName(name, self._name_error)

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise self._name_error()

    __call__ = __iter__ = __getitem__ = __setattr__ = _fail

    def __getattr__(self, leaf: str) -> Any:
        if leaf in ("__path__", "__spec__"):  # so that its submodules can be imported, too
            return [] if leaf == "__path__" else None
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        self._fail()

    def __mro_entries__(self, bases: tuple) -> tuple[type, ...]:
        """Lets a class be defined that derives from it; an object of it cannot be made."""
        return (type("Missing", (), {"__new__": self._fail}),)

    def __instancecheck__(self, instance: Any) -> bool:
        """Returns False: nothing is an instance of it."""
        return False


def is_bare_import(frame: types.FrameType | None) -> bool:
    """Returns whether a frame executes an `import` statement that no `try` encloses."""
    if frame is None or frame.f_code.co_code[frame.f_lasti] != _IMPORT:
        return False
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    if frame.f_lineno > len(lines):  # its text is not known
        return False
    # By the indentation: the text may be of Python 2, which Python 3 cannot parse.
    column = _column(lines[frame.f_lineno - 1])
    if _catches(lines[frame.f_lineno - 1]):
        return False
    for line in reversed(lines[:frame.f_lineno - 1]):
        if line.strip() and not line.lstrip().startswith("#") and _column(line) < column:
            if _catches(line):
                return False
            column = _column(line)
    return True


def _catches(line: str) -> bool:
    """Returns whether a line begins a block whose errors are caught."""
    return bool(re.match(r"\s*(try\s*:|with\b.*\bsuppress\b)", line))


def _column(line: str) -> int:
    expanded = line.expandtabs(_TAB)
    return len(expanded) - len(expanded.lstrip())
