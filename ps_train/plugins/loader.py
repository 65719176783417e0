"""Finds, imports and checks the module that --model or --dataset names.

    load_model, load_dataset --> find_module --> checked_function, checked_params --> Model, Dataset

    --model=mlp            the first of these: models/mlp.py or mlp.py in the working directory, models.mlp of ps_train,
                           an installed module mlp, an entry point mlp of the group ps_train.models
    --model=models.mlp     models/mlp.py in the working directory, or else that of ps_train

The modules of ps_train are the folders models/ and data/ of a checkout, which are installed as ps_train.models and
ps_train.datasets. They are still imported under the names models and data, because a train_dir records the names.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import TRAIN, Dataset, Model
from ps_train.plugins.params import can_be_set

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_PROJECT = _PACKAGE.parent  # in a checkout, the folder of models/ and data/
_INSTALLED = {"models": "models", "data": "datasets"}  # their names in an installed package, see setup.py
_FLAG_FOLDERS = {"--model": "models", "--dataset": "data"}
INPUT_PAIR = ("train_input_fn", "eval_input_fn")
CONTRACTS = {  # what a module may have; a part may look for more
    "model": ("model_fn", "DEFAULT_PARAMS", "make_optimizer", "serving_input_fn", "callbacks"),
    "dataset": ("input_fn", *INPUT_PAIR, "DEFAULT_PARAMS", "prepare", "serving_input_fn"),
}
_MAX_LISTED = 12  # modules that an error lists


def load_model(name: str) -> Model:
    """Imports the model plug-in of that name.

    Its model_fn may take only `features` of the arguments, and `config`, as an Estimator's may.

    Raises:
      ConfigError: the module does not exist or has no model_fn, or its model_fn has the wrong signature.
    """
    module = find_module("--model", name, function="model_fn")
    arguments = ("features", "labels", "mode", "params")
    taken = _taken(module, "model_fn", (*arguments, "config"))
    if "features" not in taken:
        taken = ()
    function = checked_function("--model", module, "model_fn", tuple(taken) or arguments, wanted=arguments)
    return Model(module.__name__, _ignoring_others(function, taken), checked_params("--model", module),
                 takes_config="config" in taken, serving_input_fn=_serving_input_fn(module),
                 make_optimizer=_make_optimizer(module))


def load_dataset(name: str) -> Dataset:
    """Imports the dataset plug-in of that name.

    Its input_fn may leave out any argument. Instead the module may have `train_input_fn` and `eval_input_fn`.

    Raises:
      ConfigError: the module does not exist or has no input_fn, or a function has the wrong signature.
    """
    module = find_module("--dataset", name, function="input_fn")
    if not hasattr(module, "input_fn") and any(hasattr(module, name) for name in INPUT_PAIR):
        (train, is_sharded), (evaluate, is_eval_sharded) = (_input_function(module, name) for name in INPUT_PAIR)
        function = _by_mode(train, evaluate)
    else:
        function, is_sharded = _input_function(module, "input_fn")
        is_eval_sharded = is_sharded
    prepare = (checked_function("--dataset", module, "prepare", ("params",)) if hasattr(module, "prepare")
               else lambda params: None)
    return Dataset(module.__name__, function, prepare, checked_params("--dataset", module), is_sharded,
                   is_eval_sharded, _serving_input_fn(module))


def _make_optimizer(module: types.ModuleType) -> Callable[..., Any] | None:
    """Returns the make_optimizer of a module, whose signature is checked, or None."""
    if not hasattr(module, "make_optimizer"):
        return None
    return checked_function("--model", module, "make_optimizer", ("params", "global_step"))


def _serving_input_fn(module: types.ModuleType) -> Callable[..., Any] | None:
    """Returns the serving_input_fn of a module, called with params=..., or None."""
    function = getattr(module, "serving_input_fn", None)
    return _ignoring_others(function, _taken(module, "serving_input_fn", ("params",))) if callable(function) else None


def _input_function(module: types.ModuleType, name: str) -> tuple[Callable[..., Any], bool]:
    """Returns a function that takes all arguments of an input_fn, and whether the user's takes `shard`."""
    arguments = ("mode", "params", "shard")
    taken = _taken(module, name, arguments)
    function = checked_function("--dataset", module, name, taken, wanted=arguments)
    return _ignoring_others(function, taken), "shard" in taken


def _by_mode(train: Callable[..., Any], evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the input_fn of a module that has one function for training and one for evaluation."""
    def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> Any:
        return (train if mode == TRAIN else evaluate)(mode=mode, params=params, shard=shard)

    return input_fn


def _taken(module: types.ModuleType, name: str, offered: Sequence[str]) -> tuple[str, ...]:
    """Returns the names in `offered` of arguments that a function of the module takes."""
    function = getattr(module, name, None)
    if not callable(function):
        return ()
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return tuple(argument for argument in offered if argument != "config")
    return tuple(argument for argument in offered if argument in {parameter.name for parameter in parameters})


def _ignoring_others(function: Callable[..., Any], taken: Sequence[str]) -> Callable[..., Any]:
    """Returns a function that passes on only the arguments that the user's takes."""
    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return function(**{name: arguments[name] for name in taken if name in arguments})

    return call


def checked_function(
    flag: str, module: types.ModuleType, name: str, arguments: Sequence[str], *, wanted: Sequence[str] = (),
) -> Callable[..., Any]:
    """Returns the function `name` of a plug-in's module.

    Args:
      flag: the flag that named the module, for the error.
      arguments: the names of the arguments that ps_train passes.
      wanted: the names that an error recommends; the default is `arguments`.

    Raises:
      ConfigError: the module has no such function, or the function does not accept these arguments.
    """
    function = getattr(module, name, None)
    signature = f"{name}({', '.join(wanted or arguments)})"
    if not callable(function):
        raise ConfigError("plugin_function_missing", f"{flag}: module {module.__name__!r} ({module.__file__}) has no "
                          f"function {signature}; add it")
    try:
        inspect.signature(function).bind(**dict.fromkeys(arguments))
    except TypeError:
        raise ConfigError("plugin_signature", f"{flag}: {module.__name__}.{name} takes {inspect.signature(function)}; "
                          f"it must take {signature}") from None
    return function


def checked_params(flag: str, module: types.ModuleType) -> Mapping[str, Any]:
    """Returns a module's DEFAULT_PARAMS, or {} if it has none.

    Raises:
      ConfigError: DEFAULT_PARAMS is not a dict, or --params cannot set a value of one of its types.
    """
    params = getattr(module, "DEFAULT_PARAMS", {})
    if not isinstance(params, Mapping):
        raise ConfigError("default_params_malformed", f"{flag}: {module.__name__}.DEFAULT_PARAMS is {params!r}; "
                          "allowed: a dict of name: value")
    wrong = [name for name, value in params.items() if not can_be_set(type(value))]
    if wrong:
        raise ConfigError("default_params_malformed", f"{flag}: {module.__name__}.DEFAULT_PARAMS[{wrong[0]!r}] is "
                          f"{params[wrong[0]]!r}; allowed: bool, int, float and str, which --params can set")
    return params


def find_module(flag: str, name: str, *, function: str) -> types.ModuleType:
    """Imports a plug-in's module by its dotted or short name; the docstring of this module has the order.

    Args:
      flag: --model or --dataset.
      name: the name as the user gave it.
      function: the function that the module should define; an error lists the modules that do.

    Raises:
      ConfigError: the module does not exist, or the name is the path of a file.
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
    raise ConfigError("plugin_not_found", f"{flag}: no module {name!r} in {pathlib.Path.cwd()}, in ps_train or among "
                      f"the installed ones; {guess}known: {', '.join([*listed][:_MAX_LISTED]) or 'none'}; give one of "
                      f"these, or the dotted name of a module with {function}")


def _candidates(folder: str, name: str) -> list[str]:
    """Returns the dotted names that a plug-in's name may stand for, in order."""
    if "." in name:
        return [name]
    in_folder = f"{folder}.{name}"
    is_in_working_dir = pathlib.Path(f"{name}.py").is_file() and not pathlib.Path(folder, f"{name}.py").is_file()
    return [name, in_folder] if is_in_working_dir else [in_folder, name]


def file_of(flag: str, name: str, path: Sequence[str]) -> str | None:
    """Returns the file that `find_module` would import in a process with that sys.path; None if that is not known."""
    candidates = _candidates(_FLAG_FOLDERS[flag], name)
    return next(filter(None, (imported_file(candidate, path) for candidate in candidates)), None)


def imported_file(name: str, path: Sequence[str]) -> str | None:
    """Returns the file of a module that a task would import, without an import here; None if that is not known."""
    first, *others = name.split(".")
    places = [pathlib.Path(folder, first, *others) for folder in path]
    if others and first in _INSTALLED:
        places.append(_default_folder(first).joinpath(*others))
    files = (file for place in places for file in (place / "__init__.py", place.with_name(f"{place.name}.py")))
    return next((str(file) for file in files if file.is_file()), None)


def _entry_points(folder: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    """Returns short name -> module, from the entry points of installed packages."""
    group = f"ps_train.{_INSTALLED[folder]}"
    entry_points: Any = importlib.metadata.entry_points()
    # Until Python 3.9 a dict of groups.
    chosen = entry_points.select(group=group) if hasattr(entry_points, "select") else entry_points.get(group, ())
    return {entry_point.name: entry_point for entry_point in chosen}


def _default_folder(folder: str) -> pathlib.Path:
    """Returns the folder of ps_train's models or datasets: in its package or, in a checkout, next to it."""
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
        raise ConfigError("plugin_is_path", f"{flag}: got {name!r}, a file outside the working directory "
                          f"{pathlib.Path.cwd()}; start in {file.resolve().parent} with {flag}={file.stem}")
    raise ConfigError("plugin_is_path", f"{flag}: got {name!r}, which is a path; give the dotted name: "
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
    """Makes `models.x` the user's module or, if the user has none, that of ps_train; `data.x` likewise."""
    # Otherwise the folder that Python takes as the package would hide the other one.
    folder, dot, _ = name.partition(".")
    if folder not in ("models", "data") or not dot:
        return
    users, default = pathlib.Path.cwd() / folder, _default_folder(folder)
    package = _package(folder, default)
    package.__path__ = list(dict.fromkeys(
        [*[str(users)] * users.is_dir(), *getattr(package, "__path__", []), *[str(default)] * default.is_dir()]))


def _package(name: str, default: pathlib.Path) -> types.ModuleType:
    """Imports the package of that name, or that in the default folder if no other exists."""
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
    files = [path for place in (pathlib.Path(), pathlib.Path(folder), _default_folder(folder))
             for path in sorted(place.glob("*.py"))]
    return [path.stem for path in files if defines.search(path.read_text(encoding="utf-8", errors="replace"))]


def _nearest(name: str, known: Sequence[str]) -> list[str]:
    wanted = re.sub(r"\.py$", "", name).replace("/", ".").strip(".")
    return difflib.get_close_matches(wanted.rpartition(".")[2], set(known))
