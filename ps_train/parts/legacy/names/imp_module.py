"""`imp`, which Python 3.12 removed: scripts load files and reload modules by it."""

from __future__ import annotations

import _imp
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

PY_SOURCE, PY_COMPILED, C_EXTENSION, PKG_DIRECTORY, C_BUILTIN, PY_FROZEN = 1, 2, 3, 5, 6, 7
_KINDS = {".py": PY_SOURCE, ".pyc": PY_COMPILED, ".so": C_EXTENSION}
reload, new_module = importlib.reload, types.ModuleType


def load_source(name: str, pathname: str, file: Any = None) -> types.ModuleType:
    """Runs a file as a module of that name, in the one that is loaded if there is; `file` does not matter.

    Raises:
      OSError: the file cannot be read.
    """
    place = os.path.join(pathname, "__init__.py") if os.path.isdir(pathname) else pathname
    loader = importlib.machinery.SourceFileLoader(name, place)
    spec = importlib.util.spec_from_file_location(name, place, loader=loader)
    module = loaded = sys.modules.get(name)
    if loaded is None:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
    else:
        loaded.__file__, loaded.__spec__, loaded.__loader__ = place, spec, loader
    try:
        loader.exec_module(module)
    except BaseException:
        if loaded is None:
            sys.modules.pop(name, None)
        raise
    return sys.modules.get(name, module)  # a module may replace itself


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


def load_package(name: str, path: str) -> types.ModuleType:
    """Loads the package in a folder."""
    return load_source(name, path)


def load_compiled(name: str, pathname: str, file: Any = None) -> types.ModuleType:
    """Loads a file of byte code."""
    return _load_by(importlib.machinery.SourcelessFileLoader(name, pathname))


def load_dynamic(name: str, path: str, file: Any = None) -> types.ModuleType:
    """Loads an extension."""
    return _load_by(importlib.machinery.ExtensionFileLoader(name, path))


def _load_by(loader: Any) -> types.ModuleType:
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location(loader.name, loader.path, loader=loader))
    loader.exec_module(module)
    return sys.modules.setdefault(loader.name, module)


def get_suffixes() -> list[tuple[str, str, int]]:
    """Returns (suffix, mode, kind) of the files that may be modules."""
    machinery = importlib.machinery
    return [*((suffix, "rb", C_EXTENSION) for suffix in machinery.EXTENSION_SUFFIXES),
            *((suffix, "r", PY_SOURCE) for suffix in machinery.SOURCE_SUFFIXES),
            *((suffix, "rb", PY_COMPILED) for suffix in machinery.BYTECODE_SUFFIXES)]


def is_builtin(name: str) -> int:
    """Returns 1 for a module of the interpreter itself, else 0."""
    return int(name in sys.builtin_module_names)


# The lock of all imports.
acquire_lock, release_lock, lock_held = _imp.acquire_lock, _imp.release_lock, _imp.lock_held
