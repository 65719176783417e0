"""`--map_path`: other paths in place of those that are written into code, in all its text constants.

So every way to open a file gets the other path: TensorFlow's, Python's, pandas'. A path that the code puts together
from pieces is replaced if one of the pieces has the whole beginning that is to be replaced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_UNKNOWN_SCHEME = re.compile(r"File system scheme '([^']+)' not implemented \(file: '([^']+)'\)")


class Paths(ast.NodeTransformer):
    """Replaces paths in the constants of code."""

    def __init__(self, mapped: Sequence[tuple[str, str]]) -> None:
        # The longest first: hdfs://x/y may lie elsewhere than the rest of hdfs://x.
        ordered = sorted(mapped, key=lambda pair: -len(pair[0]))
        self._to = dict(ordered)
        # A whole folder: /data is neither in /my/data nor in /database, nor in "{}/data".format(home).
        self._from = re.compile("|".join(
            rf"(?<![\w./}}-]){re.escape(path)}" + ("" if path.endswith("/") else r"(?![\w.-])") for path, _ in ordered))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [self._behind_expression(part) if place and isinstance(part, ast.Constant) else self.visit(part)
                 for place, part in enumerate(node.values)]
        return ast.copy_location(ast.JoinedStr(parts), node)

    def _behind_expression(self, part: ast.Constant) -> ast.AST:
        """Returns a later piece of an f-string: /data is not in f"{home}/data"."""
        return ast.copy_location(ast.Constant(self._replaced("}" + part.value)[1:]), part)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return ast.copy_location(ast.Constant(self._replaced(node.value)), node)
        if isinstance(node.value, bytes):  # Latin-1 has a character for each byte
            return ast.copy_location(ast.Constant(_as_bytes(self._replaced(node.value.decode("latin-1")))), node)
        return node

    def _replaced(self, text: str) -> str:
        return self._from.sub(lambda match: self._to[match[0]], text)


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # of the new path
        return text.encode()


def path_hint(error: BaseException) -> str:
    """Returns what to do about a path whose scheme this TensorFlow does not know; "" for another error."""
    match = _UNKNOWN_SCHEME.search(str(error))
    if not match:
        return ""
    folder = match[2].rpartition("/")[0] or match[2]
    return (f"TensorFlow cannot read {match[1]}:// here: if that path is written into the script, give "
            f"--map_path={folder}=/local/folder before the script, else give the script another path "
            "[path_scheme_unknown]")
