"""Code of Python 2 as Python 3: its text, by fissix if that is installed, and its division.

    file --> decode_source --> as_python3 --> divide_as_python2, unless it asks for the division of Python 3

7 / 2 is 3 there, and so are whole numbers of numpy and TensorFlow divided.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import io
import logging
import re
import tokenize
from typing import Any

import numpy as np

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
    """Returns the text with blanks for the tabs before each line's code; strings keep theirs."""
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


_FUTURE = re.compile(r"^\s*from\s+__future__\s+import\b[^#\n]*(\([^)]*)?\bdivision\b", re.MULTILINE)
# In the built-ins, where every module finds them.
_DIVIDE, _DIVIDE_IN_PLACE = "__ps_train_divide__", "__ps_train_divide_in_place__"


def is_true_division(text: str) -> bool:
    """Returns whether a Python 2 file has asked for Python 3's division."""
    return _FUTURE.search(text) is not None


def install_division() -> None:
    """Puts the functions where the changed code calls them."""
    setattr(builtins, _DIVIDE, _divide)
    setattr(builtins, _DIVIDE_IN_PLACE, _divide_in_place)


def divide_as_python2(tree: ast.Module) -> ast.Module:
    """Returns the code with Python 2's division."""
    return ast.fix_missing_locations(_Divisions().visit(tree))


class _Divisions(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _call(_DIVIDE, node, node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        value = ast.parse(ast.unparse(node.target), mode="eval").body
        for part in ast.walk(value):
            ast.copy_location(part, node)
        return ast.copy_location(
            ast.Assign([node.target], _call(_DIVIDE_IN_PLACE, node, value, node.value)), node)


def _call(name: str, node: ast.AST, *arguments: ast.expr) -> ast.expr:
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, list(arguments), []), node)


def _divide(left: Any, right: Any) -> Any:
    if _is_whole(left) and _is_whole(right):
        return left // right
    for owner, other, name in ((left, right, "__div__"), (right, left, "__rdiv__")):
        # Tensors and classes of Python 2 have it; the numbers of Python 3 do not.
        method = getattr(type(owner), name, None)
        if method is not None:
            result = method(owner, other)
            if result is not NotImplemented:
                return result
    return left / right


def _divide_in_place(left: Any, right: Any) -> Any:
    if isinstance(left, np.ndarray):
        if _is_whole(left) and _is_whole(right):
            left //= right
        elif _is_whole(left):
            left[...] = left / right  # numpy would not convert the result
        else:
            left /= right
        return left
    return _divide(left, right)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (
        isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer))
