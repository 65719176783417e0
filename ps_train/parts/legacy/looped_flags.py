"""Flags that a script defines in a loop or by a function of its own, found in its text.

    for name, default in [("ps_hosts", ""), ...]:        def flag(name, default=""):
        flags.DEFINE_string(name, default, "")               parser.add_argument("--" + name, default=default)
                                                         flag("ps_hosts")

The text is read, not run: the strings of the loop and of the calls are the names.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class _Parameter(NamedTuple):
    """The parameter of a function that is the name of the flag which it defines."""

    place: int
    name: str


_Definers = Mapping[str, _Parameter]  # the script's own functions and aliases -> which parameter is the flag's name


@functools.lru_cache(maxsize=8)  # asked once for each flag of a cluster, of the same text
def of(text: str) -> frozenset[str]:
    """Returns the strings among which the names of such flags are; none if the text is not Python 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about the script's strings, from Python 3.12 on
            tree = ast.parse(text)
    except (SyntaxError, ValueError):  # Python 2; ValueError: a null byte
        return frozenset()
    definers = _definers(tree)
    strings = {text for call in _calls(tree) for part in _name_parts(call, definers) for text in _strings(part)}
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            strings.update(_of_loop(loop.target, loop.iter, loop, tree, definers))
        elif isinstance(loop, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for part in loop.generators:
                strings.update(_of_loop(part.target, part.iter, loop, tree, definers))
    return frozenset(text.removeprefix("--") for text in strings)


def _definers(tree: ast.Module) -> _Definers:
    """Returns the functions of the script that define a flag whose name they are given, and its names for DEFINE_*."""
    definers: dict[str, _Parameter] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _name_of(node.value).startswith("DEFINE_"):
            definers.update({name: _Parameter(0, "name") for target in node.targets for name in _names(target)})
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            parameters = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
            used = {name for call in _calls(function) for part in _name_parts(call, definers) for name in _names(part)}
            named = next((_Parameter(place, name) for place, name in enumerate(parameters) if name in used), None)
            definers.update({function.name: named} if named else {})
    return definers


def _of_loop(target: ast.expr, values: ast.expr, loop: ast.AST, tree: ast.Module, definers: _Definers) -> Iterator[str]:
    """Yields the strings that a loop goes through, if it defines flags by what it goes through."""
    used = {name for call in _calls(loop) for part in _name_parts(call, definers) for name in _names(part)}
    if used.isdisjoint(_names(target)):
        return
    yield from _strings(values)
    named = set(_names(values))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and named.intersection(name for part in node.targets for name in _names(part)):
            yield from _strings(node.value)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name_parts(call: ast.Call, definers: _Definers) -> list[ast.expr]:
    """Returns the arguments of a call from which the name of a flag comes; none if it defines no flag."""
    name = _name_of(call.func)
    if name == "add_argument":  # without dashes it defines no flag; a name that has them itself needs no search
        return [part for part in call.args if any(text.startswith("--") for text in _strings(part))]
    parameter = _Parameter(0, "name") if name.startswith("DEFINE_") else definers.get(name)
    if parameter is None:
        return []
    return [*call.args[parameter.place:parameter.place + 1],
            *(keyword.value for keyword in call.keywords if keyword.arg == parameter.name)]


def _name_of(node: ast.expr) -> str:
    """Returns the last part of a dotted name, "" for something else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _strings(node: ast.AST) -> Iterator[str]:
    return (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))
