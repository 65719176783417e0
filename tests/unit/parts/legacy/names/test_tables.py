"""The tables of names, without TensorFlow, and the document that shows them."""

from __future__ import annotations

import re
import subprocess
import sys

from ps_train.parts.legacy.names.namespace import Tables
from ps_train.parts.legacy.names.tables import TABLES
from scripts import write_compatibility
from tests.processes import GUARD_SECS, REPO


def test_the_document_shows_the_tables_as_they_are():
    """After a change run scripts/write_compatibility.py."""
    text = write_compatibility.DOCUMENT.read_text(encoding="utf-8")
    between = text.split(write_compatibility.BEGIN)[1].split(write_compatibility.END)[0]
    assert between.strip() == write_compatibility.names_text()


def test_the_tables_are_read_without_tensorflow():
    """A document, and a name that is missing, do not need the seconds that TensorFlow takes."""
    code = "import sys, ps_train.parts.legacy.names.tables; print('tensorflow' in sys.modules, 'numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=GUARD_SECS,
                           check=True)
    assert ended.stdout.strip() == "False False"


def test_names_are_written_as_in_scripts_and_targets_as_python_finds_them():
    """`tf.a.b` on the left; `tf.a.b`, `package.module:name` or a module on the right."""
    assert all(re.fullmatch(r"tf(\.\w+)+", name) for name in (*TABLES.names, *TABLES.modules, *TABLES.advice))
    targets = [*TABLES.names.values(), *(source for sources in TABLES.modules.values() for source in sources)]
    assert all(re.fullmatch(r"tf(\.\w+)+|[a-z]\w*(\.\w+)*(:\w+)?", target) for target in targets)


def test_no_name_is_its_own_stand_in():
    """It would be looked up for ever."""
    assert not {name for name, target in TABLES.names.items() if name == target}
    assert not {name for name, sources in TABLES.modules.items() if name in sources}


def test_a_name_that_has_a_stand_in_has_no_advice():
    """The advice would never be read."""
    assert not set(TABLES.advice) & set(TABLES.names)


def test_the_modules_above_a_name_are_in_the_tables():
    """`tf.a` and `tf.a.b` are modules if `tf.a.b.c` is a name; `tf` itself is always there."""
    tables = Tables(names={"tf.a.b.c": "tf.x"}, modules={"tf.d.e": ("tf.x",)}, advice={}).with_parents()
    assert tables.modules == {"tf.a.b": (), "tf.a": (), "tf.d": (), "tf.d.e": ("tf.x",)}


def test_inner_modules_lead_to_the_module_around_them():
    """Their look-ups make no circle, so a name that is missing is an error, and no endless search."""
    assert TABLES.modules["tf.contrib.layers.python.layers.embedding_ops"][0] == "tf.contrib.layers"
    assert TABLES.modules["tf.contrib.learn.python.learn.datasets.mnist"][:2] == (
        "tf.contrib.learn.datasets.mnist", "tf.contrib.learn.datasets")

    def visit(module, above):
        assert module not in above, above
        for source in TABLES.modules.get(module, ()):
            visit(source, (*above, module))
    for module in TABLES.modules:
        visit(module, ())
