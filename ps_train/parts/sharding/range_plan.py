"""The ranges of files as a text: what all workers, and a checkpoint, know them by.

    files --file_ranges.plan_ranges--> [FileRange] --describe_ranges--> text <--> queue on ps 0, checkpoint
                                         text of before --take_up--> its ranges, then those of files that are new

The number of a range is its place in that text, which new files never change: their ranges come last. The names leave
out the folders above a pattern's first wildcard, since workers may have the same files in different folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ps_train.graph.input.file_ranges import FileRange, open_bytes


class Extension(NamedTuple):
    """The ranges of before, and those of the files that have come since.

    Attributes:
      plan: all ranges, by number.
      text: describes them.
      num_files: the files that are new.
      num_ranges: their ranges.
    """

    plan: list[FileRange]
    text: str
    num_files: int
    num_ranges: int


class MisfitError(Exception):
    """The files are not those of a text: says which one, and how it differs."""


class _File(NamedTuple):
    """A file of a text: its name, its size, and where its ranges begin, with its end."""

    name: str
    file_bytes: int
    cuts: list[int]


def summary(text: str) -> str:
    """Returns the number of ranges and files, and a fingerprint."""
    return text.partition("\n")[0]


def describe_ranges(plan: Sequence[FileRange], patterns: Sequence[str]) -> str:
    """Returns the text of ranges whose files were found by the patterns."""
    return _text(_files(plan, _names({one.file for one in plan}, patterns)))


def take_up(text: str, plan: Sequence[FileRange], patterns: Sequence[str], *, is_text: bool) -> Extension:
    """Returns the ranges of a text, with those of the files that it does not have.

    Args:
      text: of another run, or of another worker.
      plan: the ranges of the files that are here.
      patterns: find these files.
      is_text: whether a range begins where a line does.

    Raises:
      MisfitError: a file of the text is not here, or has changed.
    """
    names = _names({one.file for one in plan}, patterns)
    here = {file.name: file for file in _files(plan, names)}
    if "\n" not in text:  # of ps_train 0.1.0, whose position has no names
        if text != summary(describe_ranges(plan, patterns)):
            raise MisfitError(f"it has a position in {text}, without their names; here are "
                              f"{summary(describe_ranges(plan, patterns))}")
        return Extension(list(plan), describe_ranges(plan, patterns), 0, 0)
    before = [_File(*file) for file in json.loads(text.partition("\n")[2])]
    paths = {name: path for path, name in names.items()}
    for file in before:
        _check(file, here.get(file.name), paths.get(file.name, ""), is_text=is_text)
    known = {file.name for file in before}
    new = [file for name, file in here.items() if name not in known]
    whole = [*before, *new]
    ranges = [(paths[file.name], start, stop, file.file_bytes) for file in whole
              for start, stop in zip(file.cuts, file.cuts[1:])]
    return Extension([FileRange(number, *one) for number, one in enumerate(ranges)], _text(whole), len(new),
                     sum(len(file.cuts) - 1 for file in new))


def _check(file: _File, here: _File | None, path: str, *, is_text: bool) -> None:
    if here is None:
        raise MisfitError(f"{file.name} is missing")
    if file.file_bytes != here.file_bytes:
        raise MisfitError(f"{path} has {here.file_bytes} bytes, and had {file.file_bytes}")
    # With other files beside it, a small file may be cut elsewhere; its old cuts are as good if lines begin there.
    if is_text and file.cuts != here.cuts and not _begin_lines(path, sorted({*file.cuts} - {*here.cuts})):
        raise MisfitError(f"{path} has changed: its lines begin elsewhere")


def _begin_lines(path: str, positions: Sequence[int]) -> bool:
    with open_bytes(path) as opened:
        for position in positions:
            opened.seek(position - 1)
            if opened.read(1) != b"\n":
                return False
    return True


def _files(plan: Sequence[FileRange], names: dict[str, str]) -> list[_File]:
    found: dict[str, _File] = {}
    for one in plan:
        file = found.setdefault(names[one.file], _File(names[one.file], one.file_bytes, [one.start]))
        file.cuts.append(one.stop)
    return list(found.values())


def _names(paths: set[str], patterns: Sequence[str]) -> dict[str, str]:
    """Returns path -> name: the path behind the folders without a wildcard; whole paths if two would be the same."""
    folders = sorted({re.split(r"[*?\[]", pattern)[0].rpartition("/")[0] for pattern in patterns}, key=len)
    names = {}
    for path in sorted(paths):
        above = [folder for folder in folders if path.startswith(f"{folder}/")]
        names[path] = path[len(above[-1]) + 1:] if above and above[-1] else path
    return names if len({*names.values()}) == len(names) else {path: path for path in names}


def _text(files: Sequence[_File]) -> str:
    digest = hashlib.sha256()
    for file in files:
        for start, stop in zip(file.cuts, file.cuts[1:]):
            digest.update(f"{os.path.basename(file.name)} {start} {stop} {file.file_bytes}\n".encode())
    num_ranges = sum(len(file.cuts) - 1 for file in files)
    line = f"{num_ranges} ranges of {len(files)} file{'s' if len(files) > 1 else ''}, {digest.hexdigest()[:12]}"
    return f"{line}\n{json.dumps(files, separators=(',', ':'))}"
