"""What pandas 3 does in another way than the pandas of TF1 code, and ps_train cannot undo: each column is a copy."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from types import ModuleType

_READ_ONLY = re.compile(r"\b(array|destination) is read-only")

_warned: list[str] = []  # the version of which this process has been told


def warn_of_copies(tree: ast.Module) -> None:
    """Says once what differs, if a module imports pandas 3 or later."""
    if not any(_is_import(node) for node in ast.walk(tree)):
        return
    try:
        version = importlib.metadata.version("pandas")
    except importlib.metadata.PackageNotFoundError:
        return
    if _has_copies(version) and not _warned:
        _warned.append(version)
        print(f"ps_train run: pandas {version}: `column = frame.age; column[rows] = 0` does not change the frame, as "
              "it did until pandas 3, and other results may differ without an error (docs/compatibility.md); to have "
              "columns as before, run pip install 'pandas<3'", file=sys.stderr)


def columns_are_copies(pandas: ModuleType) -> bool:
    """Returns whether each column that a script takes is a copy: since pandas 3, and in pandas 2 if it is set so."""
    return _has_copies(pandas.__version__) or getattr(pandas.options.mode, "copy_on_write", False) is True


def _is_import(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [] if node.level else [node.module or ""]
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(name.partition(".")[0] == "pandas" for name in names)


def read_only_hint(error: BaseException) -> str:
    """Returns what to do about an array of pandas 3 that a script changes; "" for another error."""
    pandas = sys.modules.get("pandas")
    if not (isinstance(error, ValueError) and _READ_ONLY.search(str(error)) and _has_copies(
            getattr(pandas, "__version__", ""))):
        return ""
    return ("if the array is one of pandas, such as `frame.values`: it is read-only since pandas 3; change a copy, as "
            "`frame.values.copy()`, or run pip install 'pandas<3' [pandas_read_only]")


def _has_copies(version: str) -> bool:
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 3
