"""Which files are one checkpoint, and the manifest that makes it visible in a store.

    model.ckpt-500.index, .data-..., .meta        a unit: the files of one checkpoint, or of one delta to it
    model.ckpt-500.delta-620.index, ...
    model.ckpt-500.manifest.json                  {"files": {name: [bytes, SHA-256]}}; written last, removed first
    ckpt-00000500.keras                           a unit of `ps_train keras`: one file, with such a manifest

A unit whose manifest is missing does not exist for a reader, except one that a user has copied to the store by hand:
no note of an upload (`UPLOADING`) names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ps_train.parts.object_store.store import ObjectStore, digest_of

UPLOADING = "upload.json"  # {"unit", "files"}: what the upload under way writes, to be removed if it is killed
RECORD = "checkpoint"  # TensorFlow's record of the newest and of all
SUFFIX = ".manifest.json"
_UNIT = re.compile(r"(model\.ckpt-(\d+)(?:\.delta-(\d+))?)\.(index|meta|data-\d{5}-of-\d{5}|manifest\.json)")
_KERAS_UNIT = re.compile(r"ckpt-(\d{8,})\.(keras|manifest\.json)")
_RECORDED = re.compile(r'model_checkpoint_path: "(.+)"')


class Unit(NamedTuple):
    """A checkpoint, or a delta to one. Units compare by steps, and a checkpoint comes before its deltas.

    Attributes:
      step: global step of the checkpoint.
      delta: global step of the delta; -1 for the checkpoint itself.
      is_keras: whether Keras wrote it.
    """

    step: int
    delta: int = -1
    is_keras: bool = False

    @property
    def name(self) -> str:
        """The prefix of its files."""
        if self.is_keras:
            return f"ckpt-{self.step:08d}"
        return f"model.ckpt-{self.step}" + (f".delta-{self.delta}" if self.is_delta else "")

    @property
    def head(self) -> str:
        """The file without which nobody takes the others for a checkpoint."""
        return f"{self.name}.{'keras' if self.is_keras else 'index'}"

    @property
    def manifest(self) -> str:
        """The name of its manifest."""
        return f"{self.name}{SUFFIX}"

    @property
    def is_delta(self) -> bool:
        """Whether it is a delta."""
        return self.delta >= 0


class Manifest(NamedTuple):
    """The files of a unit: name -> (bytes, SHA-256)."""

    files: Mapping[str, tuple[int, str]]

    def text(self) -> str:
        """Returns its content in the store."""
        return json.dumps({"files": self.files}, sort_keys=True, indent=1) + "\n"


def unit_of(name: str) -> Unit | None:
    """Returns the unit to which a file belongs, by its name, or None."""
    if match := _KERAS_UNIT.fullmatch(name):
        return Unit(int(match[1]), is_keras=True)
    match = _UNIT.fullmatch(name)
    return Unit(int(match[2]), int(match[3] or -1)) if match else None


def files_by_unit(names: Iterable[str]) -> dict[Unit, list[str]]:
    """Returns unit -> its files, in the order of the units; in that of an upload: the index last."""
    found: dict[Unit, list[str]] = {}
    for name in sorted(names, key=lambda name: (name.endswith(".index"), name)):
        if (unit := unit_of(name)) and name != unit.manifest:
            found.setdefault(unit, []).append(name)
    return dict(sorted(found.items()))


def whole_units(names: Collection[str], uploading: str) -> list[Unit]:
    """Returns the units that exist in a store, in order.

    Args:
      names: of all objects.
      uploading: the name of the unit whose upload has not ended.
    """
    return [unit for unit, files in files_by_unit(names).items()
            if unit.manifest in names or (unit.head in files and unit.name != uploading)]


def make_manifest(folder: str, files: Iterable[str]) -> Manifest:
    """Returns the manifest of these files in a folder.

    Raises:
      OSError: one of them cannot be read.
    """
    return Manifest({name: (os.path.getsize(path), digest_of(path))
                     for name in files for path in [os.path.join(folder, name)]})


def read_manifest(store: ObjectStore, unit: Unit) -> Manifest | None:
    """Returns the manifest of a unit, or None if there is none that can be read.

    Raises:
      StoreError: the store does not answer.
    """
    try:
        files = json.loads(store.read(unit.manifest) or b"")["files"]
        # Only names of the unit: the files are written to this machine by them.
        return Manifest({name: (int(size), str(digest)) for name, (size, digest) in files.items()
                         if unit_of(name) == unit})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_uploading(store: ObjectStore) -> tuple[str, list[str]]:
    """Returns the name and the files of the unit whose upload has not ended; "" and none if there is none.

    Raises:
      StoreError: the store does not answer.
    """
    try:
        note = json.loads(store.read(UPLOADING) or b"{}")
        return str(note.get("unit", "")), [str(name) for name in note.get("files", ())]
    except (ValueError, TypeError, AttributeError):
        return "", []


def recorded_unit(folder: str, is_keras: bool | None = None) -> Unit | None:
    """Returns the newest checkpoint in a folder of this machine, or None.

    Args:
      is_keras: which kind counts: that of TensorFlow's record, or the newest file of Keras, which writes no record.
        None: that of the record; without a record that of Keras.
    """
    try:
        with open(os.path.join(folder, RECORD), encoding="utf-8") as file:
            match = _RECORDED.search(file.read())
    except OSError as error:
        match, has_record = None, not isinstance(error, FileNotFoundError)
    else:
        has_record = True
    if is_keras or (is_keras is None and not has_record):
        return max((unit for unit in files_by_unit(names_in(folder)) if unit.is_keras), default=None)
    return unit_of(f"{os.path.basename(match[1])}.index") if match else None


def names_in(folder: str) -> list[str]:
    """Returns the names in a folder of this machine; none if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def record_text(newest: Unit, units: Iterable[Unit]) -> str:
    """Returns TensorFlow's record of these checkpoints."""
    lines = [f'model_checkpoint_path: "{newest.name}"']
    return "\n".join([*lines, *(f'all_model_checkpoint_paths: "{unit.name}"' for unit in units)]) + "\n"
