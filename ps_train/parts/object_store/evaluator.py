"""Gives an evaluator a folder on its machine, in which the newest checkpoint of the store appears.

    the store --checkpoint, journal--> folder --> evaluate --summaries--> the store

It reads TensorFlow's record `checkpoint` each time the evaluator looks for a checkpoint, and the journal, which grows
with the training, if it has changed. The chief announces that training is done when its last checkpoint is in the
store, so the last one is evaluated, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
from typing import Any

from ps_train.parts.object_store import fetching, manifests, other_files
from ps_train.parts.object_store.flags import refuse_missing_packages
from ps_train.parts.object_store.patience import PatientStore, insist
from ps_train.parts.object_store.reading import naming_url, temporary_folder
from ps_train.parts.object_store.store import RemovedError, open_store
from ps_train.storage import journal

_NUM_KEPT = 2  # the newest, and the one that may be evaluated just now


class StoreEvaluations:
    """What an evaluator asks of its store."""

    def __init__(self, store: PatientStore, folder: str, stop: threading.Event) -> None:
        """Fetches nothing yet."""
        self._store, self._folder, self._stop = store, folder, stop
        self._record: bytes | None = None
        self._first_journal: bytes | None = None  # may be that of an earlier training, which has ended
        self._journal_stamp: str | None = None
        self._sent: dict[str, tuple[int, int]] = {}

    def has_new(self) -> bool:
        """Brings the journal, which says how training ended; returns whether there is another newest checkpoint.

        Raises:
          ClusterLostError: the store does not answer in time.
          ConfigError: the bucket or a right is missing.
          StoppedError: the task was asked to stop.
        """
        self._bring_journal()
        return self._store.read(manifests.RECORD) not in (None, self._record)

    def _bring_journal(self) -> None:
        try:
            stamp = self._store.stamp(journal.JOURNAL_NAME)
        except RemovedError:
            stamp = ""  # there is none yet
        if stamp == self._journal_stamp:
            return
        text = self._store.read(journal.JOURNAL_NAME) or b""
        if self._first_journal is None:
            self._first_journal = text
        elif text != self._first_journal:
            with open(os.path.join(self._folder, journal.JOURNAL_NAME), "wb") as file:
                file.write(text)
        self._journal_stamp = stamp

    def fetch(self) -> None:
        """Brings the newest checkpoint to the folder; raises as `has_new` does.

        Raises:
          ConfigError: the disk here is full, too.
        """
        record = self._store.read(manifests.RECORD)  # before: what is newer than the record is fetched the next time
        fetching.listing_again(self._fetch_newest, f"{self._store.flag}={self._store.url}", self._stop)
        self._record = record

    def _fetch_newest(self) -> None:
        names = self._store.names()
        fetcher = fetching.Fetcher(self._store, self._folder, is_keras=False)
        newest = fetcher.fetch_newest(fetcher.units(names))
        if newest is None:
            return
        here = manifests.files_by_unit(os.listdir(self._folder))
        # Later ones were removed from the store, as for a new training: they would hide its checkpoints.
        kept = sorted({unit.step for unit in here if unit.step <= newest.step})[-_NUM_KEPT:]
        for unit, files in here.items():
            if unit.step not in kept:
                for name in reversed(files):  # the index first: without it nobody takes the rest for a checkpoint
                    os.remove(os.path.join(self._folder, name))

    def send(self) -> None:
        """Uploads the summaries that were written since the last call; raises as `has_new` does."""
        for name, state in other_files.local_files(self._folder, other_files.is_event_file).items():
            if self._sent.get(name) != state:
                self._store.put(name, os.path.join(self._folder, name))
                self._sent[name] = state


@contextlib.contextmanager
def evaluating_config(config: Any, stop: threading.Event) -> Iterator[Any]:
    """Yields the Config of an evaluator with a folder on this machine as its train_dir.

    Raises:
      ConfigError: the store cannot be used.
      ClusterLostError: the store did not answer in time.
      StoppedError: `stop` was set.
    """
    url = config.train_dir
    refuse_missing_packages(url)
    with temporary_folder() as folder, naming_url(folder, url.rstrip("/")):
        secs = config.start_timeout_secs
        store = insist(lambda: open_store(url), f"--train_dir={url}", secs, stop)
        evaluations = StoreEvaluations(PatientStore(store, secs, stop), folder, stop)
        yield dataclasses.replace(config, train_dir=folder, train_url=url, evaluations=evaluations)
