"""`global` behind the first use of its name, for which Python 2 and 3.5 only warned, and 3.6 and later refuse the file.

In a function the name is declared at the beginning; in a module, whose names are global anyway, nowhere.
"""

from __future__ import annotations

import ast
import collections

from ps_train.parts.legacy.scopes import Scope, Scopes

# Is declared where nothing else is left of a statement.
_NOTHING = "__ps_train_nothing__"


def change_late_globals(tree: ast.Module) -> bool:
    """Changes a tree in place; returns whether there were such names."""
    scopes = Scopes(tree)
    used: dict[Scope, set[str]] = collections.defaultdict(set)
    statements: dict[Scope, list[ast.Global]] = collections.defaultdict(list)
    late: dict[Scope, dict[str, None]] = {}
    for node, scope, _ in scopes.places:
        if isinstance(node, ast.Name):
            used[scope].add(node.id)
        elif isinstance(node, ast.Global):
            statements[scope].append(node)
            for name in used[scope].intersection(node.names):
                late.setdefault(scope, {})[name] = None
    for scope, names in late.items():
        for statement in statements[scope]:
            statement.names = [name for name in statement.names if name not in names] or [_NOTHING]
    inner = {id(node): scope for node, scope, _ in scopes.places}
    for node, _, _ in scopes.places:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner[id(node.body[0])] in late:
            names = sorted(late[inner[id(node.body[0])]])
            place = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body.insert(place, ast.copy_location(ast.Global(names), node.body[0]))
    return bool(late)
