"""What does `import tensorflow as tf` of an unchanged TF1 script find?

`install()` puts a stand-in at `sys.modules["tensorflow"]`. It looks a name up in these places, in this order:

    tables           renamed.py, contrib/, examples/: name in TF1 -> what it is today
    compat.v1        TensorFlow's own copy of the TF1 names
    TensorFlow 2     the names that only it has
    missing.py       one line: the name, the line of the script, and what to use instead

Each table is a dictionary of strings that can be read, and docs/compatibility.md shows them all. `namespace.py` looks
names up, `importing.py` does the same for `import` statements. `repaired.py` and `inside.py` change TensorFlow itself,
where a stand-in would not be reached.
"""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Makes `import tensorflow as tf` find the names of TF1, see `installation.py`."""
    from ps_train.parts.legacy.names import installation  # noqa: PLC0415 (the tables are read without TensorFlow)

    installation.put_in_place()
