"""`imp`, which Python 3.12 removed: scripts load files and reload modules by it."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

PY_SOURCE, PY_COMPILED, C_EXTENSION, PKG_DIRECTORY, C_BUILTIN = 1, 2, 3, 5, 6
_KINDS = {".py": PY_SOURCE, ".pyc": PY_COMPILED, ".so": C_EXTENSION}
reload, new_module = importlib.reload, types.ModuleType


def load_source(name: str, pathname: str, file: Any = None) -> types.ModuleType:
    """Runs a file as a module of that name, and returns it; `file` does not matter.

    Raises:
      OSError: the file cannot be read.
    """
    place = os.path.join(pathname, "__init__.py") if os.path.isdir(pathname) else pathname
    loader = importlib.machinery.SourceFileLoader(name, place)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, place, loader=loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def file_of_module(name: str, path: Sequence[str] | None = None) -> tuple[Any, str | None, tuple[str, str, int]]:
    """Returns the open file of a module, its path, and (suffix, mode, kind); no file for a folder.

    Raises:
      ImportError: there is no such module.
    """
    if path is None and name in sys.builtin_module_names:
        return None, None, ("", "", C_BUILTIN)
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.origin is None:
        raise ImportError(f"No module named {name!r}", name=name)
    if spec.submodule_search_locations:
        return None, spec.submodule_search_locations[0], ("", "", PKG_DIRECTORY)
    suffix = os.path.splitext(spec.origin)[1]
    mode = "r" if suffix == ".py" else "rb"
    return open(spec.origin, mode), spec.origin, (suffix, mode, _KINDS.get(suffix, C_EXTENSION))


find_module = file_of_module


def load_module(name: str, file: Any, pathname: str | None, description: tuple[str, str, int]) -> types.ModuleType:
    """Loads what `find_module` has found.

    Raises:
      ImportError: the module cannot be loaded.
    """
    if description[2] in (PY_SOURCE, PKG_DIRECTORY):
        return load_source(name, pathname)
    return importlib.import_module(name)
