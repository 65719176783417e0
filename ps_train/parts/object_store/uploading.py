"""Mirrors a folder on this machine to a store, in a thread beside training.

    a checkpoint   hard links, or copies --> note of the upload --> data --> index --> manifest --> record `checkpoint`
                   then the checkpoints beyond --keep_checkpoint_max are removed there
    other files    whole, if they have changed here: after a checkpoint, once a minute, and at the end

Nothing is queued: after an upload, the newest checkpoint is next, and those between are skipped. If the store fails,
training goes on, and the upload is tried again after a growing pause.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Callable

from ps_train.errors import FolderLostError
from ps_train.parts.object_store import manifests, other_files
from ps_train.parts.object_store.manifests import Manifest, Unit, unit_of
from ps_train.parts.object_store.store import BEST, ObjectStore, StoreError
from ps_train.runtime import logs

_POLL_SECS = 1.0  # how often the folder is looked at
_FILES_SECS = 60.0
_FIRST_PAUSE_SECS = 1.0
_MAX_PAUSE_SECS = 60.0
_JOIN_SECS = 0.1
_LINKS = ".upload"  # of the files that are uploaded, which training may remove meanwhile
_log = logging.getLogger(__name__)


class CheckpointMirror:
    """Uploads the newest checkpoint of one folder, and its newest delta.

    Attributes:
      uploaded: unit -> the sizes and times of its files, of the units that are in the store as they are here.
    """

    def __init__(
        self, store: ObjectStore, folder: str, keep_max: int, check_lock: Callable[[], None],
        note_uploaded: Callable[[Unit, Manifest, bool], None] = lambda *_: None, *, has_one: bool = False,
        is_keras: bool | None = None,
    ) -> None:
        """Sends nothing yet.

        Args:
          store: the folder of the checkpoints there.
          folder: the same on this machine.
          keep_max: checkpoints to keep in the store.
          check_lock: called before a checkpoint becomes visible or is removed.
          note_uploaded: takes each unit that is visible there, its manifest, and whether it was sent.
          has_one: whether the store has no other checkpoint than the last one, even one of a later step.
          is_keras: as in `manifests.recorded_unit`.
        """
        self._has_one, self._is_keras = has_one, is_keras
        self._store, self._folder = store, folder
        self._keep_max, self._check_lock, self._note_uploaded = keep_max, check_lock, note_uploaded
        self._links = os.path.join(folder, _LINKS)
        self._is_copying = False
        self._arrived: dict[str, str] = {}  # name -> checksum of the files of the upload under way that are there
        self.uploaded: dict[Unit, Any] = {}
        shutil.rmtree(self._links, ignore_errors=True)

    def waiting(self) -> list[Unit]:
        """Returns the newest checkpoint and its newest delta, each if it is not in the store."""
        newest = manifests.recorded_unit(self._folder, self._is_keras)
        units = manifests.files_by_unit(manifests.names_in(self._folder))
        if newest not in units:  # none, or it was removed just now
            return []
        deltas = [unit for unit, files in units.items()
                  if unit.is_delta and unit.step == newest.step and unit.head in files]
        return [unit for unit in (newest, *deltas[-1:]) if self.uploaded.get(unit) != self._state(units[unit])]

    def upload(self, *, is_last: bool = False) -> bool:
        """Uploads what `waiting` returns; returns whether that was anything.

        Args:
          is_last: whether training has ended and saves no more.

        Raises:
          StoreError: the store fails.
          FolderLostError: another training has the store.
          OSError: the disk is too full for the copies that a folder without hard links needs, or it fails.
        """
        units = self.waiting()
        for unit in units:
            names = self._store.names()  # first: a store that is away costs no copies
            with self._linked(unit, is_last) as files:
                if files:
                    self._upload(unit, files, names)
        return bool(units)

    def _state(self, files: Sequence[str]) -> tuple:
        states = []
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(os.path.join(self._folder, name))
                states.append((name, status.st_size, status.st_mtime_ns))
        return tuple(states)

    @contextlib.contextmanager
    def _linked(self, unit: Unit, is_last: bool) -> Iterator[list[str]]:
        """Yields the names of the unit's files, which stay in `_links` while the body runs; none if it was removed."""
        files = manifests.files_by_unit(manifests.names_in(self._folder)).get(unit, [])
        state = self._state(files)
        shutil.rmtree(self._links, ignore_errors=True)
        try:
            os.makedirs(self._links)
            try:
                self._hold(files, is_last)
            except FileNotFoundError:
                files = []
            # A copy takes time, in which another checkpoint of the same name may have come: the next look takes that.
            yield files if self._state(files) == state else []
        finally:  # also half a copy: the next save may need its space
            shutil.rmtree(self._links, ignore_errors=True)

    def _hold(self, files: Sequence[str], is_last: bool) -> None:
        """Keeps files of the folder in `_links`: by hard links or, where the file system has none, by copies."""
        paths = {os.path.join(self._folder, name): os.path.join(self._links, name) for name in files}
        try:
            for file, held in paths.items():
                os.link(file, held)
            return
        except FileNotFoundError:
            raise
        except OSError as error:  # EPERM, ENOTSUP, EMLINK, ...: the reasons of file systems are many
            reason = error.strerror
        self._check_space(sum(map(os.path.getsize, paths)), is_last)
        for file, held in paths.items():
            if not os.path.exists(held):
                shutil.copyfile(file, held)
        if not self._is_copying:
            _log.warning("cannot make hard links in %s: %s; each checkpoint is copied there while it is uploaded, "
                         "which takes its size once more", self._folder, reason)
        self._is_copying = True

    def _check_space(self, num_bytes: int, is_last: bool) -> None:
        """Raises OSError if a copy of that size would leave training too little space for its next save."""
        needed, what = (num_bytes, "") if is_last else (2 * num_bytes, " and the next save")
        disk = shutil.disk_usage(self._folder)
        if disk.total and disk.free < needed:  # some file systems do not say, and have 0 of all
            raise OSError(f"{self._folder} has no hard links, and {logs.readable_bytes(disk.free)} free of the "
                          f"{logs.readable_bytes(needed)} needed for a copy of the checkpoint{what}; make room there")

    def _upload(self, unit: Unit, files: Sequence[str], names: Collection[str]) -> None:
        start_secs = time.monotonic()
        state = self._state(files)
        manifest = manifests.make_manifest(self._links, files)
        is_new = unit.manifest not in names or manifests.read_manifest(self._store, unit) != manifest
        if is_new:
            self._send(unit, manifest, names)
        # Again if it was there already: an attempt before this one may have failed in the midst of these.
        self._note_uploaded(unit, manifest, is_new)
        self._check_lock()
        self._record_and_prune(unit)
        self.uploaded[unit] = state
        if is_new:
            _log.info("uploaded %s/%s, %s in %.1f s%s", self._store.url, unit.name,
                      logs.readable_bytes(sum(size for size, _ in manifest.files.values())),
                      time.monotonic() - start_secs, self._behind(unit))

    def _send(self, unit: Unit, manifest: Manifest, names: Collection[str]) -> None:
        self._check_lock()
        files = list(manifest.files)
        self._begin(unit, files, names)
        for name in files:
            if self._arrived.get(name) != (digest := manifest.files[name][1]):
                self._store.put(name, os.path.join(self._links, name))
                self._arrived[name] = digest
        self._check_lock()
        self._store.write(unit.manifest, manifest.text().encode())

    def _behind(self, unit: Unit) -> str:
        newest = manifests.recorded_unit(self._folder, self._is_keras)
        return f"; {newest.step - unit.step} steps behind the newest checkpoint" if (
            newest and newest.step > unit.step) else ""

    def _begin(self, unit: Unit, files: Sequence[str], names: Collection[str]) -> None:
        """Notes the upload, after removing the remains of one that was killed or given up."""
        unfinished, remains = manifests.read_uploading(self._store)
        if unfinished != unit.name:
            self._arrived = {}
            is_whole = f"{unfinished}{manifests.SUFFIX}" in names  # it was killed after the manifest
            if unfinished and not is_whole:
                _log.info("removing what an upload of %s has left in %s", unfinished, self._store.url)
                self._store.remove([name for name in remains if unit_of(name)])
            self._store.write(manifests.UPLOADING, json.dumps({"unit": unit.name, "files": list(files)}).encode())
        if unit.manifest in names:  # other files of this name were there
            self._store.remove([unit.manifest])

    def _record_and_prune(self, unit: Unit) -> None:
        """Writes the record; removes old checkpoints, deltas that a newer one replaces, and the note of the upload."""
        # A training of the other kind may have used the folder before.
        names = [name for name in self._store.names()
                 if (other := unit_of(name)) is None or other.is_keras == unit.is_keras]
        unfinished, _ = manifests.read_uploading(self._store)
        units = manifests.whole_units(names, unfinished if unfinished != unit.name else "")
        up_to_unit = [other for other in units if not other.is_delta and other.step <= unit.step]
        if not up_to_unit:  # somebody has removed the checkpoint of a delta
            self.uploaded.clear()
            return
        kept = up_to_unit[-self._keep_max:]
        if not unit.is_keras:
            self._store.write(manifests.RECORD, manifests.record_text(kept[-1], kept).encode())
        deltas = [other for other in units if other.is_delta and other.step == unit.step]
        files = manifests.files_by_unit(names)  # also what a process that was killed in the midst of this has left
        old = [other for other in files if other.step < kept[0].step] + deltas[:-1]
        if self._has_one:
            old = [other for other in files if other != unit]
        try:
            for other in old:  # the index before the data: without it nobody takes the rest for a checkpoint
                self._store.remove([name for name in (other.manifest, *reversed(files[other])) if name in names])
                self.uploaded.pop(other, None)
            if unfinished == unit.name:
                self._store.remove([manifests.UPLOADING])
        except StoreError as error:  # they cost space only
            _log.warning("cannot remove old checkpoints in %s: %s; the next upload tries again", self._store.url, error)


class Uploader:
    """The thread that uploads the checkpoints and files of one training."""

    def __init__(
        self, store: ObjectStore, folder: str, keep_max: int, check_lock: Callable[[], None],
        is_keras: bool | None = None,
    ) -> None:
        """Starts nothing yet; see `CheckpointMirror`."""
        self._store, self._folder, self._known, self._is_keras = store, folder, other_files.Known(folder), is_keras
        self._mirrors = [
            CheckpointMirror(store, folder, keep_max, check_lock, self._note_uploaded, is_keras=is_keras),
            CheckpointMirror(store.below(BEST), os.path.join(folder, BEST), 1, check_lock,
                             has_one=True)]
        self._uploaded_files = self._known.files()
        self._noted: set[str] | None = None  # what `uploaded.json` names
        self._files_secs = time.monotonic()
        self._wake = threading.Event()
        self._asked = self._done = 0  # the number of the newest flush, and of the newest that is done
        self._reason, self._is_over = "", False
        self._uploaded_secs: float | None = None
        self._fetched_step = self._known.newest_step()  # in the store, before this process uploads
        self._thread = threading.Thread(target=self._work, daemon=True, name="uploading")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def flush(self, remaining_secs: Callable[[], float]) -> str:
        """Uploads what is there now; returns "" or, when no time remains, what is missing and why."""
        self._asked += 1
        number = self._asked
        self._wake.set()
        while self._thread.is_alive() and self._done < number and remaining_secs() > 0:
            self._thread.join(_JOIN_SECS)
        if self._done >= number:
            return ""
        missing = [unit.name for mirror in self._mirrors for unit in mirror.waiting()]
        return f"{' and '.join(missing) or 'the last files'} ({self._why() or 'the upload is slow'})"

    def progress(self) -> dict[str, Any]:
        """Returns, for JSON: the step of the newest checkpoint there, how many steps it is behind, and why.

        `secs` is the time since the last upload of this process; values are None without one.
        """
        newest = manifests.recorded_unit(self._folder, self._is_keras)
        steps = [unit.step for unit in list(self._mirrors[0].uploaded)]
        step = max(steps, default=self._fetched_step)
        behind = newest.step - (step or 0) if newest else 0
        secs = None if self._uploaded_secs is None else time.monotonic() - self._uploaded_secs
        return {"step": step, "behind_steps": max(0, behind), "secs": secs, "reason": self._why()}

    def _why(self) -> str:
        return self._store.calls.silence() or self._reason

    def finish(self, remaining_secs: Callable[[], float]) -> str:
        """Does what `flush` does, and ends the thread."""
        try:
            return self.flush(remaining_secs)
        finally:
            self._is_over = True
            self._wake.set()

    def _note_uploaded(self, unit: Unit, manifest: Manifest, is_new: bool) -> None:
        if is_new:
            self._uploaded_secs = time.monotonic()
        self._known.note_newest(unit, manifest)

    def _work(self) -> None:
        with self._store.calls.watched(self._store.url):
            self._keep_uploading()

    def _keep_uploading(self) -> None:
        pause_secs = 0.0
        while not self._is_over:
            self._wake.clear()
            asked = self._asked  # before it looks: what was there then is uploaded after it
            try:
                self._upload(is_last=asked > self._done)
                self._done, pause_secs, self._reason = asked, 0.0, ""
            except FolderLostError:  # the lock has stopped the training
                return
            except Exception as error:  # noqa: BLE001 (the thread must go on, whatever a library raises)
                pause_secs = min(2 * pause_secs or _FIRST_PAUSE_SECS, _MAX_PAUSE_SECS)
                if asked:  # the end is near
                    pause_secs = _FIRST_PAUSE_SECS
                self._reason = str(error) or type(error).__name__
                _log.warning("cannot upload to %s: %s; training goes on, the next try is in %.3g s", self._store.url,
                             self._reason, pause_secs, exc_info=not isinstance(error, (StoreError, OSError)))
            self._wake.wait(pause_secs or _POLL_SECS)

    def _upload(self, is_last: bool) -> None:
        has_uploaded = [mirror.upload(is_last=is_last) for mirror in self._mirrors]
        if is_last or any(has_uploaded) or time.monotonic() - self._files_secs > _FILES_SECS:
            self._files_secs = time.monotonic()
            self._upload_files()

    def _upload_files(self) -> None:
        changed = {name: state for name, state in other_files.local_files(self._folder, other_files.is_other).items()
                   if self._uploaded_files.get(name) != state}
        self._note({name for name in changed if other_files.is_small(name)} - other_files.OWN)
        try:
            for name, state in changed.items():
                if self._upload_file(name):
                    self._uploaded_files[name] = state
        finally:
            with contextlib.suppress(OSError):  # the disk is full: the next training here uploads them again
                self._known.note_files(self._uploaded_files)

    def _upload_file(self, name: str) -> bool:
        """Uploads a file; returns false if it was removed in the meantime."""
        path = os.path.join(self._folder, name)
        try:
            self._store.put(name, path)
        except (StoreError, FileNotFoundError):
            if os.path.exists(path):
                raise
            return False
        return True

    def _note(self, names: set[str]) -> None:
        """Lets `uploaded.json` name these files, too; before the first of them is there."""
        if self._noted is None:
            self._noted = other_files.read_uploaded(self._store)
        if self._noted is None or not names <= self._noted:
            # A store of an older version has no such file: all that was fetched may be the training's.
            noted = names | (set(self._uploaded_files) if self._noted is None else self._noted)
            other_files.write_uploaded(self._store, noted)
            self._noted = noted
