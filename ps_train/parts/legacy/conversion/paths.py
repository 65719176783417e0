"""Replaces paths that are written into a script: the text constants of its code, and of the modules beside it.

Every way to open a file gets the other path: TensorFlow's, Python's, pandas'. A path that the code puts together from
pieces is replaced if one of the pieces has the whole beginning that is to be replaced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_SCHEME = re.compile(r"File system scheme '([^']+)' not implemented \(file: '([^']+)'\)")


def replace_paths(tree: ast.Module, mapped: Sequence[tuple[str, str]]) -> ast.Module:
    """Returns the code with other paths."""
    return _Paths(mapped).visit(tree)


class _Paths(ast.NodeTransformer):
    def __init__(self, mapped: Sequence[tuple[str, str]]) -> None:
        # The longest first: hdfs://x/y may lie elsewhere than the rest of hdfs://x.
        ordered = sorted(mapped, key=lambda pair: -len(pair[0]))
        self._to = dict(ordered)
        # A whole folder: /data is neither in /my/data nor in /database.
        self._from = re.compile("|".join(rf"(?<![\w./-]){re.escape(before)}(?![\w.-])" if not before.endswith("/")
                                         else rf"(?<![\w./-]){re.escape(before)}" for before, _ in ordered))

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
    except UnicodeEncodeError:  # of the path in its place
        return text.encode()


def hint(error: BaseException) -> str:
    """Returns how to run a script whose path has a scheme that this TensorFlow does not know, "" for another error."""
    match = _SCHEME.search(str(error))
    if not match:
        return ""
    folder = match[2].rpartition("/")[0] or match[2]
    return (f"TensorFlow cannot read {match[1]}:// here: if that path is written into the script, give "
            f"--map_path={folder}=/local/folder before the script, else give it another path")
