"""StopIteration that leaves a generator: until Python 3.6 it ended the generator, since then it is a RuntimeError.

    def batches(lines):
        while True:
            yield next(lines)       # or: raise StopIteration

Generator expressions stay as they are. So do context managers, which must not hide what leaves the block of their
`with`: functions that are decorated as such, or that yield by statements outside loops only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ps_train.parts.legacy.scopes import Scopes

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def change_generators(tree: ast.Module) -> bool:
    """Lets the generator functions of a module end at a StopIteration; returns whether there were any."""
    scopes = Scopes(tree)
    yielding = {scope for node, scope, _ in scopes.places if isinstance(node, (ast.Yield, ast.YieldFrom))}
    inner = {id(node): scope for node, scope, _ in scopes.places}
    managers = _context_managers(tree)
    found = [node for node, _, _ in scopes.places if isinstance(node, ast.FunctionDef)
             and inner[id(node.body[0])] in yielding and not _is_context(node, managers)]
    for function in found:
        start = 1 if ast.get_docstring(function, clean=False) is not None else 0
        _end_silently(function, start)
    return bool(found)


def _context_managers(tree: ast.Module) -> set[str]:
    """Returns the module's other names of `contextmanager`, and the functions that it is called with."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname and "contextmanager" in alias.name}
        elif isinstance(node, ast.Assign) and "contextmanager" in ast.unparse(node.value):
            names |= {name.id for part in (*node.targets, *getattr(node.value, "args", ()))
                      for name in ast.walk(part) if isinstance(name, ast.Name)}
    return names


def _is_context(function: ast.FunctionDef, managers: set[str]) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    if function.name in managers or any("contextmanager" in name or name in managers for name in decorators):
        return True
    return not _ends_or_repeats(function.body)


def _ends_or_repeats(nodes: Iterable[ast.AST]) -> bool:
    """Returns whether there is a loop with a `yield`, one that is a part of a statement, or `raise StopIteration`."""
    for node in nodes:
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, (ast.For, ast.While)) and _yields(inner):
            return True
        if isinstance(node, (ast.Yield, ast.YieldFrom)) or (
                isinstance(node, ast.Raise) and node.exc and "StopIteration" in ast.unparse(node.exc)):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
            inner = list(ast.iter_child_nodes(node.value))
        if _ends_or_repeats(inner):
            return True
    return False


def _yields(nodes: Iterable[ast.AST]) -> bool:
    own = [node for node in nodes if not isinstance(node, _SCOPES)]
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) or _yields(ast.iter_child_nodes(node)) for node in own)


def _end_silently(function: ast.FunctionDef, start: int) -> None:
    body = function.body[start:]
    handler = ast.ExceptHandler(ast.Name("StopIteration", ast.Load()), None, [ast.Return(None)])
    guarded = ast.copy_location(ast.Try(body, [handler], [], []), body[0])
    function.body[start:] = [ast.fix_missing_locations(guarded)]
