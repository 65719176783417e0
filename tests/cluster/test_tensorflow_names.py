"""The private and raw names of TensorFlow that ps_train uses, against the installed TensorFlow."""

from __future__ import annotations

from scripts import tensorflow_names
from scripts.tensorflow_names import Use


def test_the_installed_tensorflow_has_every_name():
    """One that it lacks is a line with the file that uses it."""
    assert tensorflow_names.missing(tensorflow_names.uses()) == []


def test_a_name_that_is_not_there_is_found():
    """A module, a name in one, an operation, an argument, an attribute."""
    wrong = [Use("inside", "tensorflow.python.no_module:name", frozenset(), "a.py"),
             Use("inside", "tensorflow.python.training.saver:NoSaver", frozenset(), "b.py"),
             Use("raw", "NoOperation", frozenset(), "c.py"), Use("raw", "Empty", frozenset(["init", "sort"]), "d.py"),
             Use("attribute", "_no_such_attribute_at_all", frozenset(), "e.py")]
    lines = tensorflow_names.missing(wrong)
    assert [line[0] for line in lines] == ["a", "b", "c", "d", "e"] and lines[3].endswith("no argument sort")


def test_the_page_is_what_the_source_says():
    """`python scripts/tensorflow_names.py` writes it."""
    assert tensorflow_names.PAGE.read_text(encoding="utf-8") == tensorflow_names.page(tensorflow_names.uses())
