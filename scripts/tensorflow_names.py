"""Lists the private and raw names of TensorFlow that ps_train uses, and compares them with the installed TensorFlow.

    python scripts/tensorflow_names.py               writes docs/tensorflow_names.md
    python scripts/tensorflow_names.py --check       ends with 1 if the page is not what the source says
    python scripts/tensorflow_names.py --installed   ends with 1 if the installed TensorFlow lacks one; prints them

    modules and names below tensorflow.python and tensorflow.core, imported or in a table of names
    operations of tf.raw_ops, with their arguments
    private attributes, which ruff's SLF001 marks; they must occur in the source of TensorFlow or of its Estimator
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

REPO = pathlib.Path(__file__).resolve().parents[1]
PAGE = REPO / "docs/tensorflow_names.md"
_INSIDE = re.compile(r"tensorflow\.(python|core)\.[\w.]+(:[\w.]+)?")
_MARK = "noqa: SLF001"
# Of atexit, concurrent.futures, multiprocessing, fsspec, tf_keras and pandas.
_OF_OTHERS = ("_run_exitfuncs", "_python_exit", "_run_finalizers", "_fs", "_strip_protocol", "_SAVING_V3_ENABLED",
              "_obj_with_exclusions")
_HEAD = """# Private names of TensorFlow

Names of TensorFlow that ps_train uses and that are not part of its public API, apart from the operations of
`tf.raw_ops`, which are public and change rarely. A new version of TensorFlow may lack one of them. With it installed,

```bash
python scripts/tensorflow_names.py --installed
```

prints which. Names of the table `MOVED` of `ps_train run`, of older versions, are needed by scripts only.
`scripts/tensorflow_names.py` writes this page from the source.
"""


class Use(NamedTuple):
    """A name that a file uses.

    Attributes:
      kind: "inside", "raw" or "attribute".
      name: "module" or "module:name"; the name of an operation; that of an attribute.
      arguments: of an operation, those that are given by name.
      file: relative to the repository.
    """

    kind: str
    name: str
    arguments: frozenset[str]
    file: str


def uses(repo: pathlib.Path = REPO) -> list[Use]:
    """Returns all uses in `ps_train/`, in the order of the files."""
    return [use for path in sorted((repo / "ps_train").rglob("*.py"))
            for use in _uses_of(path.read_text(encoding="utf-8"), str(path.relative_to(repo)))]


def _uses_of(text: str, file: str) -> Iterator[Use]:
    """Yields the names that a file uses. An attribute that the file itself defines is not TensorFlow's."""
    tree, lines = ast.parse(text), text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _INSIDE.match(f"{node.module}.x"):
            yield from (Use("inside", f"{node.module}:{alias.name}", frozenset(), file) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (Use("inside", alias.name, frozenset(), file) for alias in node.names
                        if _INSIDE.match(alias.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _INSIDE.fullmatch(node.value):
            if ":" in node.value:  # else a module that was moved, or the beginning of names
                yield Use("inside", node.value, frozenset(), file)
        elif isinstance(node, ast.Call) and (name := _raw_op(node.func)):
            yield Use("raw", name, frozenset(keyword.arg for keyword in node.keywords if keyword.arg), file)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_defined_here = re.search(rf"(self\.{node.attr}\b.* = |def {node.attr}\(|\b{node.attr}: )", text)
            is_marked = _MARK in lines[(node.end_lineno or node.lineno) - 1]
            if is_marked and node.attr not in _OF_OTHERS and not is_defined_here:
                yield Use("attribute", node.attr, frozenset(), file)


def _raw_op(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "raw_ops":
        return node.attr
    return ""


def page(found: Iterable[Use]) -> str:
    """Returns the text of the page."""
    titles = {"inside": "Inside tensorflow.python and tensorflow.core", "raw": "Operations of tf.raw_ops",
              "attribute": "Private attributes"}
    parts = [_HEAD]
    for kind, title in titles.items():
        files: dict[str, set[str]] = {}
        for use in found:
            if use.kind == kind:
                files.setdefault(use.name.replace(":", "."), set()).add(use.file.removeprefix("ps_train/"))
        rows = [f"| `{name}` | {', '.join(f'`{file}`' for file in sorted(files[name]))} |" for name in sorted(files)]
        parts.append("\n".join([f"## {title}\n", "| name | used in |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def missing(found: Iterable[Use]) -> list[str]:
    """Returns what the installed TensorFlow does not have, a line each."""
    found = list(found)
    attributes = {use.name for use in found if use.kind == "attribute"}
    absent = attributes - _words_of_source() if attributes else set()
    lines = [f"{use.file}: {problem}" for use in found if (problem := _problem(use, absent))]
    return sorted(set(lines))


def _problem(use: Use, absent: set[str]) -> str:
    if use.kind == "attribute":
        return f"no attribute {use.name} in the source" if use.name in absent else ""
    if use.kind == "inside":
        module, _, name = use.name.partition(":")
        try:
            pkgutil.resolve_name(use.name)
        except ImportError as error:
            return f"no module {module}: {error}"
        except AttributeError:
            return "" if _is_module(f"{module}.{name}") else f"no name {name} in {module}"
        return ""
    op = getattr(importlib.import_module("tensorflow").raw_ops, use.name, None)
    if op is None:
        return f"no operation tf.raw_ops.{use.name}"
    unknown = use.arguments - set(inspect.signature(op).parameters)
    return f"tf.raw_ops.{use.name} has no argument {', '.join(sorted(unknown))}" if unknown else ""


def _is_module(name: str) -> bool:
    """Returns whether this is a module, which nothing may have imported yet."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _words_of_source() -> set[str]:
    """Returns the words that begin with "_" in the Python files of TensorFlow, its Estimator and absl."""
    words: set[str] = set()
    for package in ("tensorflow", "tensorflow_estimator", "absl", "tf_slim"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            root = pathlib.Path(folder) / "python" if package == "tensorflow" else pathlib.Path(folder)
            for path in root.rglob("*.py"):
                words.update(re.findall(r"\b_[a-zA-Z]\w*", path.read_text(encoding="utf-8", errors="replace")))
    return words


def main() -> int:
    """Writes the page, or compares it or the installed TensorFlow with the source; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the page with the source")
    parser.add_argument("--installed", action="store_true", help="compare the installed TensorFlow with the source")
    options = parser.parse_args()
    found = uses()
    if options.installed:
        problems = missing(found)
        print("\n".join(problems) if problems else f"all {len({use.name for use in found})} names are there")
        return int(bool(problems))
    if options.check:
        is_same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page(found)
        if not is_same:
            print(f"{PAGE.relative_to(REPO)} is not what the source says: run python scripts/tensorflow_names.py")
        return int(not is_same)
    PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
