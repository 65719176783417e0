"""docs/troubleshooting.md quotes codes of errors, and lines that the program prints."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from scripts.list_errors import error_sites
from tests.processes import REPO

_ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
         for line in (REPO / "docs/troubleshooting.md").read_text(encoding="utf-8").splitlines()
         if line.startswith("| ") and not line.startswith("| symptom")]


@functools.cache
def texts():
    """Returns the texts of the program without docstrings, with `...` for each value, and the codes in brackets."""
    lines = [f"[{site.code}]" for site in error_sites()]
    for path in (REPO / "ps_train").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "..." for part in node.values]
                lines.append(re.sub(r"(\.\.\.){2,}", "...", "".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                lines.append(re.sub(r"%[.\d]*[a-z]", "...", node.value))
    return lines


def test_every_row_has_four_cells():
    """Symptom, line, cause, what to do."""
    assert len(_ROWS) >= 10 and {len(row) for row in _ROWS} == {4}
    assert all(cell for row in _ROWS for cell in row)


@pytest.mark.parametrize("line", [row[1] for row in _ROWS])
def test_the_program_prints_a_line_of_the_page(line):
    """Or it is an error with the code in the page."""
    assert line[0] == line[-1] == "`" and any(line[1:-1] in text for text in texts())
