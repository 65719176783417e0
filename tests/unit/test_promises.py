"""The tests that pages name: what shows each promise of docs/decisions/tests.md and each row of docs/faults.md."""

from __future__ import annotations

import ast
import functools
import re

from tests.processes import REPO

_NAMED = re.compile(r"`(?:tests/)?((?:unit|cluster|system|protocol)(?:/\w+)*(?:/test_\w+\.py)?)(?:::(\w+))?`")


@functools.cache
def _tests_in(path):
    tree = ast.parse((REPO / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_that_a_page_names_exists():
    """The file or folder, and the function in it."""
    named = {(page.name, *found) for page in (REPO / "docs").rglob("*.md")
             for found in _NAMED.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 150
    missing = [one for one in sorted(named) if not (REPO / "tests" / one[1]).exists()
               or one[2] and one[2] not in _tests_in(one[1])]
    assert missing == []


def test_the_front_page_says_that_servers_trust_everybody():
    """As each chief does when it starts."""
    assert "has neither authentication nor encryption" in (REPO / "README.md").read_text(encoding="utf-8")
