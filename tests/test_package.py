"""The package as a whole: its names, its version, and who imports whom."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ps_train

REPO = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = REPO / "ps_train"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))

# A module imports only from lines above its own.
WITHOUT_TENSORFLOW = [
    {"errors", "progress", "spans", "claims", "calls"},
    {"flagset", "addresses", "plugins", "ports", "phases"},
    {"tf_config", "timeline"},
    {"cluster"},
    {"config", "waiting", "stopping", "logs"},
    {"commands", "processes"},
    {"display", "panes", "restarts"},
    {"launch"},
]
WITH_TENSORFLOW = [
    {"snapshot", "inputs", "checkpoint", "summaries", "sessions", "fingerprint", "notes", "transfer", "lean",
     "replica", "accumulators", "bells"},
    {"living", "packing", "copies"},
    {"blackboard", "synchronous", "keeping", "staleness", "finite", "execution"},
    {"local_steps"},
    {"members"},
    {"coordinator"},
    {"server", "serving", "placement", "optimizer", "beats"},
    {"graph", "choices"},
    {"ending", "saving", "joining", "opening", "profile_board", "tracing"},
    {"session", "collector"},
    {"train", "profile"},
    {"evaluate"},
    {"worker"},
    {"task"},
]
# The tf.distribute road, which stands apart: its modules import from lines above their own, and from the core.
DISTRIBUTE_WITHOUT_TENSORFLOW = [{"options", "convert_options", "rendezvous", "tpu", "watch"}, {"roles"}]
DISTRIBUTE_WITH_TENSORFLOW = [
    {"strategies", "saving", "serving"},
    {"feeding", "callbacks", "conversion"},
    {"training"},
    {"task"},
]
DISTRIBUTE = [*DISTRIBUTE_WITHOUT_TENSORFLOW, *DISTRIBUTE_WITH_TENSORFLOW, {"verbs"}]  # the last imports it on demand
DISTRIBUTE_MODULES = sorted(path.stem for path in (PACKAGE / "distribute").glob("*.py") if path.stem != "__init__")
LAYERS = [*WITHOUT_TENSORFLOW, *WITH_TENSORFLOW, {"__init__"}, {"__main__"}]  # the last two import it on demand


def _has(module, layers):
    return any(module in layer for layer in layers)


def _imports(module):
    """Returns the dotted names that a module of ps_train imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _own_imports(module):
    """Returns the modules of ps_train that a module imports from."""
    parts = [name.split(".") for name in _imports(module)]
    return {part[1] if part[1:] and part[1] in MODULES else "__init__" for part in parts if part[0] == "ps_train"}


def test_all_is_sorted_and_importable():
    """`__all__` is what there is, without doubles."""
    assert ps_train.__all__ == sorted(set(ps_train.__all__))
    for name in ps_train.__all__:
        assert getattr(ps_train, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    """The names that are imported on first use do not make others appear."""
    with pytest.raises(AttributeError, match="module 'ps_train' has no attribute 'from_array'"):
        _ = ps_train.from_array


def test_every_module_has_a_layer():
    """A new module is given its place in the order of imports, here and in ARCHITECTURE.md."""
    assert [module for module in MODULES if not _has(module, LAYERS)] == []


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module):
    """A module imports only from layers below its own, so that each can be read without those above."""
    own_layer = next(number for number, layer in enumerate(LAYERS) if module in layer)
    assert [name for name in sorted(_own_imports(module)) if not _has(name, LAYERS[:own_layer])] == []


@pytest.mark.parametrize("module", MODULES)
def test_the_package_knows_no_plugin(module):
    """ps_train never imports models or data: plug-ins import ps_train."""
    assert not {name.split(".")[0] for name in _imports(module)} & {"models", "data", "tests"}


@pytest.mark.parametrize("module", MODULES)
def test_the_core_does_not_know_the_tf_distribute_road(module):
    """Nothing in ps_train imports ps_train.distribute but its verbs."""
    found = [name for name in _imports(module) if name.startswith("ps_train.distribute")]
    assert not found or module == "__main__"


def test_every_module_of_the_tf_distribute_road_has_a_layer():
    """As those of the core have."""
    assert [module for module in DISTRIBUTE_MODULES if not _has(module, DISTRIBUTE)] == []


@pytest.mark.parametrize("module", DISTRIBUTE_MODULES)
def test_imports_of_the_tf_distribute_road_run_one_way(module):
    """A module imports only from layers below its own, and, like the core, no plug-in."""
    names = _imports(f"distribute/{module}")
    own_layer = next(number for number, layer in enumerate(DISTRIBUTE) if module in layer)
    parts = [name.split(".") for name in names if name.startswith("ps_train.distribute.")]
    assert [part[2] for part in parts if not _has(part[2], DISTRIBUTE[:own_layer])] == []
    assert not {name.split(".")[0] for name in names} & {"models", "data", "tests"}


def test_modules_without_tensorflow_import_without_it():
    """A wrong flag is told, and a cluster launched, without the seconds that TensorFlow takes."""
    modules = [f"ps_train.{module}" for module in MODULES if not _has(module, WITH_TENSORFLOW)]
    modules += [f"ps_train.distribute.{module}" for module in DISTRIBUTE_MODULES
                if not _has(module, DISTRIBUTE_WITH_TENSORFLOW)]
    code = f"import sys, importlib; [importlib.import_module(name) for name in {modules}]; " \
        "print([name for name in ('tensorflow', 'numpy', 'tf_keras') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
                           env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize("module", MODULES)
def test_modules_with_tensorflow_are_known(module):
    """A module that imports TensorFlow stands in a layer that may; only `logs` does so, in a function."""
    uses_it = any(name.split(".")[0] == "tensorflow" for name in _imports(module))
    assert not uses_it or module == "logs" or _has(module, WITH_TENSORFLOW)


def test_no_timer_reads_the_time_of_day():
    """Matrix row 47: it may jump. Every wait and every time-out counts on a monotonic clock.

    A profile does: it waits for nothing, and shows what TensorFlow has recorded by the time of day.
    """
    profiles = {"profile", "profile_board", "tracing"}
    of_the_day = re.compile(r"\b(time\.time(_ns)?|from time import|datetime|tf\.timestamp|monotonic_ns)\b")
    readers = {module for module in MODULES if of_the_day.search((PACKAGE / f"{module}.py").read_text())}
    assert readers == profiles


def test_the_version_is_that_of_the_changelog():
    """`__version__` and the newest heading of CHANGELOG.md agree; what is not released yet stands above it."""
    newest = re.search(r"^## \[?v?(\d[^\s\]]*)", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == ps_train.__version__


def test_annotations_are_lazy_everywhere():
    """Python 3.9 reads `int | None` only where annotations are not evaluated."""
    for module in [*MODULES, *(f"distribute/{module}" for module in DISTRIBUTE_MODULES)]:
        assert "from __future__ import annotations\n" in (PACKAGE / f"{module}.py").read_text(), module
