"""`type(x) is tf.Tensor`, which is False today: tensors of a graph are of a subclass, and variables of another class.

    type(x) is tf.Tensor    type(x) in (list, tf.Tensor)    x.__class__ == tf.Variable    type(x).__name__ == "Tensor"

A comparison that names one of today's classes, such as `ResourceVariable`, stays as it is.

Until TensorFlow 1.10, `tf.Variable(...)` was of the type `tf.Variable`; since then, `isinstance` only tells it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection
from typing import Any

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_TYPE, _NAME = "__ps_train_type__", "__ps_train_type_name__"
_KINDS = ("Tensor", "Variable")
# Class of today -> what it was.
_WAS = {"SymbolicTensor": "Tensor", "_UnreadVariable": "Tensor",  # the second is what `variable.assign(value)` returns
        "ResourceVariable": "Variable", "RefVariable": "Variable"}
_TODAY = (*_WAS, "EagerTensor", "BaseResourceVariable", "VariableV1", "KerasTensor")


def may_check_types(text: str) -> bool:
    """Returns whether a text may have something that `change_type_checks` changes."""
    return ("type(" in text or "__class__" in text) and any(kind in text for kind in _KINDS)


def change_type_checks(tree: ast.Module) -> bool:
    """Changes the comparisons of a module with the type of a tensor or a variable; returns whether it has any."""
    is_changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _names(node, _KINDS) and not _names(node, _TODAY):
            changes = _Types()
            changes.visit(node)
            is_changed |= changes.is_changed
    return is_changed


def _names(compared: ast.Compare, classes: Collection[str]) -> bool:
    """Returns whether a comparison has the name of one of the classes, as a name or as text."""
    names = (getattr(node, field, None) for node in ast.walk(compared) for field in ("attr", "id", "value"))
    return any(isinstance(name, str) and name in classes for name in names)


class _Types(ast.NodeTransformer):
    def __init__(self) -> None:
        self.is_changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        return self._changed(node, node.args[0]) if is_type and len(node.args) == 1 else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "__name__" and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == _TYPE:
            return call_node(_NAME, node, node.value.args[0])
        return self._changed(node, node.value) if node.attr == "__class__" else node

    def _changed(self, node: ast.expr, value: ast.expr) -> ast.expr:
        self.is_changed = True
        return call_node(_TYPE, node, value)


def install_types() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _TYPE, type_of)
    setattr(builtins, _NAME, name_of)


def type_of(value: Any) -> type:
    """Returns the type of a value; `tf.Tensor` for a tensor of a graph, and `tf.Variable` for a variable."""
    kind = type(value)
    if kind.__name__ in _WAS and kind.__module__.startswith("tensorflow."):
        import tensorflow.compat.v1 as tf1  # noqa: PLC0415 (it is loaded if there is such a value)

        return getattr(tf1, _WAS[kind.__name__])
    return kind


def name_of(value: Any) -> str:
    """Returns the name of the type of a value, as `type_of` has it."""
    name = type(value).__name__
    return _WAS[name] if type_of(value) is not type(value) else name
