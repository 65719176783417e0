"""Plug-ins that a program gives as modules and functions: names by which tasks import them, or a module with them.

    module, or its model_fn or input_fn     its dotted name, if --model and --dataset find that file by it
    these otherwise, another function       a module that is written, with imports of what the contract names
    a function of __main__, of a notebook   a module that is written, with its source, what it uses of the program, and
                                            what the contract names beside it: imports, functions and classes,
                                            constants; other values are in a pickle
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.util
import inspect
import os
import pathlib
import pickle
import site
import symtable
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError
from ps_train.plugins import loader

_FUNCTIONS = {"model": "model_fn", "dataset": "input_fn"}
_MOST_LITERAL = 200  # characters of a constant in the module
_WITHOUT_CALLS = (ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp,
                  ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
_HEAD = '"""Functions of a program that has launched this training; see docs/python.md."""\n'
_POSTPONED = "from __future__ import annotations\n"
_VALUES = """import pathlib as _pathlib
import pickle as _pickle

_values = _pickle.loads(_pathlib.Path(__file__).with_suffix(".pickle").read_bytes())
"""


class ProgramCode:
    """The text of a module with what this program gives as a plug-in, and the values for its pickle.

    Attributes:
      name: of the module.
    """

    def __init__(self, flag: str, plugin: types.FunctionType | types.ModuleType) -> None:
        """Takes a model_fn or input_fn with what it uses, or a module, and what the contract names beside it.

        Raises:
          ConfigError: the tasks could not have it.
        """
        self.name = f"program_{flag}"
        self._blocks: list[str] = []
        self._objects: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._is_postponed = False  # whether annotations are not evaluated
        user = f"--{flag}: {plugin.__name__}"
        if isinstance(plugin, types.FunctionType):
            self._add(_FUNCTIONS[flag], plugin, user)
        module, beside = _home(plugin)
        if module is not None:
            _check_import(flag, module)
        for name in loader.CONTRACTS[flag]:
            if name not in beside or name in self._objects:
                continue
            if name in loader.INPUT_PAIR and _FUNCTIONS[flag] in self._objects:
                continue  # an input_fn is for both
            if module is not None:
                self._blocks.append(f"from {module.__name__} import {name}")
            elif name == "DEFAULT_PARAMS" or callable(beside[name]):
                self._add(name, beside[name], user)

    def write(self, folder: str) -> None:
        """Writes the module into a folder."""
        path = pathlib.Path(folder, f"{self.name}.py")
        head = _HEAD + _POSTPONED * self._is_postponed + _VALUES * bool(self._values)
        path.write_text("\n\n".join([head, *self._blocks]) + "\n", encoding="utf-8")
        path.with_suffix(".pickle").write_bytes(pickle.dumps(self._values))
        # Python would take that of a text of the same length from the same second.
        pathlib.Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

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
        target = inspect.unwrap(found) if isinstance(found, types.FunctionType) else found
        if not isinstance(target, (types.FunctionType, type)):
            raise _refusal(user, f"uses {found.__name__}, whose source Python does not know")
        defined = _defined_name(target)
        if not defined.isidentifier():
            raise _refusal(user, f"uses a lambda, {name}, whose source cannot be taken out of its line")
        if defined != name:
            self._add(defined, found, user)
            self._blocks.append(f"{name} = {defined}")
            return
        known = _known_objects(target)
        source = _source(found, target, known, user)
        is_postponed = _is_postponed(target, known)
        self._is_postponed |= is_postponed
        table = symtable.symtable(_without_annotations(source) if is_postponed else source, "source", "exec")
        for used in dict.fromkeys(_free_names(table)):
            if used in known and (used != defined or known[used] is not found):
                self._add(used, known[used], user)
        for symbol in table.get_symbols():  # of decorators, defaults and bases, which the import evaluates
            used = symbol.get_name()
            if symbol.is_referenced() and used != defined and used not in known and not hasattr(builtins, used):
                raise _refusal(user, f"uses {used} in the head of {defined}, a name that only a function around it has")
        for place, value, now in _rebound(ast.parse(source).body[0], target, known):
            raise _refusal(user, f"uses {defined}, in which {place} is {value!r:.80}, and would be {now!r:.80} if it "
                           "were defined now (define it again after such a change)")
        self._blocks.append(source)

    def _add_value(self, name: str, value: Any, user: str) -> None:
        if _is_plain(value) and len(literal := repr(value)) <= _MOST_LITERAL and _is_constant(literal):
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


def _is_plain(value: Any) -> bool:
    """Returns whether a value, and what it contains, is of Python's own types: a class may have the same repr."""
    if type(value) is dict:
        return all(map(_is_plain, [*value, *value.values()]))
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, type(None)) or type(value) in (bool, int, float, complex, str, bytes)


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


def _home(plugin: types.FunctionType | types.ModuleType) -> tuple[types.ModuleType | None, Mapping[str, Any]]:
    """Returns the module of a plug-in, None for the program itself, and the names there."""
    if isinstance(plugin, types.ModuleType):
        return plugin, vars(plugin)
    names = getattr(inspect.unwrap(plugin), "__globals__", plugin.__globals__)
    module = sys.modules.get(names.get("__name__", ""))
    is_program = module is None or module.__name__ == "__main__" or vars(module) is not names
    return None if is_program else module, names


def _defined_name(target: types.FunctionType | type) -> str:
    """Returns the name in the source: a decorator may have set another __name__."""
    return target.__name__ if isinstance(target, type) else target.__code__.co_name


def _known_objects(target: types.FunctionType | type) -> dict[str, Any]:
    """Returns name -> object of the program for what the source of a function or class may use."""
    functions = [target]
    known: dict[str, Any] = {}
    if isinstance(target, type):
        functions = list(vars(target).values())
        known.update(vars(sys.modules[target.__module__]) if target.__module__ in sys.modules else {})
    for function in functions:
        if isinstance(function, types.FunctionType):
            known.update(function.__globals__)
    for function in functions:
        if isinstance(function, types.FunctionType):
            known.update(_filled_cells(function))
    return known


def _filled_cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is assigned later
            continue


def _is_postponed(target: types.FunctionType | type, known: Mapping[str, Any]) -> bool:
    """Returns whether the program's annotations are not evaluated."""
    flags = 0 if isinstance(target, type) else target.__code__.co_flags
    is_imported = known.get("annotations") is __future__.annotations
    return bool(flags & __future__.annotations.compiler_flag) or is_imported


def _source(found: Any, target: types.FunctionType | type, known: Mapping[str, Any], user: str) -> str:
    """Returns statements that define a function or class as the program has it, without decorators that it lacks."""
    name = _defined_name(target)
    try:
        source = inspect.getsource(target if isinstance(target, type) else target.__code__).rstrip()
        is_inner = source[:1].isspace()
        # Without the indentation the texts in it would be others.
        lines = ["if True:"] * is_inner + source.split("\n")
        [node] = ast.parse("\n".join(lines)).body
        if isinstance(node, ast.If):
            [node] = node.body
    except (OSError, TypeError, SyntaxError, ValueError):
        raise _refusal(user, f"uses {name}, whose source Python does not know") from None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name != name:
        raise _refusal(user, f"uses {name}, whose source has changed since it was read")
    num_wrappers, is_named = _num_wrappers(found), known.get(name) is found
    if isinstance(target, types.FunctionType) and num_wrappers == 0 and not is_named:
        lines = lines[:is_inner] + lines[node.lineno - 1:]
    elif num_wrappers > len(node.decorator_list) or (num_wrappers < len(node.decorator_list) and not is_named):
        raise _refusal(user, f"uses {name} in a wrapper that is not from the decorators of its source")
    return "\n".join(lines)


def _rebound(
    node: ast.stmt, target: types.FunctionType | type, known: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, value, what it would be now) of arguments' defaults and class attributes that would be others."""
    if isinstance(node, ast.If):  # around an inner function, see `_source`
        [node] = node.body
    for place, expression, value in _bound_at_definition(node, target):
        parts = list(ast.walk(expression))
        # An expression without names, such as {}, means the same again: a cache begins empty in each process.
        if not any(isinstance(part, ast.Name) for part in parts) or not (
                _is_plain(value) or isinstance(expression, ast.Name)):
            continue
        try:
            now = eval(compile(ast.Expression(expression), "source", "eval"), dict(known)) if all(
                isinstance(part, _WITHOUT_CALLS) for part in parts) else value
        except Exception:  # noqa: BLE001 (the import of the tasks, or the check of names, says why)
            continue
        if now is not value and not (_is_plain(value) and type(now) is type(value) and (
                now == value or repr(now) == repr(value))):
            yield place, value, now


def _bound_at_definition(
    node: Any, target: types.FunctionType | type
) -> Iterator[tuple[str, ast.expr, Any]]:
    """Yields (name, expression, value) of what was evaluated once, when the function or class was defined.

    Without what a class body binds more than once, or computes from its own names.
    """
    if isinstance(target, types.FunctionType):
        arguments = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
        defaults = node.args.defaults
        yield from zip(arguments[len(arguments) - len(defaults):], defaults, target.__defaults__ or ())
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
            given = target.__kwdefaults__ or {}
            if default is not None and argument.arg in given:
                yield argument.arg, default, given[argument.arg]
        return
    bound = _names_bound(node.body)
    for statement in node.body:
        found: list[tuple[str, ast.expr, Any]] = []
        if isinstance(statement, ast.FunctionDef) and isinstance(
                method := vars(target).get(statement.name), types.FunctionType) and not statement.decorator_list:
            found = list(_bound_at_definition(statement, method))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            [*others, last] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if isinstance(last, ast.Name) and not others and last.id in vars(target) and bound.count(last.id) == 1:
                found = [(last.id, statement.value, vars(target)[last.id])]
        yield from (one for one in found if not any(
            isinstance(part, ast.Name) and part.id in bound for part in ast.walk(one[1])))


def _names_bound(body: Sequence[ast.stmt]) -> list[str]:
    """Returns each name that a class body binds, as often as it does."""
    names, waiting = [], list[ast.AST](body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return names


def _num_wrappers(found: Any) -> int:
    """Returns how many times functools.wraps has been around a function."""
    wrappers = 0
    while hasattr(found, "__wrapped__") and not isinstance(found, type):
        found, wrappers = found.__wrapped__, wrappers + 1
    return wrappers


def _without_annotations(source: str) -> str:
    """Returns the source without what is not evaluated: symtable of Python 3.9 lists the names in it, too."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            node.annotation = ast.Constant(None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
    return ast.unparse(tree)


def _free_names(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() if table.get_type() == "module" else symbol.is_global():
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
        _check_import(flag, module)
        return name if _is_file(loader.file_of(f"--{flag}", name, _task_path()), module) else ProgramCode(flag, module)
    if isinstance(plugin, types.FunctionType):
        return ProgramCode(flag, plugin)
    raise ConfigError("plugin_not_importable", f"--{flag}: got {plugin!r}, which the tasks cannot import; give a "
                      "dotted name, a module that has a file, or a function")


def _check_import(flag: str, module: types.ModuleType) -> None:
    """Raises ConfigError if the tasks would import another module by the name."""
    file = loader.imported_file(module.__name__, _task_path())
    if not _is_file(file, module):
        raise ConfigError("plugin_not_importable", f"--{flag}: module {module.__name__} is {module.__file__}, but the "
                          f"tasks would import {file}; rename one of them, or start in another folder")


def _is_file(file: str | None, module: types.ModuleType) -> bool:
    """Returns whether a module is from that file, or one of both is not known."""
    own = getattr(module, "__file__", None)
    return file is None or own is None or os.path.realpath(file) == os.path.realpath(own)


def _task_path() -> list[str]:
    """Returns the folders in which a task looks for modules, in order."""
    return [os.getcwd(), *filter(None, import_path().split(os.pathsep)), *sys.path]


def import_path() -> str:
    """Returns the folders, as PYTHONPATH has them, from which this program imports and another Python would not."""
    given = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    pythons = [*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages(),
               site.getusersitepackages()]
    folders = [os.path.abspath(path) for path in sys.path if path and os.path.exists(path)]
    own = [path for path in folders if path != os.getcwd() and not _is_in(path, pythons)]
    return os.pathsep.join(dict.fromkeys([*(path for path in folders if path in own or path in given), *given]))


def _is_in(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)
