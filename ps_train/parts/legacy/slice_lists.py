"""Lists of slices as the index of an array, which numpy took for a tuple until 1.22 and refuses today.

    crop = [slice(2, 5), slice(None)]    image[crop]    image[tuple(crop)]

Only a list that has a slice, None or an ellipsis becomes a tuple: any other list means the same today.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_INDEX = "__ps_train_index__"
_SLICES = re.compile(r"(?<![\w.])slice\(|\bs_\[|\bindex_exp\[")  # no `tf.slice(`
_PARTS = (slice, type(None), type(...))


def may_have_lists(text: str) -> bool:
    """Returns whether a text may have something that `change_lists` changes: if it makes slices."""
    return bool(_SLICES.search(text))


def change_lists(tree: ast.Module) -> bool:
    """Changes the indices of a module that may be lists; returns whether there were any."""
    indices = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and _may_be_list(node.slice)]
    for node in indices:
        node.slice = call_node(_INDEX, node.slice, node.slice)
    return bool(indices)


def _may_be_list(index: ast.expr) -> bool:
    if isinstance(index, ast.BinOp):
        return isinstance(index.op, (ast.Add, ast.Mult)) and (_may_be_list(index.left) or _may_be_list(index.right))
    return isinstance(index, (ast.Name, ast.Attribute, ast.Subscript, ast.List, ast.ListComp)) or (
        isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "list")


def install_lists() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _INDEX, index_of)


def index_of(index: Any) -> Any:
    """Returns the tuple of a list with slices; any other index as it is."""
    return tuple(index) if type(index) is list and any(isinstance(part, _PARTS) for part in index) else index
