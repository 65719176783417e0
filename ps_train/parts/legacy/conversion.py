"""How does the code of a script change on its way into Python? `--python2` and `--map_path`; no file is changed.

    file --python2.py--> Python 3 --replace_paths--> other paths --> compiled

This holds for the script and for each local module that it imports. The file name and the line numbers stay, so a
traceback shows the lines of the original file.

Paths are replaced in the text constants of the code, so every way to open a file gets the other path: TensorFlow's,
Python's, pandas'. A path that the code puts together from pieces is replaced if one of the pieces has the whole
beginning that is to be replaced.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.abc
import importlib.machinery
import pathlib
import re
import sys
import types
from collections.abc import Sequence
from typing import Any

from ps_train.parts.legacy import python2
from ps_train.runtime import tracebacks


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What is changed.

    Attributes:
      is_python2: whether the code is Python 2.
      mapped: pairs of paths: as written in the code, and as replaced.
    """

    is_python2: bool
    mapped: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        """Returns whether anything is changed."""
        return self.is_python2 or bool(self.mapped)

    def compile(self, path: str) -> types.CodeType:
        """Returns the code of a file.

        Raises:
          SyntaxError: the code is wrong, in Python 3 and in Python 2.
          ConfigError: the conversion needs a package.
        """
        text = python2.decode_source(pathlib.Path(path).read_bytes())
        if self.is_python2:
            tree = ast.parse(python2.as_python3(text, path), path)
            if not python2.is_true_division(text):
                tree = python2.divide_as_python2(tree)
        else:
            tree = ast.parse(text, path)
        if self.mapped:
            tree = replace_paths(tree, self.mapped)
        return compile(tree, path, "exec", dont_inherit=True)

    def run(self, path: str) -> None:
        """Runs a script as the main module; raises what it raises."""
        main = types.ModuleType("__main__")
        main.__file__ = path
        sys.modules["__main__"] = main
        exec(self.compile(path), main.__dict__)

    def install(self) -> None:
        """Changes each local module that is imported from now on."""
        python2.install_division()
        sys.meta_path.insert(0, _Finder(self))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None):
        """Returns the spec of a module in a file of the user, whose loader changes it; else None."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or not spec.origin:
            return None
        if not tracebacks.is_local(spec.origin):
            return None
        spec.loader = _Loader(fullname, spec.origin, self._conversion)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, conversion: Conversion) -> None:
        super().__init__(fullname, path)
        self._conversion = conversion

    def get_code(self, fullname: str) -> types.CodeType:
        """Returns the changed code; neither reads nor writes the .pyc file, which has the code of the original."""
        return self._conversion.compile(self.path)


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


def path_hint(error: BaseException) -> str:
    """Returns how to run a script whose path has a scheme that this TensorFlow does not know, "" for another error."""
    match = _SCHEME.search(str(error))
    if not match:
        return ""
    folder = match[2].rpartition("/")[0] or match[2]
    return (f"TensorFlow cannot read {match[1]}:// here: if that path is written into the script, give "
            f"--map_path={folder}=/local/folder before the script, else give it another path")
