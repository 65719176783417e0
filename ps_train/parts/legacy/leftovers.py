"""What remained of Python 2 in code that Python 3 can read, as it often does in TensorFlow 1 code.

    names      xrange, unicode, reduce, ... in the modules of the user's own
    modules    `import cPickle`, `from StringIO import StringIO` (python2_library.py)
    methods    `d.iteritems()`, `d.has_key(k)`, `iterator.next()`, and what arrays and XML had: `array.tostring()`
    calls      `sorted(x, compare)`, `print >> file, x`, `error.message`, ... (python2_calls.py)
    arrays     `array == []`, which was False where the shapes do not fit
    lists      `map(f, x)[0]`, `len(zip(x, y))`, `d.keys()[0]`, `range(3) + [1]`, `np.array(map(f, x))`

Code that uses them fails in Python 3, and code that is right there must not change: a name that a `try` expects to be
missing stays so, and what is assigned to a variable becomes a list only if the same function, or one inside it, does
what needs a list: it sorts or changes it, or, of `map`, `zip`, `filter` and `d.keys()`, reads it by an index. For
`self.x` these are the functions of its class. The division stays that of Python 3.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
import sys
import types
from typing import Any, Callable

import numpy as np

from ps_train.parts.legacy import python2_calls, python2_library
from ps_train.parts.legacy.python2_calls import call_node, node_at
from ps_train.parts.legacy.scopes import PlacedNode, Scope, Scopes, expects

# What the changed code uses; it is among the built-ins, where every module finds it.
_METHOD, _LISTED, _NAMES = "__ps_train_method__", "__ps_train_listed__", "__ps_train_names__"
_COMPARED = "__ps_train_compared__"


def _reload(module: types.ModuleType) -> types.ModuleType:
    # Scripts load `sys` again for its `setdefaultencoding` only.
    return module if module is sys else importlib.reload(module)


# The built-in functions of Python 2.
NAMES: dict[str, Any] = {
    "xrange": range, "unicode": str, "basestring": str, "long": int, "unichr": chr, "raw_input": input,
    "reduce": functools.reduce, "reload": _reload, "cmp": lambda left, right: (left > right) - (left < right),
    **python2_calls.NAMES,
}


def _array_item_setter(array: np.ndarray) -> Callable[..., None]:
    def itemset(*arguments: Any) -> None:
        *index, value = arguments
        if index:
            array[index[0] if len(index) == 1 and isinstance(index[0], tuple) else tuple(index)] = value
        else:
            array[...] = value
    return itemset


# Method -> what it is today, of the same object.
_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "iteritems": lambda owner: lambda: iter(owner.items()),
    "iterkeys": lambda owner: lambda: iter(owner.keys()),
    "itervalues": lambda owner: lambda: iter(owner.values()),
    "has_key": lambda owner: lambda key: key in owner,
    "viewitems": lambda owner: owner.items,
    "viewkeys": lambda owner: owner.keys,
    "viewvalues": lambda owner: owner.values,
    "next": lambda owner: lambda: next(owner),
    "xreadlines": lambda owner: lambda: iter(owner),
    "decode": lambda owner: functools.partial(python2_calls.decoded, owner),
    "tostring": lambda owner: owner.tobytes,
    "itemset": _array_item_setter,
    "ptp": lambda owner: lambda *args, **kwargs: np.ptp(owner, *args, **kwargs),
    "getchildren": lambda owner: lambda: list(owner),
    "getiterator": lambda owner: lambda *args, **kwargs: list(owner.iter(*args, **kwargs)),
}
_VIEWS = ("keys", "values", "items")
_LAZY = ("map", "zip", "filter")
_LAZY_TYPES = (map, zip, filter, range, type({}.keys()), type({}.values()), type({}.items()))
_USED = re.compile(
    rf"\.\s*({'|'.join((*_METHODS, *python2_calls.METHODS))})\s*\(|\b({'|'.join(_LAZY)}|range|sorted)\s*\(|"
    rf"\.({'|'.join(_VIEWS)})\(\s*\)|\.message\b|\bprint\s*(>>|\()|\b__cmp__\b|"
    rf"\b({'|'.join(python2_calls.SPECIAL)})\b|"
    rf"\b({'|'.join((*NAMES, *python2_library.MODULES))})\b|[!=]=\s*\[")
# Modules whose functions take a list, or what can be made one, but not an iterator; and those that take one.
_TAKE_LISTS, _TAKE_ITERATORS = ("np", "numpy", "tf", "random"), ("fromiter", "loadtxt", "genfromtxt")
_CHANGING = ("sort", "append", "remove", "insert", "pop", "extend", "reverse")


def may_be_in(text: str) -> bool:
    """Returns whether a text has something that `change_leftovers` may change."""
    return bool(_USED.search(text))


def install_changes() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _METHOD, _method)
    setattr(builtins, _LISTED, _listed)
    setattr(builtins, _NAMES, NAMES)
    setattr(builtins, _COMPARED, _compared)
    for name, function in python2_calls.BUILTINS.items():
        setattr(builtins, name, function)


def _method(owner: Any, name: str) -> Callable[..., Any]:
    """Returns a method of an object; what it is today if the object has none of that name."""
    kind, make = python2_calls.METHODS.get(name, (None, None))
    if kind is not None and isinstance(owner, kind) and not _has_own(type(owner), name, kind):
        return make(owner)
    method = getattr(owner, name, None)
    if method is not None:
        return method
    # An object with neither gets Python's own error about the name that the script wrote.
    fits = {"tostring": "tobytes", "itemset": "dtype", "ptp": "dtype", "next": "__next__", "has_key": "__contains__",
            "iterkeys": "keys", "itervalues": "values", "xreadlines": "readlines", "decode": "encode",
            "getchildren": "iter", "getiterator": "iter",
            }.get(name, "items")
    return _METHODS[name](owner) if name in _METHODS and hasattr(owner, fits) else getattr(owner, name)


def _has_own(made: type, name: str, kind: type) -> bool:
    """Returns whether a class made from another one replaces its method; a file's `write` is always one of a class."""
    return hasattr(kind, name) and getattr(made, name) is not getattr(kind, name)


def _listed(value: Any) -> Any:
    """Returns the list that Python 2 would have made; any other value as it is."""
    return list(value) if isinstance(value, _LAZY_TYPES) else value


def _compared(value: Any, shape: tuple[int, ...]) -> Any:
    """Returns what is compared with a list of a shape; of an array whose shape does not fit, what equals nothing.

    So it was before NumPy 1.25, which refuses such a comparison.
    """
    if isinstance(value, np.ndarray):
        try:
            np.broadcast_shapes(value.shape, shape)
        except ValueError:
            return object()
    return value


def change_leftovers(tree: ast.Module) -> bool:
    """Changes the calls of old methods, makes lists where only a list will do, and gives a module the names it lacks.

    Returns:
      Whether anything has changed.
    """
    scopes = Scopes(tree)
    variables = _Variables(scopes)
    is_changed = False
    for place in reversed(scopes.places):  # what is inside comes first
        change = _CHANGES.get(type(place.node))
        if change is not None and change(place, variables):
            is_changed = True
    return _define_names(tree, scopes) or is_changed


def _define_names(tree: ast.Module, scopes: Scopes) -> bool:
    """Sets the built-in functions of Python 2 that a module reads, neither binds itself nor expects to be missing."""
    read = [place for place in scopes.places if isinstance(place.node, ast.Name) and place.node.id in NAMES]
    missing = {place.node.id for place in read if scopes.owner_of(place.node.id, place.scope) is None}
    missing -= {place.node.id for place in read if expects(place.caught, "NameError")} | set(scopes.module.bindings)
    at = 0
    while at < len(tree.body) and _must_be_first(tree.body[at]):
        at += 1
    where = tree.body[0] if tree.body else tree
    tree.body[at:at] = [
        node_at(ast.Assign([node_at(ast.Name(name, ast.Store()), where)], node_at(ast.Subscript(
            node_at(ast.Name(_NAMES, ast.Load()), where), node_at(ast.Constant(name), where), ast.Load()), where)),
            where) for name in sorted(missing)]
    return bool(missing)


def _must_be_first(statement: ast.stmt) -> bool:
    """Returns whether it is a text, such as the module's, or an import from __future__."""
    return (isinstance(statement, ast.ImportFrom) and statement.module == "__future__") or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def _change_import(place: PlacedNode, _: _Variables) -> bool:
    """Imports a module of Python 2 from where ps_train has it, unless the code expects that it is missing."""
    if expects(place.caught, "ImportError", "ModuleNotFoundError"):
        return False
    return python2_library.change_import(place.node, python2_library.MODULES)


def _change_call(place: PlacedNode, variables: _Variables) -> bool:
    node = place.node
    function = node.func
    if isinstance(function, ast.Attribute) and not _is_super(function.value) and _is_old_method(place):
        node.func = call_node(_METHOD, function, function.value, node_at(ast.Constant(function.attr), function))
        return True
    if isinstance(function, ast.Name) and function.id == "sorted" and variables.is_built_in("sorted", place.scope):
        return python2_calls.change_sorted(node)
    expected = {"unicode": ("NameError",), "str": ("NameError", "TypeError")}.get(_leaf(function), ())
    if isinstance(function, ast.Name) and expected and not expects(place.caught, *expected) and (
            variables.is_built_in(function.id, place.scope)):
        return python2_calls.change_unicode(node)
    if not _takes_lists(function):
        return False
    kinds = ("lazy",) if _leaf(function) == "len" else ("lazy", "view")
    before = list(node.args)
    node.args = [_list_of(argument, *kinds, *(("range",) if _leaf(function) == "shuffle" else ()))
                 for argument in node.args]
    return any(old is not new for old, new in zip(before, node.args))


def _is_old_method(place: PlacedNode) -> bool:
    node: Any = place.node
    name = node.func.attr
    if name in python2_calls.METHODS:
        return python2_calls.may_change(node)
    if name == "decode" and expects(place.caught, "AttributeError"):  # which says that a value is text
        return False
    return name in _METHODS and not (name == "next" and (node.args or node.keywords))


def _change_statement(place: PlacedNode, variables: _Variables) -> bool:
    return variables.is_built_in("print", place.scope) and python2_calls.change_print(place.node)


def _change_class(place: PlacedNode, _: _Variables) -> bool:
    return python2_calls.change_class(place.node)


def _change_attribute(place: PlacedNode, variables: _Variables) -> bool:
    node = place.node
    is_message = node.attr == "message" and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name) and (
        variables.is_error(node.value.id, place.scope))
    if is_message:
        python2_calls.change_message(node)
    return is_message


def _change_subscript(place: PlacedNode, _: _Variables) -> bool:
    node, before = place.node, place.node.value
    node.value = _list_of(before, "lazy", "view")
    return node.value is not before


def _change_sum(place: PlacedNode, _: _Variables) -> bool:
    node = place.node
    if not isinstance(node.op, ast.Add):
        return False
    before = node.left, node.right
    node.left, node.right = (_list_of(part, "lazy", "view", "range") for part in before)
    return (node.left, node.right) != before


def _change_assignment(place: PlacedNode, variables: _Variables) -> bool:
    node, before = place.node, place.node.value
    if any(variables.is_list(target, place.scope, _kind(before)) for target in node.targets):
        node.value = _list_of(before, "lazy", "view", "range")
    return node.value is not before


def _change_comparison(place: PlacedNode, _: _Variables) -> bool:
    node = place.node
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)) or not isinstance(
            node.comparators[0], ast.List) or not all(
            isinstance(item, ast.Constant) for item in node.comparators[0].elts):
        return False
    shape = node_at(ast.Tuple([node_at(ast.Constant(len(node.comparators[0].elts)), node)], ast.Load()), node)
    node.left = call_node(_COMPARED, node.left, node.left, shape)
    return True


_CHANGES: dict[type, Callable[[PlacedNode, Any], bool]] = {
    ast.Call: _change_call, ast.Subscript: _change_subscript, ast.BinOp: _change_sum, ast.Assign: _change_assignment,
    ast.Import: _change_import, ast.ImportFrom: _change_import, ast.Expr: _change_statement,
    ast.ClassDef: _change_class, ast.Attribute: _change_attribute, ast.Compare: _change_comparison,
}


class _Variables:
    """How a module uses its variables: which of them must be lists."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._uses: dict[tuple[Scope, str], set[str]] = {}
        self._kinds: dict[int, str | None] = {}  # id of a node that binds a variable -> what is assigned to it
        self._set: dict[tuple[Scope, str], list[ast.AST]] = {}  # attribute -> the nodes that set it in its class
        for place in scopes.places:
            self._note_value(place.node)
            is_set = isinstance(place.node, ast.Attribute) and not isinstance(place.node.ctx, ast.Load)
            if is_set and (key := self._key(place.node, place.scope)) is not None:
                self._set.setdefault(key, []).append(place.node)
            for use, part in _uses_in(place.node):
                if (key := self._key(part, place.scope)) is not None:
                    self._uses.setdefault(key, set()).add(use)

    def _key(self, node: ast.AST, scope: Scope | None) -> tuple[Scope, str] | None:
        """Returns the scope and the name of a variable, or the class and "self.name" of an attribute of an object."""
        if isinstance(node, ast.Name):
            owner = self._scopes.owner_of(node.id, scope)
            return None if owner is None else (owner, node.id)
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return None if scope is None else (scope, f"self.{node.attr}")

    def _note_value(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            self._kinds.update((id(target), _kind(node.value)) for target in node.targets)
        elif isinstance(node, ast.AugAssign) and _is_written_list(node.value):
            self._kinds[id(node.target)] = "addition"

    def is_built_in(self, name: str, scope: Scope) -> bool:
        """Returns whether a name is not one of the module's own."""
        return self._scopes.owner_of(name, scope) is None

    def is_error(self, name: str, scope: Scope) -> bool:
        """Returns whether an `except` binds a variable."""
        owner = self._scopes.owner_of(name, scope)
        return owner is not None and any(isinstance(node, ast.ExceptHandler) for node in owner.bindings[name])

    def is_list(self, target: ast.AST, scope: Scope, kind: str | None) -> bool:
        """Returns whether a variable, or an attribute, that is assigned something of a kind must be a list."""
        key = None if kind is None else self._key(target, scope)
        if key is None:
            return False
        uses = self._uses.get(key, set())
        nodes = self._set.get(key) or key[0].bindings.get(key[1], [])
        kinds = [found for found in (self._kinds.get(id(node)) for node in nodes) if found != "addition"]
        if kind == "range":
            return "changed" in uses
        if kind == "view":
            return bool(uses & {"changed", "indexed"}) and set(kinds) == {"view"}
        return bool(uses & {"changed", "indexed", "measured"}) and len(kinds) == 1 and "advanced" not in uses


def _uses_in(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Returns what a node does with the values in it."""
    if isinstance(node, ast.Subscript):
        return [("indexed" if isinstance(node.ctx, ast.Load) else "changed", node.value)]
    if isinstance(node, ast.Attribute):
        return [("changed" if node.attr in _CHANGING else "advanced" if node.attr in ("next", "__next__") else "read",
                 node.value)]
    if isinstance(node, ast.Call):
        use = {"len": "measured", "next": "advanced", "shuffle": "changed"}.get(_leaf(node.func), "read")
        return [(use, argument) for argument in node.args]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [("changed", node.left), ("changed", node.right)]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _is_written_list(node.value):
        return [("changed", node.target)]
    return []


def _is_written_list(value: ast.expr) -> bool:
    """Returns whether an expression is sure to be a list: adding an array to a range makes an array."""
    return isinstance(value, (ast.List, ast.ListComp)) or _leaf(getattr(value, "func", value)) == "list"


def _takes_lists(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in ("len", "shuffle")
    if _leaf(function) in _TAKE_ITERATORS:
        return False
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _TAKE_LISTS


def _leaf(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _is_super(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"


def _kind(value: ast.expr) -> str | None:
    """Returns what a call makes that was a list in Python 2; None for anything else."""
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Name):
        return "lazy" if value.func.id in _LAZY else "range" if value.func.id == "range" else None
    return "view" if _leaf(value.func) in _VIEWS and not value.args and not value.keywords else None


def _list_of(value: ast.expr, *kinds: str) -> ast.expr:
    """Returns the expression of a list, if the value is a call that made one in Python 2, of one of these kinds."""
    return call_node(_LISTED, value, value) if _kind(value) in kinds else value
