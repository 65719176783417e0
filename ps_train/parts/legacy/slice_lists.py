"""Lists of slices as the index of an array, which numpy took for a tuple until 1.22 and refuses today.

    crop = [slice(2, 5), slice(None)]    image[crop]    image[tuple(crop)]

Only a list of at most 32 items that has a slice, None or an ellipsis becomes a tuple, and only for an array of numpy:
any other list means the same today.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

import numpy as np

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_OWNER = "__ps_train_indexed__"
_SLICES = re.compile(r"(?<![\w.])slice\(|\bs_\[|\bindex_exp\[")  # no `tf.slice(`
_MOST = 32  # numpy's largest number of dimensions then
_PARTS = (slice, type(None), type(...))


def may_have_lists(text: str) -> bool:
    """Returns whether a text may have something that `change_lists` changes: if it makes slices."""
    return bool(_SLICES.search(text))


def change_lists(tree: ast.Module) -> bool:
    """Changes what a module indexes by something that may be a list; returns whether there were any."""
    indices = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and _may_be_list(node.slice)]
    for node in indices:
        node.value = call_node(_OWNER, node.value, node.value)
    return bool(indices)


def _may_be_list(index: ast.expr) -> bool:
    if isinstance(index, ast.BinOp):
        return isinstance(index.op, (ast.Add, ast.Mult)) and (_may_be_list(index.left) or _may_be_list(index.right))
    return isinstance(index, (ast.Name, ast.Attribute, ast.Subscript, ast.List, ast.ListComp)) or (
        isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "list")


def install_lists() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _OWNER, indexed)


class _Array:
    """An array whose index may be a list of slices."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Any:
        return self._array[index_of(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index_of(index)] = value


def indexed(owner: Any) -> Any:
    """Returns what takes the index of an object: for other objects than arrays, the object itself."""
    return _Array(owner) if isinstance(owner, np.ndarray) else owner


def index_of(index: Any) -> Any:
    """Returns the tuple of a list with slices; any other index as it is."""
    is_list = type(index) is list and len(index) <= _MOST and any(isinstance(part, _PARTS) for part in index)
    return tuple(index) if is_list else index
