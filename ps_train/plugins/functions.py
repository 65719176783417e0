"""Plug-ins that a program gives as modules and functions: names by which tasks import them, or a module with them.

    module, or its model_fn or input_fn     its dotted name
    another function of a module            a module that is written, with an import of it
    a function of __main__, of a notebook   a module that is written, with its source and what it uses of the program:
                                            imports, functions and classes, constants; other values are in a pickle
"""

from __future__ import annotations

import ast
import inspect
import os
import pathlib
import pickle
import symtable
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from ps_train.errors import ConfigError

_FUNCTIONS = {"model": "model_fn", "dataset": "input_fn"}
_MOST_LITERAL = 200  # characters of a constant in the module
_HEAD = '"""Functions of a program that has launched this training; see docs/python.md."""\n'
_VALUES = """import pathlib as _pathlib
import pickle as _pickle

_values = _pickle.loads(_pathlib.Path(__file__).with_suffix(".pickle").read_bytes())
"""


class ProgramCode:
    """The text of a module with a function of this program, and the values for its pickle.

    Attributes:
      name: of the module.
    """

    def __init__(self, flag: str, function: types.FunctionType) -> None:
        """Takes a model_fn or input_fn, with what it uses, and the DEFAULT_PARAMS beside it.

        Raises:
          ConfigError: the tasks could not have it.
        """
        self.name = f"program_{flag}"
        self._blocks: list[str] = []
        self._objects: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        user = f"--{flag}: {function.__name__}"
        self._add(_FUNCTIONS[flag], function, user)
        if "DEFAULT_PARAMS" in function.__globals__:
            self._add("DEFAULT_PARAMS", function.__globals__["DEFAULT_PARAMS"], user)

    def write(self, folder: str) -> None:
        """Writes the module into a folder."""
        path = pathlib.Path(folder, f"{self.name}.py")
        path.write_text("\n\n".join([_HEAD + _VALUES * bool(self._values), *self._blocks]) + "\n", encoding="utf-8")
        path.with_suffix(".pickle").write_bytes(pickle.dumps(self._values))

    def _add(self, name: str, found: Any, user: str) -> None:
        """Adds what a name stands for in the program; `user` is the flag and the function that uses it."""
        if name in self._objects:
            if self._objects[name] is not found:
                raise _refusal(user, f"uses two different things that are called {name}")
            return
        self._objects[name] = found
        if isinstance(found, types.ModuleType):
            self._blocks.append(f"import {_importable_name(found)} as {name}")
        elif isinstance(found, (types.FunctionType, type)):
            self._add_definition(name, found, user)
        else:
            self._add_value(name, found, user)

    def _add_definition(self, name: str, found: types.FunctionType | type, user: str) -> None:
        if found.__module__ != "__main__" and getattr(sys.modules.get(found.__module__), found.__name__, None) is found:
            self._blocks.append(f"from {found.__module__} import {found.__name__} as {name}")
            return
        if not found.__name__.isidentifier():
            raise _refusal(user, f"uses a lambda, {name}, whose source cannot be taken out of its line")
        if found.__name__ != name:
            self._add(found.__name__, found, user)
            self._blocks.append(f"{name} = {found.__name__}")
            return
        try:
            source = textwrap.dedent(inspect.getsource(found))
        except (OSError, TypeError):
            raise _refusal(user, f"uses {found.__name__}, whose source Python does not know") from None
        for used, value in _used_objects(found, source).items():
            self._add(used, value, user)
        self._blocks.append(source.rstrip())

    def _add_value(self, name: str, value: Any, user: str) -> None:
        literal = repr(value)
        if len(literal) <= _MOST_LITERAL and _is_constant(literal):
            self._blocks.append(f"{name} = {literal}")
            return
        try:
            is_of_program = b"__main__" in pickle.dumps(value)
        except Exception as error:  # noqa: BLE001 (the value's own code decides what is raised)
            raise _refusal(user, f"uses {name}, a {type(value).__name__} that cannot be pickled ({error})") from None
        if is_of_program:
            raise _refusal(user, f"uses {name}, whose class or function is defined in the program itself")
        self._values[name] = value
        self._blocks.append(f'{name} = _values["{name}"]')


def _refusal(user: str, why: str) -> ConfigError:
    return ConfigError("plugin_not_importable", f"{user} {why}, so the tasks cannot have it; put the function, and "
                       "what it uses, into a module, and give the module")


def _is_constant(literal: str) -> bool:
    try:
        ast.literal_eval(literal)
    except (ValueError, SyntaxError):
        return False
    return True


def _importable_name(module: types.ModuleType) -> str:
    """Returns the shortest public name of a module: that of tensorflow.compat.v1 in itself is another one."""
    names = [name for name, found in list(sys.modules.items()) if found is module]
    return min(names, key=lambda name: ("._" in name, len(name)), default=module.__name__)


def _used_objects(found: types.FunctionType | type, source: str) -> dict[str, Any]:
    """Returns name -> object of the program for what the source of a function or class uses."""
    known = dict(vars(sys.modules[found.__module__]))
    if isinstance(found, types.FunctionType):
        cells = zip(found.__code__.co_freevars, found.__closure__ or ())
        known = {**found.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    names = dict.fromkeys(_free_names(symtable.symtable(source, "source", "exec")))
    return {name: known[name] for name in names if name in known and name != found.__name__}


def _free_names(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() or (table.get_type() == "module" and symbol.is_referenced()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _free_names(child)


def plugin_name(flag: str, plugin: str | types.ModuleType | Callable | None) -> str | ProgramCode | None:
    """Returns the dotted name of a plug-in, or the code that the tasks need for it; None for None.

    Args:
      flag: "model" or "dataset".
      plugin: a name, a module, or a function.

    Raises:
      ConfigError: the tasks cannot import it.
    """
    if plugin is None or isinstance(plugin, str):
        return plugin
    name = plugin.__name__ if isinstance(plugin, types.ModuleType) else getattr(plugin, "__module__", "")
    module = None if name == "__main__" else sys.modules.get(name)
    if module is not None and (plugin is module or plugin is getattr(module, _FUNCTIONS[flag], None)):
        return name
    if isinstance(plugin, types.FunctionType):
        return ProgramCode(flag, plugin)
    raise ConfigError("plugin_not_importable", f"--{flag}: got {plugin!r}, which the tasks cannot import; give a "
                      "dotted name, a module that has a file, or a function")


def import_path() -> str:
    """Returns the folders, as PYTHONPATH has them, from which this program imports and another Python would not."""
    known = tuple({sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()})
    folders = [os.path.abspath(path) for path in sys.path if path and os.path.isdir(path)]
    return os.pathsep.join(dict.fromkeys(
        path for path in folders if path != os.getcwd() and not path.startswith(known)))
