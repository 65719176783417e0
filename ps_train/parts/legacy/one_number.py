"""Arrays of one number where Python wants the number, as all of them were before numpy 2.4.

    int(np.random.choice(9, 1))   float(loss)   math.exp(loss)   "%d of %.2f" % (step, loss)   rewards[step] = reward

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
_VALUE = "__ps_train_value__"
_ASSIGNED = re.compile(r"\]\s*=[^=]")
_FORMAT = re.compile(r"%(?P<key>\([^)]*\))?[-+ #0]*(?P<width>\*|\d*)(\.(\*|\d*))?[hlL]?(?P<kind>[a-zA-Z%])")
_NUMERIC = "diouxXeEfFgG"


def may_take_number(text: str) -> bool:
    """Returns whether a text may have something that `change_numbers` changes: if numpy refuses such arrays."""
    return IS_REFUSED and ("int(" in text or "float(" in text or "math." in text or "%" in text
                           or bool(_ASSIGNED.search(text)))


def _is_refused() -> bool:
    try:
        float(np.ones(1))
    except TypeError:
        return True
    return False


IS_REFUSED = _is_refused()


def change_numbers(tree: ast.Module) -> bool:
    """Changes the expressions of a module; returns whether there were any."""
    items = _Items()
    items.visit(tree)
    is_changed = items.is_changed
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _takes_number(node.func):
            is_plain = len(node.args) == 1 and not node.keywords
            if is_plain and not isinstance(node.args[0], (ast.Constant, ast.Starred)):
                node.args = [call_node(_NUMBER, node.args[0], node.args[0])]
                is_changed = True
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _text_of(node.left) is not None:
            is_changed |= _change_format(node, _FORMAT.finditer(node.left.value))  # type: ignore[attr-defined]
    return is_changed


def _takes_number(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):  # math.exp, np.float
        return isinstance(function.value, ast.Name) and (
            function.value.id == "math" or (function.value.id in ("np", "numpy") and function.attr in _CONVERSIONS))
    return isinstance(function, ast.Name) and function.id in _CONVERSIONS


class _Items(ast.NodeTransformer):
    """Lets `array[place] = value` set the number of an array of one number, where that of the array is refused.

        value_ = VALUE
        try: ARRAY[PLACE] = value_
        except (TypeError, ValueError): ARRAY[PLACE] = number_of(value_)
    """

    def __init__(self) -> None:
        self.is_changed = False

    def visit_Assign(self, node: ast.Assign) -> Any:
        targets = [target for target in node.targets if isinstance(target, ast.Subscript)]
        # What would be called a second time stays as it is, and so does a value that is no array.
        if not targets or isinstance(node.value, (ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.JoinedStr)) or any(
                isinstance(inner, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for target in targets
                for inner in ast.walk(target)):
            return node
        self.is_changed = True
        statements: list[ast.stmt] = [ast.Assign([ast.Name(_VALUE, ast.Store())], node.value)]
        for target in node.targets:
            plain = ast.Assign([target], ast.Name(_VALUE, ast.Load()))
            statements.append(_with_number(plain, target) if target in targets else plain)
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]


def _with_number(plain: ast.Assign, target: ast.expr) -> ast.Try:
    number = ast.Call(ast.Name(_NUMBER, ast.Load()), [ast.Name(_VALUE, ast.Load())], [])
    errors = ast.Tuple([ast.Name("TypeError", ast.Load()), ast.Name("ValueError", ast.Load())], ast.Load())
    handler = ast.ExceptHandler(errors, None, [ast.Assign([target], number)])
    return ast.Try([plain], [handler], [], [])


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


def install_number() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _NUMBER, number_of)


def number_of(value: Any) -> Any:
    """Returns the number of an array of one number with axes; anything else as it is."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim and value.size == 1 else value
