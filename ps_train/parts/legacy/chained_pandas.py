"""Changes of a column by way of the column, which have no effect since pandas 3: each column is a copy.

    frame["age"].fillna(0, inplace=True)    the column that the method returns becomes that of the frame
    frame.age[frame.age > 99] = 99          so does the column with the new values

In a module that names pandas, they are calls of the functions below. What is no column of a frame is changed as it is
written.
"""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Any

from ps_train.parts.legacy.python2_calls import call_node, node_at

# What the changed code uses; it is among the built-ins, where every module finds it.
_CHANGED, _SET = "__ps_train_column_changed__", "__ps_train_column_set__"
# Methods that return a column with the same rows.
_METHODS = ("fillna", "replace", "clip", "where", "mask", "interpolate", "ffill", "bfill")


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


def change_column(owner: Any, key: Any, is_attribute: bool, method: str, *args: Any, **kwargs: Any) -> None:
    """Calls a method with inplace=True of `owner[key]`, or of the attribute; a column of a frame is set again."""
    part = getattr(owner, key) if is_attribute else owner[key]
    if not _is_column(owner, key, part):
        getattr(part, method)(*args, **kwargs)
        return
    del kwargs["inplace"]
    owner[key] = getattr(part, method)(*args, **kwargs)


def set_in_column(value: Any, owner: Any, key: Any, is_attribute: bool, index: Any) -> None:
    """Does `owner[key][index] = value`, or the same of an attribute; a column of a frame is set again."""
    part = getattr(owner, key) if is_attribute else owner[key]
    if not _is_column(owner, key, part):
        part[index] = value
        return
    column = part.copy()
    column[index] = value
    owner[key] = column


def _is_column(owner: Any, key: Any, part: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(owner, pandas.DataFrame) and isinstance(part, pandas.Series) and (
        key in owner.columns)


class _Chains(ast.NodeTransformer):
    """Exchanges the statements."""

    def __init__(self) -> None:
        self.is_changed = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A call with inplace=True."""
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS):
            return node
        owner = _owner_of(call.func.value)
        if owner is None or not any(_is_in_place(keyword) for keyword in call.keywords):
            return node
        method = node_at(ast.Constant(call.func.attr), call)
        node.value = call_node(_CHANGED, call, *owner, method, *call.args)
        node.value.keywords = call.keywords
        self.is_changed = True
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A value in a part of a part."""
        target = node.targets[0]
        owner = _owner_of(target.value) if len(node.targets) == 1 and isinstance(target, ast.Subscript) else None
        if owner is None:
            return node
        self.is_changed = True
        # Python evaluates the value first.
        return node_at(ast.Expr(call_node(_SET, node, node.value, *owner, _as_value(target.slice))), node)


def _is_in_place(keyword: ast.keyword) -> bool:
    return keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True


def _owner_of(part: ast.expr) -> list[ast.expr] | None:
    """Returns, for `a[key]` and `a.key`, the expressions of a, of the key, and of whether it is an attribute."""
    if isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Slice, ast.Tuple)):
        return [part.value, part.slice, node_at(ast.Constant(False), part)]
    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id != "self":
        return [part.value, node_at(ast.Constant(part.attr), part), node_at(ast.Constant(True), part)]
    return None


def _as_value(index: ast.expr) -> ast.expr:
    """Returns an expression for what stands in brackets."""
    if isinstance(index, ast.Slice):
        none = node_at(ast.Constant(None), index)
        return call_node("slice", index, *(part or none for part in (index.lower, index.upper, index.step)))
    if isinstance(index, ast.Tuple):
        index.elts = [_as_value(part) for part in index.elts]
    return index
