"""The text of a Python 2 file as Python 3: its tabs by ps_train, the rest by fissix, if it is installed."""

from __future__ import annotations

import functools
import importlib.util
import io
import logging
import re
import tokenize
from typing import Any

from ps_train.errors import ConfigError

_TAB = 8  # columns between Python 2's tab stops
# A comment or a string, which may go over several lines.
_COMMENT_OR_STRING = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'",
    re.DOTALL)


def decode_source(source: bytes) -> str:
    """Returns the text of a file: in the encoding that it names, or UTF-8; Latin-1 if it is not in that."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = source.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def as_python3(text: str, path: str) -> str:
    """Returns the text of a Python 2 file in Python 3, line by line.

    Raises:
      ConfigError: fissix is needed, and not installed.
      SyntaxError: the code is wrong in Python 2, too.
    """
    expanded = expand_tabs(text)
    if importlib.util.find_spec("fissix") is None:
        if _compiles(expanded, path):
            return expanded
        raise ConfigError(f"--python2: {path} needs fissix, which is not installed: pip install 'ps_train[python2]'")
    return _refactored(expanded, path) or expanded


def expand_tabs(text: str) -> str:
    """Returns the text with blanks in place of the tabs before each line's code; strings keep theirs."""
    inside: set[int] = set()
    for match in _COMMENT_OR_STRING.finditer(text):
        first = text.count("\n", 0, match.start()) if "\n" in match[0] else 0
        inside.update(range(first + 1, first + 1 + match[0].count("\n")))
    lines = text.split("\n")
    return "\n".join(line if number in inside else _expanded(line) for number, line in enumerate(lines))


def _expanded(line: str) -> str:
    code = line.lstrip(" \t\f")
    return line[:len(line) - len(code)].replace("\f", "").expandtabs(_TAB) + code


def _compiles(text: str, path: str) -> bool:
    try:
        compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _refactored(text: str, path: str) -> str | None:
    """Returns what fissix makes of a text, or None if it cannot read it."""
    for has_print_function in (False, True):  # Python 3.0's, with parentheses, needs another grammar
        try:
            tree = _tool(has_print_function).refactor_string(text.rstrip("\n") + "\n", path)
        except Exception as error:  # noqa: BLE001 (of its parser or tokenizer, or of one of its rules)
            logging.getLogger(__name__).debug("%s: %s", path, error)
        else:
            return str(tree)
    return None


@functools.cache
def _tool(has_print_function: bool) -> Any:
    from fissix import refactor  # noqa: PLC0415 (an extra)

    logging.getLogger("fissix").setLevel(logging.ERROR)
    logging.getLogger("RefactoringTool").setLevel(logging.ERROR)
    fixers = refactor.get_fixers_from_package("fissix.fixes")
    return refactor.RefactoringTool(fixers, {"print_function": has_print_function})
