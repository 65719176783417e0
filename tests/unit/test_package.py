"""The package as a whole: its names, its version, its folders, and who imports whom."""

from __future__ import annotations

import ast
import collections
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ps_train
from tests.processes import GUARD_SECS

REPO = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = REPO / "ps_train"
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

# Folder of the spine -> the folders that it imports from. Every folder may import errors.py.
MAY_IMPORT = {folder: set(imported.split()) for folder, imported in {
    "runtime": "",
    "plugins": "",
    "cluster": "runtime",
    "config": "cluster plugins runtime",
    "launch": "tasks training config cluster plugins runtime storage",
    "storage": "plugins runtime",
    "graph": "plugins cluster runtime",
    "coordination": "cluster runtime",
    "updates": "graph coordination cluster runtime",
    "training": "updates graph coordination storage cluster plugins runtime",
    "tasks": "training updates coordination graph storage cluster config plugins runtime",
    "testing": "launch",
    "verbs": "tasks launch storage config cluster runtime",
    "__main__": "verbs config runtime",
    "__init__": "plugins graph updates",
}.items()}
WITHOUT_TENSORFLOW = ("runtime", "plugins", "cluster", "config", "launch", "verbs")


def _folder(file):
    """Returns the folder of a file, or its own name where it is at the top."""
    return file.parts[0].removesuffix(".py")


def _imports(file):
    """Yields the dotted name of each module, or name in a module, that a file imports."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", [file for file in FILES if _folder(file) != "parts"], ids=str)
def test_a_file_of_the_spine_imports_only_from_the_folders_of_the_table(file):
    """Each arrow between two folders is in MAY_IMPORT, which has no circle; plug-ins and tests are never imported."""
    names = [name.split(".") for name in _imports(file)]
    found = {name[1] for name in names if name[0] == "ps_train" and (PACKAGE / name[1]).is_dir()}
    assert found - {"parts"} <= MAY_IMPORT.get(_folder(file), set()) | {_folder(file)}
    assert not {name[0] for name in names} & {"models", "data", "tests", "benchmarks"}


def test_the_spine_imports_no_part():
    """So a part can be left out, and a reader of one step passes no feature that is off."""
    found = {(str(file), name.split(".")[2]) for file in FILES if _folder(file) != "parts"
             for name in _imports(file) if name.startswith("ps_train.parts.") and name != "ps_train.parts.table"}
    assert found == set()


def test_the_table_has_every_folder_and_no_circle():
    """So the folders can be read in an order in which each needs only those before."""
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == {*MAY_IMPORT, "parts"} - {"__main__", "__init__", "testing"}
    left = dict(MAY_IMPORT)
    while ready := [folder for folder, imported in left.items() if not imported & set(left)]:
        for folder in ready:
            del left[folder]
    assert left == {}


def test_no_two_modules_import_each_other():
    """Nor three in a ring; imports for types only count, too. `ps_train` itself names what is imported on first use."""
    modules = {".".join(["ps_train", *file.with_suffix("").parts]).removesuffix(".__init__"): file for file in FILES}
    left = {module: {name if name in modules else name.rpartition(".")[0] for name in _imports(file)} & set(modules)
            - {module, "ps_train"} for module, file in modules.items() if module != "ps_train"}
    while ready := [module for module, imported in left.items() if not imported & set(left)]:
        for module in ready:
            del left[module]
    assert not left


def test_the_top_is_not_too_full():
    """At most twenty entries besides `__init__.py`; each folder has a docstring."""
    entries = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert len(entries - {"__init__.py", "__pycache__"}) <= 20
    for init in PACKAGE.glob("*/**/__init__.py"):
        assert len(ast.get_docstring(ast.parse(init.read_text())) or "") > 80, init


def test_the_folders_without_tensorflow_import_without_it():
    """A wrong flag is reported, and a cluster launched, without the seconds that TensorFlow takes to import."""
    files = [file for file in FILES if _folder(file) in (*WITHOUT_TENSORFLOW, "errors", "__main__", "__init__")
             or file.parts[0] == "parts" and (file.name in ("flags.py", "verb.py") or file.parts[1] in ("ssh", "tmux"))]
    modules = [".".join(["ps_train", *file.with_suffix("").parts]).removesuffix(".__init__") for file in files]
    code = f"import sys, importlib; [importlib.import_module(name) for name in {modules}]; " \
        "print([name for name in ('tensorflow', 'numpy', 'tf_keras') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD_SECS, check=True,
                           env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.stdout.strip() == "[]"


def test_all_is_sorted_and_importable():
    """`__all__` is what there is, without doubles."""
    assert ps_train.__all__ == sorted(set(ps_train.__all__))
    for name in ps_train.__all__:
        assert getattr(ps_train, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    """The names that are imported on first use do not make others appear."""
    with pytest.raises(AttributeError, match="module 'ps_train' has no attribute 'from_array'"):
        _ = ps_train.from_array


def test_a_model_that_names_a_rule_of_a_table_where_it_was_finds_it():
    """docs/embeddings.md named `ps_train.embeddings.rules` before tables were a part."""
    code = ("from ps_train.embeddings.rules import Adagrad; import ps_train; from ps_train.parts.tables import rules; "
            "assert ps_train.embeddings.rules is rules; print(Adagrad.__module__)")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD_SECS, check=True,
                           env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.stdout.strip() == "ps_train.parts.tables.rules"


def test_no_timer_reads_the_time_of_day():
    """Matrix row 47: it may jump. Every wait and every time-out counts on a monotonic clock.

    A profile does: it waits for nothing, and shows what TensorFlow has recorded by the time of day. So do the lines of
    dist_mnist and of the journal, which have it in them; a doctor compares the clocks of two machines, a report
    shows when something happened, files that grow have the times of their last changes, as do those that a killed
    export has left, a publisher says how old it is what is served, and the folder of an export is called by it.
    """
    of_the_day = re.compile(r"\b(time\.time(_ns)?|from time import|datetime|tf\.timestamp|monotonic_ns)\b")
    readers = {str(file) for file in FILES if of_the_day.search((PACKAGE / file).read_text())}
    assert {name for name in readers if not name.startswith("parts/profile/")} == {
        "training/reporting.py", "parts/doctor/network.py", "storage/journal.py",
        "parts/publish/freshness.py", "parts/report/writing.py", "parts/sharding/growth.py",
        "parts/inference/serving.py", "parts/legacy/names/keras_exports.py", "parts/legacy/names/pandas_calls.py"}


def test_the_version_is_that_of_the_changelog():
    """`__version__` and the newest heading of CHANGELOG.md agree; what is not released yet stands above it."""
    newest = re.search(r"^## \[?v?(\d[^\s\]]*)", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == ps_train.__version__


def test_annotations_are_lazy_everywhere():
    """Python 3.9 reads `int | None` only where annotations are not evaluated."""
    for file in FILES:
        text = (PACKAGE / file).read_text()
        assert "from __future__ import annotations\n" in text or file.name == "__init__.py", file
        unions = [node.lineno for node in _evaluated(ast.parse(text))
                  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and any(
                      isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right))]
        assert not unions, (file, unions)


def _evaluated(tree):
    """Yields the nodes of a module but for its annotations."""
    waiting = [tree]
    while waiting:
        yield (node := waiting.pop())
        waiting += [child for name, value in ast.iter_fields(node) if name not in ("annotation", "returns")
                    for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]


def test_no_function_is_long():
    """At most 40 lines, with its signature and docstring."""
    long = {f"{file}: {node.name}" for file in FILES for node in ast.walk(ast.parse((PACKAGE / file).read_text()))
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40}
    assert long == set()


def test_a_public_name_is_defined_once():
    """So a reader who searches for it finds one thing."""
    found = collections.Counter(
        node.name for file in FILES for node in ast.parse((PACKAGE / file).read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"))
    assert {name for name, count in found.items() if count > 1} <= {"main"}
