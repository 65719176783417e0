"""Compiles the script, and the local modules that it imports, from changed text; nothing is written.

The file name and the line numbers stay, so a traceback shows the lines of the original file.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.abc
import importlib.machinery
import pathlib
import sys
import types
from collections.abc import Sequence
from typing import Any

from ps_train.parts.legacy.conversion import division, paths, python2
from ps_train.runtime import tracebacks


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What is changed.

    Attributes:
      is_python2: whether the code is Python 2.
      mapped: pairs of paths: as written in the code, and in place of that.
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
            if not division.is_true_division(text):
                tree = division.divide_as_python2(tree)
        else:
            tree = ast.parse(text, path)
        if self.mapped:
            tree = paths.replace_paths(tree, self.mapped)
        return compile(tree, path, "exec", dont_inherit=True)

    def run(self, path: str) -> None:
        """Runs a script as the main module; raises what it raises."""
        main = types.ModuleType("__main__")
        main.__file__ = path
        sys.modules["__main__"] = main
        exec(self.compile(path), main.__dict__)

    def install(self) -> None:
        """Changes each local module that is imported from now on."""
        division.install_division()
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
        """Returns the changed code; neither reads nor writes the file beside it with the code of the original."""
        return self._conversion.compile(self.path)
