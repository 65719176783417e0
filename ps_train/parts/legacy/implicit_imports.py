"""Imports that Python 2 looked up in the module's own package first, in code that Python 3 can read otherwise.

    in preprocessing/__init__.py, beside preprocessor.py:    from preprocessor import resize

Where Python 3 finds no such module, the one of the package is taken. Only imports of what is beside the file change.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Sequence

from ps_train.parts.legacy import scopes
from ps_train.parts.legacy.python2_calls import node_at


def change_imports(tree: ast.Module, path: str) -> bool:
    """Changes the imports of a module of a package; returns whether anything has changed."""
    if any(isinstance(line, ast.ImportFrom) and line.module == "__future__" and "absolute_import" in _names(line)
           for line in tree.body):
        return False
    change = _Imports(pathlib.Path(path))
    change.visit(tree)
    return change.is_changed


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names]


class _Imports(ast.NodeTransformer):
    def __init__(self, path: pathlib.Path) -> None:
        self._folder, self._own_name = path.parent, path.stem
        self.is_changed = False

    def visit_Try(self, node: ast.Try) -> ast.AST:
        # What may be missing, and is caught, stays so: an optional package may have a namesake beside the file.
        if scopes.expects(scopes.caught_by(node), "ImportError", "ModuleNotFoundError"):
            for part in (*node.handlers, *node.orelse, *node.finalbody):
                self.visit(part)
            return node
        return self.generic_visit(node)

    def _is_beside(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top == self._own_name:
            return False
        return (self._folder / f"{top}.py").is_file() or (self._folder / top / "__init__.py").is_file()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if node.level or not node.module or not self._is_beside(node.module):
            return node
        return self._tried(node, [ast.ImportFrom(node.module, node.names, 1)])

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        beside = [name for name in _names(node) if "." not in name and self._is_beside(name)]
        if not beside:
            return node
        return self._tried(node, [ast.ImportFrom(None, [alias], 1) if alias.name in beside else ast.Import([alias])
                                  for alias in node.names])

    def _tried(self, node: ast.stmt, instead: Sequence[ast.stmt]) -> ast.stmt:
        self.is_changed = True
        handler = ast.ExceptHandler(node_at(ast.Name("ModuleNotFoundError", ast.Load()), node), None,
                                    [node_at(each, node) for each in instead])
        return node_at(ast.Try([node], [node_at(handler, node)], [], []), node)
