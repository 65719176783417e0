"""Stores in memory and on disk, one that fails, and folders with files that look like checkpoints."""

from __future__ import annotations

import pathlib
import uuid

import pytest

from ps_train.parts.object_store import fetching, uploading
from ps_train.parts.object_store.store import ObjectStore, StoreError, open_store

pytest.importorskip("fsspec", reason="the extra `stores` is not installed")


class Killed(BaseException):
    """The process ends here."""


class FaultyStore(ObjectStore):
    """A store that fails in the request with this number, counted from 0.

    Attributes:
      requests: (method, name) of each request that changes something.
    """

    def __init__(self, store: ObjectStore, fault: BaseException | None = None, at: int = -1) -> None:
        super().__init__(store._fs, store._root, store.url)
        self._fault, self._at = fault, at
        self.requests: list[tuple[str, str]] = []

    def below(self, folder):
        return super().below(folder)

    def _note(self, *request):
        self.requests.append(request)
        if self._fault is not None and len(self.requests) - 1 == self._at:
            raise self._fault

    def put(self, name, path):
        self._note("put", name)
        super().put(name, path)

    def write(self, name, content):
        self._note("write", name)
        super().write(name, content)

    def remove(self, names):
        for name in names:
            self._note("remove", name)
            super().remove([name])


def new_store(protocol: str, tmp_path: pathlib.Path) -> ObjectStore:
    """Returns an empty store; its folder has a space in its name."""
    root = f"{tmp_path}/store" if protocol == "file" else f"/{uuid.uuid4().hex}"
    return open_store(f"{protocol}://{root}/my run")


def save(folder: pathlib.Path, step: int, content: str = "", delta: int | None = None) -> None:
    """Writes files that look like a checkpoint, or a delta, and the record."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"model.ckpt-{step}" + (f".delta-{delta}" if delta else "")
    for suffix in ("data-00000-of-00001", "meta", "index"):
        (folder / f"{name}.{suffix}").write_text(f"{name} {suffix} {content}" * 20)
    if delta is None:
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')


def remove(folder: pathlib.Path, step: int) -> None:
    """Removes a checkpoint, as training does with old ones."""
    for path in folder.glob(f"model.ckpt-{step}.*"):
        path.unlink()


def mirror(store: ObjectStore, folder: pathlib.Path, keep_max: int = 5) -> uploading.CheckpointMirror:
    """Returns what uploads the checkpoints of a folder."""
    return uploading.CheckpointMirror(store, str(folder), keep_max, lambda: None)


def fetched(store: ObjectStore, folder: pathlib.Path) -> list[str]:
    """Fetches into a folder, as a training at its start does; returns the checkpoints and deltas that it then has."""
    folder.mkdir(exist_ok=True)
    fetching.Fetcher(store, str(folder)).fetch_for_training()
    return sorted(path.name.removesuffix(".index").removeprefix("model.ckpt-") for path in folder.glob("*.index"))


__all__ = ["FaultyStore", "Killed", "StoreError", "fetched", "mirror", "new_store", "remove", "save"]
