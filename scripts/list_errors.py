"""Lists every error of ps_train by its code: writes docs/errors.md, or checks it.

    python scripts/list_errors.py            writes the page
    python scripts/list_errors.py --check    ends with 1 if the page is not what the source says

An error is a call of an exception of `ps_train/errors.py`, or of `Problem`, whose first argument is its code. The page
has the messages as they stand in the source, with names in braces for what is filled in.
"""

from __future__ import annotations

import argparse
import ast
import collections
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

REPO = pathlib.Path(__file__).resolve().parents[1]
_PAGE = REPO / "docs/errors.md"
_HEAD = """# Errors

A message ends with the code of the error in brackets, and a process with the exit code of its kind. The code of an
error does not change when its wording does. `error.code` has it in Python.

`scripts/list_errors.py` writes this page from the source. Names in braces stand for what a message fills in.
"""


class ErrorSite(NamedTuple):
    """A place in the source that makes an error.

    Attributes:
      code: of the error.
      kind: the exception.
      message: as it stands in the source, with braces for what is filled in.
      place: file and line.
    """

    code: str
    kind: str
    message: str
    place: str


def error_sites(repo: pathlib.Path = REPO) -> list[ErrorSite]:
    """Returns all errors that `ps_train/`, `models/` and `data/` make, in the order of the files."""
    kinds = exit_codes(repo)
    paths = [path for folder in ("ps_train", "models", "data") for path in sorted((repo / folder).rglob("*.py"))]
    return [site for path in paths for site in _sites_of(path, kinds.keys() | {"Problem"}, repo)]


def exit_codes(repo: pathlib.Path = REPO) -> dict[str, str]:
    """Returns exception -> exit code of its process, "-" where the error itself says it."""
    codes: dict[str, str] = {}
    for node in ast.parse((repo / "ps_train/errors.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
            own = [ast.unparse(item.value) for item in node.body
                   if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "exit_code"]
            sets_own = "self.exit_code" in ast.unparse(node)
            inherited = next((codes[base.id] for base in node.bases if getattr(base, "id", "") in codes), "1")
            codes[node.name] = "-" if sets_own else own[0] if own else inherited
    return codes


def _sites_of(path: pathlib.Path, kinds: set[str], repo: pathlib.Path) -> Iterator[ErrorSite]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        if name in kinds and node.args:
            code = node.args[0]
            yield ErrorSite(code.value if isinstance(code, ast.Constant) else f"{{{ast.unparse(code)}}}", name,
                            ": ".join(template(argument) for argument in node.args[1:]),
                            f"{path.relative_to(repo)}:{node.lineno}")


def template(node: ast.expr) -> str:
    """Returns the text of a message, with braces for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return f"{{{ast.unparse(inner)}}}"


def page(repo: pathlib.Path = REPO) -> str:
    """Returns docs/errors.md."""
    codes = exit_codes(repo)
    by_code = collections.defaultdict(list)
    for site in error_sites(repo):
        if not site.code.startswith("{") and site.code:
            by_code[site.code].append(site)
    lines = [_HEAD, "| code | exit code | message |", "|---|---|---|"]
    for code, sites in sorted(by_code.items()):
        of_process = sorted({codes.get(site.kind, codes["ConfigError"]) for site in sites})
        messages = dict.fromkeys(_cell(site.message) for site in sites)
        lines.append(f"| `{code}` | {', '.join(of_process)} | {'<br>'.join(messages)} |")
    return "\n".join(lines) + "\n"


def _cell(message: str) -> str:
    return message.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    text = page()
    if parser.parse_args().check:
        return 0 if _PAGE.read_text(encoding="utf-8") == text else 1
    _PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
