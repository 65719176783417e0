"""The ranges of files as a text, by which all workers, and a checkpoint, know them.

    files --file_ranges.plan_ranges--> [FileRange] --describe_ranges--> text <--> queue on ps 0, checkpoint
                                          an earlier text --extend--> its ranges, then those of new files

The number of a range is its place in that text, which new files never change: their ranges come last. The names leave
out the folders above a pattern's first wildcard, since workers may have the same files in different folders.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from ps_train.errors import ConfigError
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.readers.files import fixed_folder, open_bytes


class Extension(NamedTuple):
    """The ranges of a text, and those of the files that are new since.

    Attributes:
      plan: all ranges, by number.
      text: describes them.
      num_files: the new files.
      num_ranges: their ranges.
    """

    plan: list[FileRange]
    text: str
    num_files: int
    num_ranges: int


class MisfitError(ConfigError):
    """The files are not those of a text: says which one, and how it differs."""


class _File(NamedTuple):
    """A file of a text: its name, its size, and where its ranges begin, with its end."""

    name: str
    file_bytes: int
    cuts: list[int]

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.cuts, self.cuts[1:]))


def summary(text: str) -> str:
    """Returns the number of ranges and files, and a fingerprint."""
    return text.partition("\n")[0]


def is_of_growth(text: str) -> bool:
    """Returns whether a text is one of growing files, as `growth.py` writes it."""
    return text.partition("\n")[2].startswith("{")


def describe_ranges(plan: Sequence[FileRange], patterns: Sequence[str]) -> str:
    """Returns the text of ranges whose files match the patterns."""
    return _text(_files(plan, _names(plan, patterns)))


def extend(text: str, plan: Sequence[FileRange], patterns: Sequence[str], *, is_text: bool) -> Extension:
    """Returns the ranges of a text, with those of the files that it does not have.

    Args:
      text: of another run, or of another worker.
      plan: the ranges of this worker's files.
      patterns: find these files.
      is_text: whether a range begins where a line does.

    Raises:
      MisfitError: this worker lacks a file of the text, or the file has changed; or the text is of growing files.
    """
    if is_of_growth(text):
        raise MisfitError("input_files_differ", "its position is one of a training with --follow")
    names = _names(plan, patterns)
    present = {file.name: file for file in _files(plan, names)}
    if "\n" not in text:  # of ps_train 0.1.0, whose position has no names
        present_text = _text(list(present.values()))
        if text != summary(present_text):
            raise MisfitError("input_files_differ", f"it has a position in {text}, without their names; this worker "
                              f"has {summary(present_text)}")
        return Extension(list(plan), present_text, 0, 0)
    known = [_File(*file) for file in json.loads(text.partition("\n")[2])]
    paths = {name: path for path, name in names.items()}
    for file in known:
        _check(file, present.get(file.name), paths.get(file.name, ""), is_text=is_text)
    known_names = {file.name for file in known}
    new = [file for name, file in present.items() if name not in known_names]
    files = [*known, *new]
    ranges = [(paths[file.name], start, stop, file.file_bytes) for file in files for start, stop in file.ranges()]
    return Extension([FileRange(number, *fields) for number, fields in enumerate(ranges)], _text(files), len(new),
                     sum(len(file.ranges()) for file in new))


def _check(file: _File, present: _File | None, path: str, *, is_text: bool) -> None:
    if present is None:
        raise MisfitError("input_files_differ", f"{file.name} is missing")
    if file.file_bytes != present.file_bytes:
        raise MisfitError("input_files_differ",
                          f"{path} has {present.file_bytes} bytes, and had {file.file_bytes}")
    if is_text and file.cuts[0] < present.cuts[0]:
        raise MisfitError("input_files_differ", f"{path} began at byte {file.cuts[0]}, and begins at byte "
                          f"{present.cuts[0]} now, behind a header")
    # A small file may be cut elsewhere if other files are new; its old cuts are as good if lines begin there.
    if is_text and file.cuts != present.cuts and not _begin_lines(path, sorted({*file.cuts} - {*present.cuts})):
        raise MisfitError("input_files_differ", f"{path} has changed: its lines begin elsewhere")


def _begin_lines(path: str, positions: Sequence[int]) -> bool:
    with open_bytes(path) as opened:
        for position in positions:
            opened.seek(position - 1)
            if opened.read(1) != b"\n":
                return False
    return True


def _files(plan: Sequence[FileRange], names: dict[str, str]) -> list[_File]:
    files: dict[str, _File] = {}
    for part in plan:
        file = files.setdefault(names[part.file], _File(names[part.file], part.file_bytes, [part.start]))
        file.cuts.append(part.stop)
    return list(files.values())


def _names(plan: Sequence[FileRange], patterns: Sequence[str]) -> dict[str, str]:
    """Returns path -> name: the path behind the folders without a wildcard; whole paths if two would be the same."""
    paths = sorted({part.file for part in plan})
    folders = sorted({fixed_folder(pattern) for pattern in patterns}, key=len)
    names = {}
    for path in paths:
        above = [folder for folder in folders if path.startswith(f"{folder}/")]
        names[path] = path[len(above[-1]) + 1:] if above and above[-1] else path
    return names if len({*names.values()}) == len(names) else {path: path for path in paths}


def _text(files: Sequence[_File]) -> str:
    digest = hashlib.sha256()
    for file in files:
        for start, stop in file.ranges():
            digest.update(f"{os.path.basename(file.name)} {start} {stop} {file.file_bytes}\n".encode())
    num_ranges = sum(len(file.ranges()) for file in files)
    line = f"{num_ranges} ranges of {len(files)} file{'s' if len(files) > 1 else ''}, {digest.hexdigest()[:12]}"
    return f"{line}\n{json.dumps(files, separators=(',', ':'))}"
