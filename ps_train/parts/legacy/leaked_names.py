"""The variable of a list comprehension stays after it in Python 2: `[int(x) for x in texts]`, and then `len(x)`.

In Python 3 it belongs to the comprehension. Where a scope reads such a name, and nothing else binds it there, around
it or in the module, an assignment in the comprehension does; so the code that is changed has raised a NameError:

    [int(x) for x in texts]  -->  [int(x) for x__item in texts if [x := x__item]]

Generators, sets and dicts kept their variables in Python 2, too. The body of a class cannot have such an assignment.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def change_leaked_names(tree: ast.Module) -> bool:
    """Lets list comprehensions of a module bind what is read after them; returns whether it has changed something."""
    known = {*dir(builtins), "__file__", "__path__", *(name for node in ast.walk(tree) if isinstance(node, ast.Global)
                                                       for name in node.names)}
    return _change(tree, known)


def _change(scope: ast.AST, known: set[str]) -> bool:
    names = _Names(scope)
    if names.has_star:  # anything may be bound by it
        return False
    is_changed = False
    for comprehension, variables in names.lists:
        leaked = (variables & names.read) - names.bound - known
        if leaked and not isinstance(scope, ast.ClassDef):
            _bind(comprehension, leaked)
            is_changed = True
    # What a class binds is not seen by its methods.
    inner_known = known if isinstance(scope, ast.ClassDef) else known | names.bound
    return any([_change(inner, inner_known) for inner in names.inner]) or is_changed


def _bind(comprehension: ast.ListComp, leaked: set[str]) -> None:
    for generator in comprehension.generators:
        targets = [node for node in ast.walk(generator.target) if isinstance(node, ast.Name) and node.id in leaked]
        assigned = [ast.NamedExpr(ast.Name(node.id, ast.Store()), ast.Name(f"{node.id}__item", ast.Load()))
                    for node in targets]
        for node in targets:
            node.id = f"{node.id}__item"
        if assigned:
            condition = ast.List(assigned, ast.Load())  # it is true, whatever the values are
            generator.ifs.insert(0, ast.fix_missing_locations(ast.copy_location(condition, generator.target)))


class _Names(ast.NodeVisitor):
    """What one scope binds and reads, its list comprehensions, and the scopes in it."""

    def __init__(self, scope: ast.AST) -> None:
        self.bound: set[str] = set()
        self.read: set[str] = set()
        self.lists: list[tuple[ast.ListComp, set[str]]] = []
        self.inner: list[ast.AST] = []
        self.has_star = False
        self._of_comprehensions: list[set[str]] = []
        if isinstance(scope, _Function):
            self.bound.update(node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg))
        self._visit_all(scope.body)

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)
        elif not any(node.id in variables for variables in self._of_comprehensions):
            self.read.add(node.id)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        variables = {name.id for generator in node.generators for name in ast.walk(generator.target)
                     if isinstance(name, ast.Name)}
        self.lists.append((node, variables))
        self.visit(node.generators[0].iter)
        self._of_comprehensions.append(variables)
        self._visit_all([node.elt, *(generator.iter for generator in node.generators[1:]),
                         *(condition for generator in node.generators for condition in generator.ifs)])
        self._of_comprehensions.pop()

    def _visit_first_iterable(self, node: ast.GeneratorExp | ast.SetComp | ast.DictComp) -> None:
        self.visit(node.generators[0].iter)

    visit_GeneratorExp = visit_SetComp = visit_DictComp = _visit_first_iterable  # noqa: N815 (names of ast)

    def _visit_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.inner.append(node)
        self._visit_all(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            self._visit_all([*node.bases, *node.keywords])
        else:
            self._visit_all([*node.args.defaults, *node.args.kw_defaults])

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_definition  # noqa: N815 (names of ast)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all([*node.args.defaults, *node.args.kw_defaults])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.bound.add((alias.asname or alias.name).partition(".")[0])
            self.has_star = self.has_star or alias.name == "*"

    visit_Import = visit_ImportFrom = _visit_import  # noqa: N815 (names of ast)

    def _visit_declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        self.bound.update(node.names)

    visit_Global = visit_Nonlocal = _visit_declaration  # noqa: N815 (names of ast)
