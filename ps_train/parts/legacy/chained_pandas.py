"""Changes of a column by way of the column, which have no effect since pandas 3: each column is a copy.

    frame["age"].fillna(0, inplace=True)    the column that the method returns becomes that of the frame
    frame.age[frame.age > 99] = 99          so does the column with the new values
    frame["age"].loc[5] += 1                the same
    self.frame.age[5] = 1                   the same, as for tables["x"].age and load().age

In a module that names pandas, they are calls of the functions below. What is no column of a frame is changed as it is
written, and so is all under a pandas whose columns are no copies.
"""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Any

from ps_train.parts.legacy.one_number import number_of
from ps_train.parts.legacy.pandas_advice import columns_are_copies
from ps_train.parts.legacy.python2_calls import call_node, node_at
from ps_train.parts.legacy.slice_lists import indexed

# What the changed code uses; it is among the built-ins, where every module finds it.
_CHANGED, _SET, _PLACE = "__ps_train_column_changed__", "__ps_train_column_set__", "__ps_train_column_place__"
_SLICE = "__ps_train_slice__"  # a script may have a variable of the plain name
_VARIABLE = "__ps_train_part_{}__"
_OWNERS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)  # what may be a frame
_ACCESSORS = ("loc", "iloc", "at", "iat")
# Methods that return a column with the same rows.
_METHODS = ("fillna", "replace", "clip", "where", "mask", "interpolate", "ffill", "bfill", "update")


def may_have_chains(text: str) -> bool:
    """Returns whether a text may have something that `change_chains` changes."""
    return "pandas" in text


def change_chains(tree: ast.Module) -> bool:
    """Changes the statements of a module; returns whether there were any."""
    changes = _Chains()
    changes.visit(tree)
    return changes.is_changed


def install_chains() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _CHANGED, change_column)
    setattr(builtins, _SET, set_in_column)
    setattr(builtins, _PLACE, ColumnPlace)
    setattr(builtins, _SLICE, slice)


def change_column(owner: Any, key: Any, is_attribute: bool, method: str, *args: Any, **kwargs: Any) -> None:
    """Calls a method that changes `owner[key]`, or the attribute, in place; a column of a frame is set again."""
    part = _part_of(owner, key, is_attribute)
    if not _is_column(owner, key, part):
        getattr(part, method)(*args, **kwargs)
    elif kwargs.pop("inplace", False):
        owner[key] = getattr(part, method)(*args, **kwargs)
    else:
        column = part.copy()
        getattr(column, method)(*args, **kwargs)
        owner[key] = column


class ColumnPlace:
    """What `owner[key][index]` names, or the same of an attribute, or of an accessor such as `owner[key].loc`."""

    def __init__(self, owner: Any, key: Any, is_attribute: bool, index: Any, accessor: str = "") -> None:
        """Takes the values of the expressions; `accessor` is "" for none."""
        self._owner, self._key, self._index, self._accessor = owner, key, index, accessor
        self._part = _part_of(owner, key, is_attribute)

    def item(self) -> Any:
        """Returns the value that is there."""
        return self._holder(self._part)[self._index]

    def set(self, value: Any) -> None:
        """Sets it; a column of a frame is set again."""
        if not _is_column(self._owner, self._key, self._part):
            self._set_in(self._part, value)
            return
        column = self._part.copy()
        self._set_in(column, value)
        self._owner[self._key] = column

    def _holder(self, part: Any) -> Any:
        return indexed(getattr(part, self._accessor) if self._accessor else part)

    def _set_in(self, part: Any, value: Any) -> None:
        try:
            self._holder(part)[self._index] = value
        except (TypeError, ValueError):
            number = number_of(value)  # one_number.py does not find such a statement any more
            if number is value:
                raise
            self._holder(part)[self._index] = number


def set_in_column(value: Any, *place: Any) -> None:
    """Sets the value of a `ColumnPlace`, of which this takes the arguments."""
    ColumnPlace(*place).set(value)


def _part_of(owner: Any, key: Any, is_attribute: bool) -> Any:
    # slice_lists.py finds no index any more where this module has changed the statement.
    return getattr(owner, key) if is_attribute else indexed(owner)[key]


def _is_column(owner: Any, key: Any, part: Any) -> bool:
    """Returns whether a part is a column of a frame, and a copy."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(owner, pandas.DataFrame) and isinstance(part, pandas.Series) and (
        key in owner.columns and columns_are_copies(pandas))


class _Chains(ast.NodeTransformer):
    """Exchanges the statements."""

    def __init__(self) -> None:
        self.is_changed = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A call of `update`, or with inplace=True."""
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS):
            return node
        owner = _owner_of(call.func.value)
        is_update = call.func.attr == "update" and len(call.args) == 1 and not call.keywords
        if owner is None or not (is_update or any(_is_in_place(keyword) for keyword in call.keywords)):
            return node
        method = node_at(ast.Constant(call.func.attr), call)
        node.value = call_node(_CHANGED, call, *owner, method, *call.args)
        node.value.keywords = call.keywords
        self.is_changed = True
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """A value in a part of a part; one of several values, too."""
        place = _place_of(node.targets[0])
        if len(node.targets) == 1 and place is not None:
            self.is_changed = True
            # Python evaluates the value first.
            return node_at(ast.Expr(call_node(_SET, node, node.value, *place)), node)
        if not _can_be_set_last(node):
            return node
        parts = _Parts()
        node.targets = [parts.visit(target) for target in node.targets]
        self.is_changed |= bool(parts.places)
        values = {name: node_at(ast.Name(name, ast.Load()), node) for name in parts.places}
        return [node, *(node_at(ast.Expr(call_node(_SET, node, values[name], *arguments)), node)
                        for name, arguments in parts.places.items())]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """The same with `+=` and the like.

            place = ColumnPlace(...)
            item = place.item()
            item += value
            place.set(item)
        """
        arguments = _place_of(node.target)
        if arguments is None:
            return node
        self.is_changed = True
        place, item = _VARIABLE.format("place"), _VARIABLE.format("item")

        def call(method: str, *values: ast.expr) -> ast.expr:
            function = ast.Attribute(ast.Name(place, ast.Load()), method, ast.Load())
            return ast.Call(function, list(values), [])

        node.target = ast.Name(item, ast.Store())
        statements = [
            ast.Assign([ast.Name(place, ast.Store())], call_node(_PLACE, node, *arguments)),
            ast.Assign([ast.Name(item, ast.Store())], call("item")), node,
            ast.Expr(call("set", ast.Name(item, ast.Load())))]
        return [ast.fix_missing_locations(node_at(statement, node)) for statement in statements]


class _Parts(ast.NodeTransformer):
    """Takes the parts of columns out of a target, and leaves variables there."""

    def __init__(self) -> None:
        self.places: dict[str, list[ast.expr]] = {}  # variable -> the arguments of its `ColumnPlace`

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        place = _place_of(node)
        if place is None:
            return node
        name = _VARIABLE.format(len(self.places))
        self.places[name] = place
        return node_at(ast.Name(name, ast.Store()), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return node  # what it is an attribute of is read


def _can_be_set_last(node: ast.Assign) -> bool:
    """Returns whether the places may be set after the other targets of an assignment: they do not need these."""
    leaves = [leaf for target in node.targets for leaf in _leaves_of(target)]
    places = [place for leaf in leaves if (place := _place_of(leaf)) is not None]
    others = [leaf for leaf in leaves if _place_of(leaf) is None]
    read = {name.id for place in places for part in place for name in ast.walk(part) if isinstance(name, ast.Name)}
    return all(isinstance(leaf, ast.Name) and leaf.id not in read for leaf in others)


def _leaves_of(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [leaf for element in target.elts for leaf in _leaves_of(element)]
    return _leaves_of(target.value) if isinstance(target, ast.Starred) else [target]


def _is_in_place(keyword: ast.keyword) -> bool:
    return keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True


def _place_of(target: ast.expr) -> list[ast.expr] | None:
    """Returns the arguments of a `ColumnPlace` for `a[key][index]`, `a.key[index]` `a[key].loc[index]`; else None."""
    if not isinstance(target, ast.Subscript):
        return None
    part, accessor = target.value, ""
    if isinstance(part, ast.Attribute) and part.attr in _ACCESSORS and _owner_of(part.value) is not None:
        part, accessor = part.value, part.attr
    owner = _owner_of(part)
    if owner is None:
        return None
    return [*owner, _as_value(target.slice), node_at(ast.Constant(accessor), target)]


def _owner_of(part: ast.expr) -> list[ast.expr] | None:
    """Returns, for `a[key]` and `a.key`, the expressions of a, of the key, and of whether it is an attribute."""
    if isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Slice, ast.Tuple)):
        return [part.value, part.slice, node_at(ast.Constant(False), part)]
    if isinstance(part, ast.Attribute) and isinstance(part.value, _OWNERS) and not (
            _is_self(part.value) or (part.attr.startswith("__") and not part.attr.endswith("__"))):
        return [part.value, node_at(ast.Constant(part.attr), part), node_at(ast.Constant(True), part)]
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _as_value(index: ast.expr) -> ast.expr:
    """Returns an expression for what stands in brackets."""
    if isinstance(index, ast.Slice):
        none = node_at(ast.Constant(None), index)
        return call_node(_SLICE, index, *(part or none for part in (index.lower, index.upper, index.step)))
    if isinstance(index, ast.Tuple):
        index.elts = [_as_value(part) for part in index.elts]
    return index
