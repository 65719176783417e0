"""Finds the module that --model or --dataset names, and imports it.

    --model=mlp            of these the first: models/mlp.py or mlp.py in the working directory, ps_train's own
                           models.mlp, an installed module mlp, an entry point mlp of the group ps_train.models
    --model=models.mlp     models/mlp.py in the working directory, or else ps_train's own

ps_train's own are the folders models/ and data/ of a checkout, which are installed as ps_train.models and
ps_train.datasets. They are imported under the names models and data all the same: a train_dir records the names.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_PROJECT = _PACKAGE.parent  # in a checkout, the folder of models/ and data/
_INSTALLED = {"models": "models", "data": "datasets"}  # what setup.py makes of them
_FLAG_FOLDERS = {"--model": "models", "--dataset": "data"}
_MAX_LISTED = 12  # modules that an error lists


def find_module(flag: str, name: str, *, function: str) -> types.ModuleType:
    """Imports a plug-in's module by its dotted name, or by a short name: the order is above.

    Args:
      flag: --model or --dataset.
      name: the name as the user gave it.
      function: the function that the module should define; an error lists the modules that do.

    Raises:
      ConfigError: there is no such module, or the name is the path of a file.
    """
    folder = _FLAG_FOLDERS[flag]
    if "" not in sys.path:
        sys.path.insert(0, "")  # a console script does not search the working directory by itself
    _refuse_path(flag, name)
    for candidate in _candidates(folder, name):
        if _exists(candidate):
            return importlib.import_module(candidate)
    if entry_point := _entry_points(folder).get(name):
        return entry_point.load()
    known = [*_known_names(folder, function), *_entry_points(folder)]
    near = _nearest(name, known)
    guess = f"did you mean {near[0]!r}? " if near else ""
    listed = dict.fromkeys([*near, *known])
    raise ConfigError(f"{flag}: no module {name!r} in {pathlib.Path.cwd()}, in ps_train or among the installed ones; "
                      f"{guess}known: {', '.join([*listed][:_MAX_LISTED]) or 'none'}; give one of these, or the dotted "
                      f"name of a module with {function}")


def _candidates(folder: str, name: str) -> list[str]:
    """Returns the dotted names that a name of a plug-in may stand for, the first choice first."""
    if "." in name:
        return [name]
    in_folder = f"{folder}.{name}"
    is_own = pathlib.Path(f"{name}.py").is_file() and not pathlib.Path(folder, f"{name}.py").is_file()
    return [name, in_folder] if is_own else [in_folder, name]


def _entry_points(folder: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    """Returns short name -> module, as installed packages offer them."""
    group = f"ps_train.{_INSTALLED[folder]}"
    found: Any = importlib.metadata.entry_points()
    # Until Python 3.9 a dict of groups.
    chosen = found.select(group=group) if hasattr(found, "select") else found.get(group, ())
    return {one.name: one for one in chosen}


def _own_folder(folder: str) -> pathlib.Path:
    """Returns where ps_train's own models or datasets are: in its package, or beside it in a checkout."""
    installed = _PACKAGE / _INSTALLED[folder]
    return installed if installed.is_dir() else _PROJECT / folder


def _refuse_path(flag: str, name: str) -> None:
    """Raises ConfigError, with the dotted name to give instead, if the name is the path of a file."""
    path = pathlib.Path(name)
    if "/" not in name and path.suffix != ".py":
        return
    file = next((file for file in (path, path.with_suffix(".py")) if file.is_file()), None)
    if file is None:
        return
    relative = os.path.relpath(file)
    if relative.startswith(os.pardir):
        raise ConfigError(f"{flag}: got {name!r}, a file outside the working directory {pathlib.Path.cwd()}; start in "
                          f"{file.resolve().parent} with {flag}={file.stem}")
    raise ConfigError(f"{flag}: got {name!r}, which is a path; give the dotted name: "
                      f"{flag}={'.'.join(pathlib.Path(relative).with_suffix('').parts)}")


def _exists(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        _search_both_folders(name)
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise  # the package exists but imports a module that does not: the user needs that traceback


def _search_both_folders(name: str) -> None:
    """Makes `models.x` the user's own module or, if there is none, that of ps_train; `data.x` likewise."""
    # Otherwise the folder that Python takes as the package would hide the other one.
    folder, dot, _ = name.partition(".")
    if folder not in ("models", "data") or not dot:
        return
    own, default = pathlib.Path.cwd() / folder, _own_folder(folder)
    package = _package(folder, default)
    package.__path__ = list(dict.fromkeys(
        [*[str(own)] * own.is_dir(), *getattr(package, "__path__", []), *[str(default)] * default.is_dir()]))


def _package(name: str, default: pathlib.Path) -> types.ModuleType:
    """Imports the package of that name, which is that of the default folder if there is no other."""
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        spec = importlib.util.spec_from_file_location(
            name, default / "__init__.py", submodule_search_locations=[str(default)])
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {default}", name=name)
        sys.modules[name] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(name)


def _known_names(folder: str, function: str) -> list[str]:
    """Returns short names of modules with the function: in the working directory, in its `folder`, and in ours."""
    defines = re.compile(rf"^(def )?{function}\b", re.MULTILINE)
    files = [path for place in (pathlib.Path(), pathlib.Path(folder), _own_folder(folder))
             for path in sorted(place.glob("*.py"))]
    return [path.stem for path in files if defines.search(path.read_text(encoding="utf-8", errors="replace"))]


def _nearest(name: str, known: Sequence[str]) -> list[str]:
    wanted = re.sub(r"\.py$", "", name).replace("/", ".").strip(".")
    return difflib.get_close_matches(wanted.rpartition(".")[2], set(known))
