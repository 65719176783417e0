"""Where the names of a module belong."""

from __future__ import annotations

import ast

import pytest

from ps_train.parts.legacy import scopes

TEXT = """\
a = b = 1
class C:
    c = 1
    d = c
    def method(self, e=a):
        return c, e, a
def outer(f):
    g = 1
    def inner():
        nonlocal g
        global b
        g, b = 2, 3
        return f, h
    return inner, [i for i in f]
"""


def owners(text):
    """Returns name -> whose variable it is where it is read: the line of the first node that binds it, or None."""
    found = scopes.Scopes(ast.parse(text))
    result = {}
    for node, scope, _ in found.places:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            owner = found.owner_of(node.id, scope)
            result[node.id, node.lineno] = owner and owner.bindings[node.id][0].lineno
    return result


def test_a_name_belongs_to_the_nearest_function_that_binds_it():
    """A class's own names are not those of its methods; defaults are read outside."""
    found = owners(TEXT)
    assert (found["c", 4], found["c", 6], found["e", 6], found["a", 6], found["a", 5]) == (3, None, 5, 1, 1)
    assert (found["f", 13], found["h", 13], found["f", 14], found["inner", 14], found["i", 14]) == (7, None, 7, 9, 14)


def test_global_and_nonlocal_bind_elsewhere():
    """The assignments within `inner`."""
    found = scopes.Scopes(ast.parse(TEXT))
    assert [node.lineno for node in found.module.bindings["b"]] == [1, 12]
    inner = next(scope for node, scope, _ in found.places if isinstance(node, ast.Nonlocal))
    assert "g" not in inner.bindings and [node.lineno for node in inner.parent.bindings["g"]] == [8, 12]


@pytest.mark.parametrize(("handler", "body", "expected"), [
    ("except ImportError", "name", True), ("except (KeyError, errors.ImportError)", "name", True),
    ("except", "name", True), ("except Exception as error", "name", True), ("except KeyError", "name", False),
    ("except Exception", "for i in x: name", False), ("except ImportError", "for i in x: name", True)])
def test_errors_are_expected_in_the_block_of_a_try(handler, body, expected):
    """Not in its other blocks; any error only where the block does nothing else."""
    found = scopes.Scopes(ast.parse(f"try:\n    {body}\n{handler}:\n    name\nelse:\n    name\nname\n"))
    caught = {place.node.lineno: scopes.expects(place.caught, "ImportError") for place in found.places
              if getattr(place.node, "id", "") == "name"}
    assert caught == {2: expected, 4: False, 6: False, 7: False}
