"""Where the module of a plug-in is looked for, and what is said where there is none.

    --model=mymodel        mymodel.py in the working directory, or an installed module
    --model=mlp            models/mlp.py, else the same
    --model=models.mlp     models/mlp.py in the working directory, else the one beside this package
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pathlib
import re
import sys
import types
from collections.abc import Sequence

from ps_train.errors import ConfigError

_PROJECT = pathlib.Path(__file__).resolve().parents[2]  # in a checkout it has models/ and data/
_MOST_KNOWN = 12  # modules that an error lists


def find(flag: str, name: str, function: str) -> types.ModuleType:
    """Imports a module by its dotted name; a name without a dot is first looked for in models/ or data/.

    Args:
      flag: --model or --dataset.
      name: as the user gave it.
      function: what the module should define: decides which modules an error lists.

    Raises:
      ConfigError: there is no such module, or the name is the path of a file.
    """
    folder = flag.strip("-").replace("dataset", "data").replace("model", "models")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the working directory, which a console script does not search by itself
    if (_PROJECT / folder).is_dir() and str(_PROJECT) not in sys.path:
        sys.path.append(str(_PROJECT))
    _refuse_path(flag, name)
    candidates = [name] if "." in name else [f"{folder}.{name}", name]
    for candidate in candidates:
        if _exists(candidate):
            return importlib.import_module(candidate)
    known = _near_first(name, _known(folder, function))
    raise ConfigError(f"{flag}: no module {name!r} from the working directory {pathlib.Path.cwd()}; known here: "
                      f"{', '.join(known[:_MOST_KNOWN]) or 'none'}; give the dotted name of a module with {function}")


def _refuse_path(flag: str, name: str) -> None:
    """Raises ConfigError, with the dotted name, where the path of a file was given."""
    path = pathlib.Path(name)
    if "/" not in name and path.suffix != ".py":
        return
    file = next((file for file in (path, path.with_suffix(".py")) if file.is_file()), None)
    if file is None:
        return
    inside = os.path.relpath(file)
    if inside.startswith(os.pardir):
        raise ConfigError(f"{flag}: got {name!r}, a file outside of the working directory {pathlib.Path.cwd()}; start "
                          f"in {file.resolve().parent} with {flag}={file.stem}")
    raise ConfigError(f"{flag}: got {name!r}, which is a path; give the dotted name: "
                      f"{flag}={'.'.join(pathlib.Path(inside).with_suffix('').parts)}")


def _exists(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        _join_folders(name)
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise  # a package that is there, but imports something that is not: the user needs that traceback


def _join_folders(name: str) -> None:
    """Lets `models.x` be the user's own module and, where there is none, the one beside this package; so with `data`.

    Whichever of the two folders Python takes as the package would else hide the other.
    """
    folder, dot, _ = name.partition(".")
    if folder not in ("models", "data") or not dot:
        return
    package = importlib.import_module(folder)
    own, default = pathlib.Path.cwd() / folder, _PROJECT / folder
    package.__path__ = list(dict.fromkeys(
        [*[str(own)] * own.is_dir(), *getattr(package, "__path__", []), *[str(default)] * default.is_dir()]))


def _known(folder: str, function: str) -> list[str]:
    """Returns the modules that define the function: of the working directory, and of the folder there and here."""
    defines = re.compile(rf"^(def )?{function}\b", re.MULTILINE)
    places = {"": pathlib.Path(), f"{folder}.": pathlib.Path(folder)}
    files = [(prefix, path) for prefix, place in places.items() for path in sorted(place.glob("*.py"))]
    files += [(f"{folder}.", path) for path in sorted((_PROJECT / folder).glob("*.py"))]
    return list(dict.fromkeys(f"{prefix}{path.stem}" for prefix, path in files
                              if defines.search(path.read_text(encoding="utf-8", errors="replace"))))


def _near_first(name: str, known: Sequence[str]) -> list[str]:
    last_parts = {module: module.rpartition(".")[2] for module in known}
    wanted = re.sub(r"\.py$", "", name).replace("/", ".").strip(".")
    near = [module for candidate in difflib.get_close_matches(wanted.rpartition(".")[2], set(last_parts.values()))
            for module, last_part in last_parts.items() if last_part == candidate]
    return [*near, *(module for module in known if module not in near)]
