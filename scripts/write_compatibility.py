"""Writes the tables of TensorFlow 1's names into docs/compatibility.md, between its two marks.

    python scripts/write_compatibility.py
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterable, Mapping

REPO = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = REPO / "docs/compatibility.md"
BEGIN, END = "<!-- names: written by scripts/write_compatibility.py -->", "<!-- end of names -->"
_LEGACY = "ps_train.parts.legacy."
_OURS = _LEGACY + "names."


def names_text() -> str:
    """Returns the tables."""
    from ps_train.parts.legacy.names import moved, tables  # noqa: PLC0415 (main finds them)

    contrib = {name: today for name, today in tables.TABLES.names.items() if name.startswith("tf.contrib.")}
    others = {name: today for name, today in tables.TABLES.names.items() if name not in contrib}
    private = {f"{module}.{name}": today for module, names in
             (*moved.MOVED.items(), *moved.REPLACED.items()) for name, today in names.items()}
    parts = [
        "### Renamed, or with other arguments", _table("name", "today", _rows(others)),
        "### tf.contrib: modules that are looked up elsewhere",
        "Modules of 1.0 to 1.15 inside one of these, such as `tf.contrib.layers.python.layers.embedding_ops`, have the "
        "names of the module\naround them: `tf.contrib.layers`. `inner_modules.py` lists them.",
        _table("module", "looked up in", (
            (f"`{name}`", ", ".join(_today(source) for source in sources))
            for name, sources in sorted(tables.OUTER.modules.items()) if sources)),
        "### tf.contrib: names", _table("name", "today", _rows(contrib)),
        "### Without a stand-in", "Other names of `tf.contrib` have none either.",
        _table("name", "what to do", ((f"`{name}`", hint) for name, hint in sorted(tables.TABLES.advice.items())
                                      if name != "tf.contrib")),
        "### Inside TensorFlow", _table("name", "today", _rows(
            {**private, **{name: today for name, today in moved.PACKAGES.items() if not name.startswith("tf_keras")}})),
        "### numpy", _table("name", "today", _rows({f"np.{name}": today for name, today in tables.NUMPY.items()})),
    ]
    return "\n\n".join(parts)


def _rows(names: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"`{name}`", _today(today)) for name, today in sorted(names.items()))


def _table(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {left} | {right} |", "|---|---|", *(f"| {name} | {today} |" for name, today in rows)])


def _today(target: str) -> str:
    """Returns what an entry names; for a stand-in of ps_train's own the file that it is in."""
    if target.startswith(_LEGACY):
        module, _, name = target.removeprefix(_OURS).removeprefix(_LEGACY).partition(":")
        file = f"`{module.replace('.', '/')}.py`"
        return f"ps_train's own `{name}`, {file}" if name else f"ps_train's own, {file}"
    return f"`{target.removeprefix('builtins:').replace(':', '.')}`"


def main() -> None:
    """Replaces what stands between the marks."""
    sys.path.insert(0, str(REPO))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{names_text()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
