"""StopIteration that leaves a generator: until Python 3.6 it ended the generator, since then it is a RuntimeError.

    def batches(lines):
        while True:
            yield next(lines)       # or: raise StopIteration

Generator expressions stay as they are.
"""

from __future__ import annotations

import ast

from ps_train.parts.legacy.scopes import Scopes


def change_generators(tree: ast.Module) -> bool:
    """Lets the generator functions of a module end at a StopIteration; returns whether there were any."""
    scopes = Scopes(tree)
    yielding = {scope for node, scope, _ in scopes.places if isinstance(node, (ast.Yield, ast.YieldFrom))}
    inner = {id(node): scope for node, scope, _ in scopes.places}
    found = [node for node, _, _ in scopes.places if isinstance(node, ast.FunctionDef)
             and inner[id(node.body[0])] in yielding and not _is_context(node)]
    for function in found:
        start = 1 if ast.get_docstring(function, clean=False) is not None else 0
        _end_silently(function, start)
    return bool(found)


def _is_context(function: ast.FunctionDef) -> bool:
    """Returns whether it is a context manager, which must not hide what leaves the block of its `with`."""
    return any("contextmanager" in ast.unparse(decorator) for decorator in function.decorator_list)


def _end_silently(function: ast.FunctionDef, start: int) -> None:
    body = function.body[start:]
    handler = ast.ExceptHandler(ast.Name("StopIteration", ast.Load()), None, [ast.Return(None)])
    guarded = ast.copy_location(ast.Try(body, [handler], [], []), body[0])
    function.body[start:] = [ast.fix_missing_locations(guarded)]
