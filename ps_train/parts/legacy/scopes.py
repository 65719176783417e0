"""Where the names of a module belong, and which of its parts expect an error.

    tree --> Scopes --> places: each node with its scope, and with the errors that a `try` around it catches
                    --> owner_of: the scope whose variable a name is there, or None for a built-in name

Nothing here calls itself, so that an expression of a thousand terms is read as any other.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPOUND = (*_FUNCTIONS, ast.ClassDef, ast.For, ast.While, ast.If, ast.With, ast.Try)
_ANY_ERROR = frozenset(("Exception", "BaseException"))


@dataclasses.dataclass(eq=False)
class Scope:
    """A module, a class or a function.

    Attributes:
      bindings: name -> the nodes that bind it here; a comprehension's names count as those of the scope around it.
      outer: names that a `global` or `nonlocal` statement here gives to another scope.
    """

    parent: Scope | None
    is_class: bool = False
    bindings: dict[str, list[ast.AST]] = dataclasses.field(default_factory=dict)
    outer: dict[str, Scope] = dataclasses.field(default_factory=dict)


class PlacedNode(NamedTuple):
    """A node, its scope, and the names of the errors that are caught around it."""

    node: ast.AST
    scope: Scope
    caught: frozenset[str]


class Scopes:
    """The nodes of a tree, each parent before its children, with their scopes."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(None)
        self.places: list[PlacedNode] = []
        stack = [PlacedNode(tree, self.module, frozenset())]
        while stack:
            place = stack.pop()
            self.places.append(place)
            self._bind(place)
            stack.extend(reversed([*self._children(place)]))

    def owner_of(self, name: str, scope: Scope) -> Scope | None:
        """Returns the scope that binds a name which is used in another; None if no scope does."""
        first, current = scope, scope
        while current is not None:
            if name in current.outer:
                return current.outer[name]
            if name in current.bindings and (current is first or not current.is_class):
                return current
            current = current.parent
        return None

    def _bind(self, place: PlacedNode) -> None:
        node, scope = place.node, place.scope
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                is_global = isinstance(node, ast.Global) or scope.parent is None
                scope.outer[name] = self.module if is_global else self.owner_of(name, scope.parent) or self.module
        for name in _bound_names(node):
            owner = scope.outer.get(name, scope)
            owner.bindings.setdefault(name, []).append(node)

    def _children(self, place: PlacedNode) -> Iterator[PlacedNode]:
        node, scope, caught = place
        if isinstance(node, ast.Try):
            inside = caught | caught_by(node)
            yield from (PlacedNode(child, scope, inside) for child in node.body)
            rest = [*node.handlers, *node.orelse, *node.finalbody]
            yield from (PlacedNode(child, scope, caught) for child in rest)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner = Scope(scope, isinstance(node, ast.ClassDef))
            for argument in () if inner.is_class else _arguments(node.args):
                inner.bindings.setdefault(argument.arg, []).append(argument)
            body = {id(child) for child in (node.body if isinstance(node.body, list) else [node.body])}
            for child in ast.iter_child_nodes(node):  # decorators, defaults and bases are read outside
                yield PlacedNode(child, inner if id(child) in body else scope, caught)
        else:
            yield from (PlacedNode(child, scope, caught) for child in ast.iter_child_nodes(node))


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several]


def _bound_names(node: ast.AST) -> Sequence[str]:
    """Returns the names that a node itself binds in its scope."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)) or (
            type(node).__name__ in ("MatchAs", "MatchStar")):  # the last two since Python 3.10
        return [node.name] if node.name else []
    return [node.rest] if type(node).__name__ == "MatchMapping" and node.rest else []


def caught_by(node: ast.Try) -> frozenset[str]:
    """Returns the names of the errors that are caught; those of `except Exception` if the block only tries a name."""
    names = set()
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names.update(getattr(kind, "id", getattr(kind, "attr", "BaseException")) for kind in kinds)
    # The whole of a training loop is often inside `try: ... except Exception as error: coord.request_stop(error)`.
    return frozenset(names) - (_ANY_ERROR if any(isinstance(part, _COMPOUND) for part in node.body) else set())


def expects(caught: frozenset[str], *errors: str) -> bool:
    """Returns whether one of these errors is caught."""
    return bool(caught & {*errors, *_ANY_ERROR})
