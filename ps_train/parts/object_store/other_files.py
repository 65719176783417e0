"""The files of a train_dir that are no checkpoints: which of them go into a store and come back, and what is noted.

    OWN             files of ps_train, by their names; a training and verbs fetch them
    uploaded.json   in the store: {"files": [name, ...]}, what else a training has put there, as a callback's files
    .store.json     in the folder: what this machine knows of the store, {"newest": unit, "manifest": SHA-256,
                    "damaged": {name: stamp}, "files": {name: [bytes, time in ns]}}

A damaged file is fetched once. A file is uploaded if it was changed here since it was last uploaded or fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, Callable

from ps_train.parts.object_store import manifests
from ps_train.parts.object_store.manifests import Manifest, Unit, unit_of
from ps_train.parts.object_store.store import BEST, ObjectStore
from ps_train.storage import folder_lock, folder_record, journal, run_record

KNOWN, DAMAGED, FILES = ".store.json", "damaged", "files"
UPLOADED = "uploaded.json"
# The last two are those of the parts selection and control, which may be missing.
OWN = frozenset({journal.JOURNAL_NAME, run_record.RUN_NAME, run_record.LAUNCH_NAME, folder_record.RECORD_NAME,
                 f"{BEST}/{folder_record.RECORD_NAME}", "selection.json", "publish.json"})
_EVENTS = "events.out.tfevents."
_UNFINISHED_FOLDER = re.compile(r".*_temp|temp-(old-)?\d+(-\w+)?")  # of a checkpoint; of an export
_NEVER = (folder_lock.LOCK_NAME, manifests.UPLOADING, manifests.RECORD)


class Known:
    """What this machine knows of the store: the newest unit and the files that it has uploaded or fetched."""

    def __init__(self, folder: str) -> None:
        """Reads nothing yet."""
        self._path = os.path.join(folder, KNOWN)

    def read(self) -> dict[str, Any]:
        """Returns it, or {} if this machine knows nothing."""
        try:
            with open(self._path, encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def write(self, known: dict[str, Any]) -> None:
        """Replaces it; raises OSError if the disk is full."""
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{self._path}.new", self._path)

    def note_newest(self, unit: Unit, manifest: Manifest) -> None:
        """Replaces what it says of the newest unit; raises OSError as `write` does."""
        self.write({**self.read(), **describe_newest(unit, manifest)})

    def files(self) -> dict[str, tuple[int, int]]:
        """Returns the states, as of `local_files`, in which files of this machine are in the store."""
        return {name: (size, time_ns) for name, (size, time_ns) in self.read().get(FILES, {}).items()}

    def note_files(self, files: Mapping[str, tuple[int, int]]) -> None:
        """Replaces what `files` returns; raises OSError as `write` does."""
        self.write({**self.read(), FILES: files})

    def newest_step(self) -> int | None:
        """Returns the step of the newest unit, or None if this machine knows none."""
        unit = unit_of(f"{self.read().get('newest')}{manifests.SUFFIX}")
        return unit.step if unit else None


def describe_newest(unit: Unit | None, manifest: Manifest | None) -> dict[str, Any]:
    """Returns the newest unit of a store as `Known` keeps it; {} for an empty store."""
    if unit is None:
        return {}
    text = manifest.text() if manifest else ""
    return {"newest": unit.name, "manifest": hashlib.sha256(text.encode()).hexdigest()}


def is_event_file(name: str) -> bool:
    """Returns whether a file has summaries for TensorBoard."""
    return os.path.basename(name).startswith(_EVENTS)


def is_small(name: str) -> bool:
    """Returns whether a file may be fetched by itself: not checkpoints, events, logs, and what belongs to the store."""
    folder, _, basename = name.rpartition("/")
    return not (folder.partition("/")[0] in ("logs", "profile") or is_event_file(name)
                or basename in _NEVER or name == UPLOADED or unit_of(basename))


def is_other(name: str) -> bool:
    """Returns whether a file is uploaded by itself, and not as a part of a checkpoint."""
    basename = os.path.basename(name)
    return unit_of(basename) is None and basename not in (manifests.RECORD, manifests.UPLOADING) and name != UPLOADED


def read_uploaded(store: ObjectStore) -> set[str] | None:
    """Returns what `uploaded.json` names below the URL; None if there is none that can be read.

    Raises:
      StoreError: the store does not answer.
    """
    try:
        names = {str(name) for name in json.loads(store.read(UPLOADED) or b"")[FILES]}
    except (ValueError, KeyError, TypeError):
        return None
    # Whoever may write to the store must not choose files outside of the folder.
    return {name for name in names if not os.path.isabs(name) and ".." not in name.split("/")}


def names_with(store: ObjectStore, folders: Collection[str]) -> dict[str, int]:
    """Returns name -> bytes of the objects in a store and in these folders below: others may have any number of them.

    Raises:
      StoreError: the store does not answer.
    """
    names = store.names()
    for folder in sorted(folders):
        names |= {f"{folder}/{name}": size for name, size in store.below(folder).names().items()}
    return names


def write_uploaded(store: ObjectStore, names: Collection[str]) -> None:
    """Writes `uploaded.json`; raises StoreError if the store fails."""
    store.write(UPLOADED, json.dumps({FILES: sorted(names)}, indent=1).encode())


def local_files(folder: str, is_wanted: Callable[[str], bool] = lambda name: True) -> dict[str, tuple[int, int]]:
    """Returns name -> (bytes, modification time in ns) of the files that belong into a store, and are wanted.

    They are those of a train_dir without locks, logs of a launcher, and what is being written.
    """
    found = {}
    for place, folders, names in os.walk(folder):
        inside = os.path.relpath(place, folder)
        folders[:] = [name for name in folders if not (
            name.startswith(".") or _UNFINISHED_FOLDER.fullmatch(name) or (inside, name) == (".", "logs"))]
        for name in names:
            relative = name if inside == "." else f"{inside}/{name}"
            if not _is_unfinished(name) and is_wanted(relative):
                with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                    status = os.stat(os.path.join(place, name))
                    found[relative] = (status.st_size, status.st_mtime_ns)
    return found


def _is_unfinished(name: str) -> bool:
    return (name.startswith((".", folder_lock.LOCK_NAME)) or ".tempstate" in name or ".tmp" in name
            or name.endswith(".new"))
