"""Text within protocol buffers, as code of Python 2 expects it: it searches and splits it with its own strings.

    article = example.features.feature["article"].bytes_list.value[0]

A value of `bytes_list` is bytes in Python 3. For a converted file, one that holds nothing but text is a `Text`, as what
sessions return is (session_strings.py); and a new `BytesList` takes text.
"""

from __future__ import annotations

import ast
import builtins
import functools
from typing import Any

# Among the built-ins, where the changed code finds them.
_TEXT, _TEXTS, _BYTES = "__ps_train_text__", "__ps_train_texts__", "__ps_train_bytes__"


def install_texts() -> None:
    """Makes what the changed code calls available."""
    setattr(builtins, _TEXT, _text)
    setattr(builtins, _TEXTS, _texts)
    setattr(builtins, _BYTES, _bytes)


def change_bytes_lists(tree: ast.Module) -> ast.Module:
    """Lets code read text where it takes an item of a `bytes_list` or goes through all of them, and write it there."""
    return ast.fix_missing_locations(_BytesLists().visit(tree))


class _BytesLists(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_read = _is_bytes_list(node.value) and isinstance(node.ctx, ast.Load)
        return _call(_TEXTS if isinstance(node.slice, ast.Slice) else _TEXT, node) if is_read else node

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._changed_loop(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return self._changed_loop(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name == "BytesList":
            for keyword in node.keywords:
                keyword.value = _call(_BYTES, keyword.value) if keyword.arg == "value" else keyword.value
        elif name in ("append", "extend") and isinstance(function, ast.Attribute) and _is_bytes_list(function.value):
            node.args = [_call(_BYTES, argument) for argument in node.args]
        return node

    def _changed_loop(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        if _is_bytes_list(node.iter):
            node.iter = _call(_TEXTS, node.iter)
        return node


def _is_bytes_list(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "value" and isinstance(node.value, ast.Attribute)
            and node.value.attr == "bytes_list")


def _call(name: str, node: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [node], []), node)


def _text(value: Any) -> Any:
    return _text_of_bytes()(value)


def _texts(values: Any) -> list[Any]:
    return [*map(_text_of_bytes(), values)]


def _bytes(value: Any) -> Any:
    """Returns the bytes of text, also of each text in a list."""
    if isinstance(value, str):
        return value.encode()
    return [*map(_bytes, value)] if isinstance(value, (list, tuple)) else value


@functools.cache
def _text_of_bytes() -> Any:
    from ps_train.parts.legacy.session_strings import text_of_bytes  # noqa: PLC0415 (it imports TensorFlow)

    return text_of_bytes
