"""`type(x) is tf.Tensor`, which is False today: tensors of a graph are of a subclass, and variables of another class.

    type(x) is tf.Tensor    type(x) in (list, tf.Tensor)    x.__class__ == tf.Variable    type(x).__name__ == "Tensor"

Until TensorFlow 1.10, `tf.Variable(...)` was of the type `tf.Variable`; since then, `isinstance` only tells it.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_TYPE = "__ps_train_type__"
_KINDS = ("Tensor", "Variable")
# Class of today -> what it was.
_WAS = {"SymbolicTensor": "Tensor", "_UnreadVariable": "Tensor",  # the second is what `variable.assign(value)` returns
        "ResourceVariable": "Variable", "RefVariable": "Variable"}


def may_check_types(text: str) -> bool:
    """Returns whether a text may have something that `change_type_checks` changes."""
    return ("type(" in text or "__class__" in text) and any(kind in text for kind in _KINDS)


def change_type_checks(tree: ast.Module) -> bool:
    """Changes the comparisons of a module with the type of a tensor or a variable; returns whether it has any."""
    is_changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(_is_kind, ast.walk(node))):
            changes = _Types()
            changes.visit(node)
            is_changed |= changes.is_changed
    return is_changed


def _is_kind(node: ast.AST) -> bool:
    names = (getattr(node, "attr", None), getattr(node, "id", None), getattr(node, "value", None))
    return any(name in _KINDS for name in names if isinstance(name, str))


class _Types(ast.NodeTransformer):
    def __init__(self) -> None:
        self.is_changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        return self._changed(node, node.args[0]) if is_type and len(node.args) == 1 else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return self._changed(node, node.value) if node.attr == "__class__" else node

    def _changed(self, node: ast.expr, value: ast.expr) -> ast.expr:
        self.is_changed = True
        return call_node(_TYPE, node, value)


def install_types() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _TYPE, type_of)


def type_of(value: Any) -> type:
    """Returns the type of a value; `tf.Tensor` for a tensor of a graph, and `tf.Variable` for a variable."""
    kind = type(value)
    if kind.__name__ in _WAS and kind.__module__.startswith("tensorflow."):
        import tensorflow.compat.v1 as tf1  # noqa: PLC0415 (it is loaded if there is such a value)

        return getattr(tf1, _WAS[kind.__name__])
    return kind
