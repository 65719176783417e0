"""Arrays of one number where Python wants the number, as all of them were before numpy 2.4.

    int(np.random.choice(9, 1))   float(loss)   "%d of %.2f" % (step, loss)

Only arrays with an axis and one element change; "%s" shows an array as such.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

import numpy as np

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_NUMBER = "__ps_train_number__"
_CONVERSIONS = ("int", "float")
_FORMAT = re.compile(r"%(?P<key>\([^)]*\))?[-+ #0]*(?P<width>\*|\d*)(\.(\*|\d*))?[hlL]?(?P<kind>[a-zA-Z%])")
_NUMERIC = "diouxXeEfFgG"


def may_be_in(text: str) -> bool:
    """Returns whether a text may have something that `change_numbers` changes: if numpy refuses such arrays."""
    return IS_REFUSED and ("int(" in text or "float(" in text or "%" in text)


def _is_refused() -> bool:
    try:
        float(np.ones(1))
    except TypeError:
        return True
    return False


IS_REFUSED = _is_refused()


def change_numbers(tree: ast.Module) -> bool:
    """Changes the expressions of a module; returns whether there were any."""
    is_changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS:
            is_plain = len(node.args) == 1 and not node.keywords
            if is_plain and not isinstance(node.args[0], (ast.Constant, ast.Starred)):
                node.args = [call_node(_NUMBER, node.args[0], node.args[0])]
                is_changed = True
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _text_of(node.left) is not None:
            is_changed |= _change_format(node, _FORMAT.finditer(node.left.value))  # type: ignore[attr-defined]
    return is_changed


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _change_format(node: ast.BinOp, found: Any) -> bool:
    """Changes the values that a text shows as numbers."""
    parts = [match for match in found if match["kind"] != "%"]
    if any(match["key"] or "*" in match[0] for match in parts):
        return False
    is_tuple = isinstance(node.right, ast.Tuple)
    values = node.right.elts if is_tuple else [node.right]  # type: ignore[attr-defined]
    if len(values) != len(parts) or any(isinstance(value, ast.Starred) for value in values):
        return False
    changed = [call_node(_NUMBER, value, value) if match["kind"] in _NUMERIC and not isinstance(value, ast.Constant)
               else value for match, value in zip(parts, values)]
    if is_tuple:
        node.right.elts = changed  # type: ignore[attr-defined]
    else:
        node.right = changed[0]
    return any(new is not old for new, old in zip(changed, values))


def install_changes() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _NUMBER, number_of)


def number_of(value: Any) -> Any:
    """Returns the number of an array of one number with axes; anything else as it is."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim and value.size == 1 else value
