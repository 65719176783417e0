"""Brings the newest whole checkpoint of a store, and the small files, to a folder on this machine.

    the store counts        checkpoints here that do not follow from the newest undamaged one there are removed, and
                            a copy here that differs from the one there is fetched again
    except its successors   what this machine saved after its last upload is newer, and stays if it can be read
    an emptied store        may be another one by mistake: refused, and what is here stays
    damage                  a file with another size or checksum: warn, and take the checkpoint before

Of the other files it fetches those of ps_train (`other_files.OWN`), and those that a training has put there
(`uploaded.json`): below the URL there may be data of the user and other trainings.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Callable

from ps_train.errors import CheckpointError, ClusterLostError, ConfigError, StoppedError
from ps_train.parts.object_store import manifests
from ps_train.parts.object_store.manifests import Manifest, Unit, unit_of
from ps_train.parts.object_store.other_files import (
    DAMAGED,
    FILES,
    KNOWN,
    OWN,
    Known,
    describe_newest,
    is_other,
    is_small,
    local_files,
    names_with,
    read_uploaded,
)
from ps_train.parts.object_store.store import BEST, ObjectStore, RemovedError, digest_of, noticing_full_disk
from ps_train.runtime import logs
from ps_train.storage import run_record

_OTHER_CHECKSUM = "has another checksum than in its manifest"
_MOST_LISTINGS, _PAUSE_SECS = 5, 1.0
_MOST_ASIDE = 1000  # versions of a file that were set aside
_log = logging.getLogger(__name__)


def listing_again(fetch: Callable[[], Any], place: str, stop: threading.Event) -> Any:
    """Returns `fetch()`, which lists a store and reads from it; again if what it reads has been replaced meanwhile.

    Raises:
      ClusterLostError: that happened several times.
      StoppedError: `stop` was set.
    """
    for _ in range(_MOST_LISTINGS):
        try:
            return fetch()
        except RemovedError as error:
            _log.info("%s: %s; listing it again", place, error)
            reason = str(error)
        if stop.wait(_PAUSE_SECS):
            raise StoppedError("stopped", f"stopped while fetching from {place}")
    raise ClusterLostError("store_unreachable", f"{place}: {reason}, {_MOST_LISTINGS} times; checkpoints are "
                           "removed faster than they can be read: give the training a larger --keep_checkpoint_max, "
                           "or try again")


class Fetcher:
    """Fetches from one store to one folder."""

    def __init__(
        self, store: ObjectStore, folder: str, damaged: dict[str, str] | None = None, place: str = "",
        is_keras: bool | None = None,
    ) -> None:
        """Sends nothing yet.

        Args:
          damaged: place + name -> stamp of the files that were found damaged; it grows.
          place: "", or where the folder is in the train_dir, with a slash at its end.
          is_keras: whether the checkpoints of Keras count, or those of graph training; None for both.
        """
        self._store, self._folder, self._place, self._is_keras = store, folder, place, is_keras
        self._damaged = {} if damaged is None else damaged
        self._warned: set[str] = set()  # of these files

    def fetch_for_training(self, is_readable: Callable[[str], bool] = lambda path: True) -> None:
        """Makes the folder what the training continues from.

        Args:
          is_readable: whether a checkpoint on this machine can be read, by the path of its index or Keras file; warns
            if not. The store has no checksums of what was not uploaded.

        Raises:
          CheckpointError: the store has checkpoints, and all of them are damaged.
          RemovedError: what was listed has been replaced.
          StoreError: the store does not answer.
          ConfigError: the disk here is full, or the store has lost all checkpoints that are here.
          OSError: the folder cannot be written.
        """
        names = self._store.names()
        units, known = self.units(names), Known(self._folder)
        before = known.read()
        self._damaged, known_files = dict(before.pop(DAMAGED, {})), before.pop(FILES, None)
        if not self._counts(unit_of(f"{before.get('newest')}{manifests.SUFFIX}")):  # the folder was of the other kind
            before = {}
        newest, _ = self._newest_sound(units, names)
        if not self._follows(before, [unit for unit in units if newest is None or unit >= newest]):
            self._remove_stale(before, units, known_files)
        files = self._fetch_others(known_files, is_new=not units)
        up_to_newest = [unit for unit in units if newest is None or unit <= newest]
        if units and not self._has_later(newest, is_readable) and self.fetch_newest(up_to_newest) is None:
            raise CheckpointError("checkpoint_unreadable", f"--train_dir={self._store.url}: all checkpoints there are "
                                  "damaged; restore one, or remove them to start from new parameters")
        self.below(BEST)._fetch_best(is_readable)  # noqa: SLF001 (of the same class)
        with noticing_full_disk(self._folder):
            known.write({**describe_newest(*self._newest_sound(units, names)), FILES: files,
                         **({DAMAGED: self._damaged} if self._damaged else {})})

    def _fetch_others(
        self, known: Mapping[str, Sequence[int]] | None, *, is_new: bool
    ) -> dict[str, Sequence[int]]:
        """Fetches the other files that the training needs; those that were changed here after their upload stay.

        Args:
          known: the files that were here as in the store, with `local_files`' states; None if that was not noted.
          is_new: whether no training has written to the store.

        Returns:
          `known`, as it is now.
        """
        here, uploaded = local_files(self._folder, is_other), read_uploaded(self._store)
        if uploaded is None and not is_new:  # an older version does not note what it uploads
            names = self._store.names(is_deep=True)
            uploaded = set(names)
        else:
            uploaded = uploaded or set()
            names = names_with(self._store, {os.path.dirname(name) for name in OWN | uploaded} - {""})
        if known is None:
            known = {name: state for name, state in here.items() if names.get(name) == state[0]}
        as_there = {name: state for name, state in here.items() if tuple(known.get(name, ())) == state}
        fetched = [name for name in names if name in OWN | uploaded and is_small(name) and (
            name not in here or (name in as_there and (name in OWN or names[name] != here[name][0])))]
        self.fetch_files(fetched)
        now = local_files(self._folder, lambda name: name in fetched)
        return {**as_there, **now}

    def _counts(self, unit: Unit | None) -> bool:
        """Returns whether a file may be one of this training, by its unit; None for files that belong to none."""
        return unit is None or self._is_keras in (None, unit.is_keras)

    def _has_later(self, newest: Unit | None, is_readable: Callable[[str], bool]) -> bool:
        """Returns whether a readable checkpoint is here that is later than the newest sound one of the store, if any.

        Sets unreadable ones after it aside: the store has one to continue from, which they would replace there.
        """
        here = manifests.files_by_unit(manifests.names_in(self._folder))
        for unit, files in reversed(here.items()):
            if not self._counts(unit) or unit.head not in files or (newest is not None and unit <= newest):
                continue
            if not is_readable(os.path.join(self._folder, unit.head)):
                if newest is not None:
                    self._set_aside(files)
            elif not unit.is_delta:
                self._record(unit)
                return True
        return False

    def _set_aside(self, files: Iterable[str]) -> None:
        """Renames files so that they are no checkpoint: a disk that failed may give them back later."""
        for name in files:
            os.replace(os.path.join(self._folder, name), os.path.join(self._folder, f".unread-{name}"))
        _log.warning("a checkpoint that cannot be read is kept as %s", os.path.join(self._folder, ".unread-*"))

    def _fetch_best(self, is_readable: Callable[[str], bool]) -> None:
        """Fetches the best checkpoint, into its folder, unless a readable one is here that the store does not have."""
        names, here = self._store.names(), manifests.recorded_unit(self._folder)
        units = self.units(names)
        if here is None or (here not in units and not is_readable(os.path.join(self._folder, here.head))):
            self.fetch_newest(units)
        elif here in units and self._is_sound(here, manifests.read_manifest(self._store, here), names):
            self.fetch_unit(here)

    def _remove_stale(
        self, before: Mapping[str, Any], units: Collection[Unit], known: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Removes what is here, but keeps other files that changed here since they were fetched or uploaded.

        Raises:
          ConfigError: the store has no checkpoint, and this machine has some.
        """
        kept = {run_record.LAUNCH_NAME, *([manifests.RECORD] if self._is_keras else [])}
        names = {name: state for name, state in local_files(self._folder).items()
                 if self._counts(unit_of(os.path.basename(name))) and name not in kept}
        here = [unit.name for unit, files in manifests.files_by_unit(names).items() if unit.head in files]
        if here and not units:
            raise ConfigError("store_emptied", f"--train_dir: {self._store.url} has no checkpoint, though this machine "
                              f"has uploaded {before['newest']} there; let the URL, or the address in the environment, "
                              "be that of the store which has it; to go on from the checkpoints on this machine, "
                              f"remove {os.path.join(self._folder, KNOWN)}; to start from new parameters, remove "
                              f"{self._folder}")
        if here:
            _log.warning("what is on this machine does not follow from %s, and is removed: %s", self._store.url,
                         ", ".join(here))
        there = self._store.names(is_deep=True)
        if known is None:  # then a file of the same size counts as a copy
            known = {name: state for name, state in names.items() if there.get(name) == state[0]}
        changed = {name for name, state in names.items()
                   if is_other(name) and name not in OWN and tuple(known.get(name, ())) != state}
        for name in sorted(changed & there.keys()):
            if is_small(name):  # another machine may have written it; event files are of one machine
                self._keep_beside(name)
        self._remove([name for name in names if name not in changed])

    def _keep_beside(self, name: str) -> None:
        """Renames a file that was changed here, so that the store's can be fetched."""
        folder, basename = os.path.split(os.path.join(self._folder, name))
        names = (f".changed-{basename}", *(f".changed-{number}-{basename}" for number in range(2, _MOST_ASIDE)))
        aside = next(path for path in (os.path.join(folder, name) for name in names) if not os.path.exists(path))
        os.replace(os.path.join(folder, basename), aside)
        _log.warning("%s was changed on this machine after its last upload: that is kept as %s", name, aside)

    def _newest_sound(self, units: Sequence[Unit], names: Mapping[str, int]) -> tuple[Unit | None, Manifest | None]:
        """Returns the newest unit of which no damage is known, nor of its checkpoint, and its manifest."""
        for unit in reversed(units):
            manifest, checkpoint = manifests.read_manifest(self._store, unit), unit._replace(delta=-1)
            has_checkpoint = checkpoint in units and (not unit.is_delta or self._is_sound(
                checkpoint, manifests.read_manifest(self._store, checkpoint), names))
            if has_checkpoint and self._is_sound(unit, manifest, names):
                return unit, manifest
        return None, None

    def _is_sound(self, unit: Unit, manifest: Manifest | None, names: Mapping[str, int]) -> bool:
        """Returns whether no damage of a unit is known before it is fetched; warns otherwise."""
        for name, (size, _) in _expected(unit, manifest, names).items():
            if fault := self._known_fault(name, size, names):
                self._warn(unit, name, fault)
                return False
        return True

    def _warn(self, unit: Unit, name: str, fault: str) -> None:
        if name not in self._warned:
            _log.warning("%s/%s is damaged: %s %s; it is skipped", self._store.url, unit.name, name, fault)
            self._warned.add(name)

    def _follows(self, before: Mapping[str, Any], units: Collection[Unit]) -> bool:
        """Returns whether what is here follows from the store: from one of its newest units.

        Args:
          before: what this machine knew of the newest one.
          units: the newest undamaged one, and the damaged ones after it, which it may have been before.
        """
        noted = unit_of(f"{before.get('newest')}{manifests.SUFFIX}")
        uploading, _ = manifests.read_uploading(self._store)
        if noted and noted.name == uploading:  # this machine was killed while it replaced it there
            return True
        if not units:
            return not before
        known = [(unit, manifests.read_manifest(self._store, unit)) for unit in units]
        if before in [describe_newest(*pair) for pair in known]:
            return True
        is_removed = noted is not None and noted > max(units)  # by somebody who goes back to an earlier one
        return not is_removed and any(manifest and self._has(manifest) for _, manifest in known)

    def below(self, folder: str) -> Fetcher:
        """Returns what fetches a folder in this one."""
        return Fetcher(self._store.below(folder), os.path.join(self._folder, folder), self._damaged,
                       f"{self._place}{folder}/", self._is_keras)

    def fetch_files(self, names: Iterable[str]) -> None:
        """Fetches files by their names; raises as `fetch_newest` does."""
        for name in names:
            self._store.get(name, os.path.join(self._folder, name))

    def fetch_newest_of_all(self) -> None:
        """Fetches the newest undamaged unit of the store; raises as `fetch_newest` does."""
        self.fetch_newest(self.units(self._store.names()))

    def units(self, names: Collection[str]) -> list[Unit]:
        """Returns the units that exist in the store, whose objects have these names, in order.

        Raises:
          StoreError: the store does not answer.
        """
        uploading, _ = manifests.read_uploading(self._store)
        units = manifests.whole_units([name for name in names if "/" not in name], uploading)
        return [unit for unit in units if self._counts(unit)]

    def fetch_newest(self, units: Collection[Unit]) -> Unit | None:
        """Fetches the newest of these units that is undamaged, and its newest delta; returns the checkpoint, or None.

        Raises:
          StoreError: the store does not answer.
          OSError: the folder cannot be written.
        """
        for checkpoint in sorted((unit for unit in units if not unit.is_delta), reverse=True):
            if not self.fetch_unit(checkpoint):
                continue
            deltas = (unit for unit in units if unit.is_delta and unit.step == checkpoint.step)
            next(filter(self.fetch_unit, sorted(deltas, reverse=True)), None)
            self._record(checkpoint)
            return checkpoint
        return None

    def _record(self, checkpoint: Unit) -> None:
        """Lets TensorFlow's record name a checkpoint as the newest; Keras has none."""
        if not checkpoint.is_keras and manifests.recorded_unit(self._folder, is_keras=False) != checkpoint:
            record = os.path.join(self._folder, manifests.RECORD)
            with noticing_full_disk(self._folder), open(record, "w", encoding="utf-8") as file:
                file.write(manifests.record_text(checkpoint, [checkpoint]))

    def fetch_unit(self, unit: Unit) -> bool:
        """Fetches the files of a unit that differ here; warns, and returns false, if one there is missing or damaged.

        Raises:
          RemovedError: the unit does not exist any more.
          StoreError: the store does not answer.
          OSError: the folder cannot be written.
        """
        manifest = manifests.read_manifest(self._store, unit)
        names = self._store.names()
        expected = _expected(unit, manifest, names)
        if (manifest and unit.manifest not in names) or unit.head not in expected:
            raise RemovedError(f"{unit.name} was removed in the meantime")
        if not self._is_sound(unit, manifest, names):
            self._remove(expected)
            return False
        lacking = [name for name in expected if not self._has_file(name, *expected[name])]
        if lacking:
            num_bytes = sum(expected[name][0] for name in lacking)
            _log.info("fetching %s/%s (%s)", self._store.url, unit.name, logs.readable_bytes(num_bytes))
        for name in sorted(lacking, key=lambda name: name.endswith(".index")):  # last: without it no checkpoint
            if fault := self._fetch_checked(name, *expected[name]):
                self._warn(unit, name, fault)
                self._remove(expected)
                return False
        return True

    def _known_fault(self, name: str, size: int, names: Mapping[str, int]) -> str:
        """Returns what is wrong with a file, if that is known before it is fetched."""
        if name not in names:
            return "is missing"
        if names[name] != size:
            return f"has {names[name]} bytes instead of {size}"
        place = self._place + name
        is_damaged = place in self._damaged and self._damaged[place] == self._store.stamp(name)
        return f"{_OTHER_CHECKSUM}, as at the last start" if is_damaged else ""

    def _fetch_checked(self, name: str, size: int, digest: str) -> str:
        """Fetches a file; returns "" or what is wrong with it."""
        path = os.path.join(self._folder, name)
        self._store.get(name, path)
        if os.path.getsize(path) != size:
            return f"has {os.path.getsize(path)} bytes instead of {size}"
        if not digest or digest_of(path) == digest:
            return ""
        self._damaged[self._place + name] = self._store.stamp(name)
        return _OTHER_CHECKSUM

    def _has(self, manifest: Manifest) -> bool:
        """Returns whether the folder has these files: this machine was killed before it noted that it uploaded them."""
        return all(self._has_file(name, *state) for name, state in manifest.files.items())

    def _has_file(self, name: str, size: int, digest: str) -> bool:
        """Returns whether a file is here as it is in the store; without a checksum, of that size."""
        path = os.path.join(self._folder, name)
        return (os.path.exists(path) and os.path.getsize(path) == size
                and (not digest or digest_of(path) == digest))

    def _remove(self, names: Collection[str]) -> None:
        for name in sorted(names, key=lambda name: not name.endswith(".index")):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self._folder, name))


def _expected(unit: Unit, manifest: Manifest | None, names: Mapping[str, int]) -> Mapping[str, tuple[int, str]]:
    """Returns name -> (bytes, SHA-256, or "" without a manifest) of the files that a unit must have."""
    if manifest:
        return manifest.files
    return {name: (names[name], "") for name in manifests.files_by_unit(names).get(unit, [])}
