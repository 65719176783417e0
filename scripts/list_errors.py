"""Lists every error of ps_train by its code: writes docs/errors.md, or checks it.

    python scripts/list_errors.py            writes the page
    python scripts/list_errors.py --check    ends with 1 if the page is not what the source says

An error is a call of an exception of `ps_train/errors.py`, or of `Problem`, whose first argument is its code. The page
has the messages as they stand in the source, with names in braces for the values.
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

REPO = pathlib.Path(__file__).resolve().parents[1]
_PAGE = REPO / "docs/errors.md"
# Functions and methods that only format a value, their last argument or what they are called on.
_OF_LAST_ARGUMENT = ("join", "sorted", "str", "repr", "len", "map", "filter", "_listed", "dumps", "quote")
_OF_OWN_VALUE = ("removeprefix", "removesuffix", "strip", "rstrip", "lower", "decode")
_HEAD = """# Errors

A message ends with the code of the error in brackets, and a process with the exit code of its kind. The code of an
error does not change when its wording does. `error.code` has it in Python.

`scripts/list_errors.py` writes this page from the source. Names in braces stand for the values of a message.
"""


class ErrorSite(NamedTuple):
    """A place in the source that makes an error.

    Attributes:
      code: of the error; an expression in braces if the error has that of another one.
      kind: the exception, or Problem.
      message: as it stands in the source, with braces for the values; "" if the call has no message.
      place: file and line.
    """

    code: str
    kind: str
    message: str
    place: str


def error_sites(repo: pathlib.Path = REPO) -> list[ErrorSite]:
    """Returns all errors that `ps_train/`, `models/` and `data/` make, in the order of the files."""
    kinds = {**exit_codes(repo), "Problem": ""}
    return [site for path in _paths(repo) for site in _sites_of(path, kinds, repo)]


def exit_codes(repo: pathlib.Path = REPO) -> dict[str, str]:
    """Returns exception -> exit code of its process, "-" if each error has its own."""
    codes = {"PsTrainError": "1"}
    for path in _paths(repo):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and (base := next(
                    (base.id for base in node.bases if getattr(base, "id", "") in codes), "")):
                assigned = [ast.unparse(item.value) for item in node.body
                            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "exit_code"]
                codes[node.name] = "-" if "self.exit_code" in ast.unparse(node) else (assigned or [codes[base]])[0]
    return codes


def _paths(repo: pathlib.Path) -> list[pathlib.Path]:
    first = repo / "ps_train/errors.py"  # a class must come after its base
    paths = [path for folder in ("ps_train", "models", "data") for path in sorted((repo / folder).rglob("*.py"))]
    return [first, *(path for path in paths if path != first)]


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _sites_of(path: pathlib.Path, kinds: dict[str, str], repo: pathlib.Path) -> Iterator[ErrorSite]:
    class_of = {call: node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef)
                for call in ast.walk(node) if isinstance(call, ast.Call) and node.name != "PsTrainError"}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            name = class_of.get(node, "") if ast.unparse(node.func) == "super().__init__" else name
            if name in kinds:
                code, *texts = node.args if kinds[name] != "-" else node.args[:-1]  # its last argument is the exit code
                yield ErrorSite(str(code.value) if isinstance(code, ast.Constant) else f"{{{ast.unparse(code)}}}", name,
                                ": ".join(map(template, texts)),
                                f"{path.relative_to(repo)}:{node.lineno}")


def template(node: ast.expr) -> str:
    """Returns the text of a message, with braces for its values."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return f"{{{_name_of(node)}}}"


def _name_of(node: ast.expr) -> str:
    """Returns what a reader needs of an expression: its last name, without calls that only format it."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "get" and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
        if name == "getattr":
            return _name_of(node.args[0]) if isinstance(node.args[1], ast.Constant) else "value"
        if name in _OF_OWN_VALUE:
            return _name_of(node.func.value)
        return _name_of(node.args[-1] if name in _OF_LAST_ARGUMENT and node.args else node.func)
    if isinstance(node, (ast.FormattedValue, ast.Subscript, ast.Starred)):
        return _name_of(node.value)
    if isinstance(node, ast.IfExp):
        return _name_of(node.orelse if isinstance(node.body, ast.Constant) else node.body)
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.GeneratorExp, ast.ListComp)):
        return _name_of(getattr(node, "left", None) or getattr(node, "elt", None) or node.values[0])
    if isinstance(node, ast.JoinedStr):
        return next((_name_of(part) for part in node.values if isinstance(part, ast.FormattedValue)), "...")
    return str(getattr(node, "attr", getattr(node, "id", "..."))).strip("_")


def page(repo: pathlib.Path = REPO) -> str:
    """Returns docs/errors.md."""
    codes = exit_codes(repo)
    by_code = collections.defaultdict(list)
    for site in error_sites(repo):
        if site.code.isidentifier():
            by_code[site.code].append(site)
    lines = [_HEAD, "| code | exit code | message |", "|---|---|---|"]
    for code, sites in sorted(by_code.items()):
        of_process = sorted({codes.get(site.kind, codes["ConfigError"]) for site in sites})
        messages = sorted({_cell(site.message) for site in sites if site.message})
        lines.append(f"| `{code}` | {', '.join(of_process)} | {'<br>'.join(messages)} |")
    return "\n".join(lines) + "\n"


def _cell(message: str) -> str:
    # As code: mkdocs would take a name in braces at the end of a cell for attributes.
    escaped = message.replace("|", "\\|")
    return f"`` {escaped} ``"


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
