"""Gives a task with a URL as its --train_dir a folder on this machine, in which everything else works as ever.

    chief    lock the store --> fetch --> train and evaluate, uploading beside it --> wait for the uploads --> unlock
    others   only the folder: nothing of them goes into the store, but for the summaries of an evaluator (evaluator.py)

The chief waits for the last checkpoint before it announces that training is done, too: until then the ps have the
parameters, if it is killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import secrets
import struct
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

from ps_train.config.folders import local_folder
from ps_train.config.task import Config
from ps_train.errors import CheckpointError, ConfigError, SaveError, StoppedError
from ps_train.part import Part
from ps_train.parts.object_store.evaluator import evaluating_config
from ps_train.parts.object_store.fetching import Fetcher, listing_again
from ps_train.parts.object_store.flags import protocol_of, refuse_missing_packages
from ps_train.parts.object_store.lock import StoreLock
from ps_train.parts.object_store.patience import PatientStore, insist
from ps_train.parts.object_store.reading import name_url
from ps_train.parts.object_store.store import ObjectStore, StoreError, open_store
from ps_train.parts.object_store.uploading import Uploader
from ps_train.runtime import clock
from ps_train.storage import checkpoints, folder_lock

_RELEASE_SECS = 5.0
_SWEEP_SECS = 30.0
_SHARE_OF_GRACE = 0.9  # a chief that is stopped should end by itself and say what is missing
# What reading an archive raises: see keras/checkpoints.py.
_DAMAGES = (zipfile.BadZipFile, OSError, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
_log = logging.getLogger(__name__)


class Uploads(NamedTuple):
    """What the chief asks of its uploads.

    Attributes:
      flush: waits for the uploads of what is there; raises what is missing.
      progress: returns how far they are behind, as `ps_train status` shows it.
    """

    flush: Callable[[], None]
    progress: Callable[[], Mapping[str, Any]]


@contextlib.contextmanager
def mirrored_config(config: Any, cluster: Any, stop: threading.Event) -> Iterator[Any]:
    """Yields the Config of a task with a train_dir on this machine: the same Config if --train_dir is no URL.

    Args:
      cluster: its Cluster; None if it only checks the flags, in an empty folder.
      stop: ends waits and the training.

    Raises:
      ConfigError: the store cannot be used, or another training uses it.
      ClusterLostError: the store did not answer in time.
      SaveError: training ended well, and the last checkpoint could not be uploaded.
      StoppedError: as that of its body; the message has what could not be uploaded.
    """
    url = config.train_dir
    if not protocol_of(url):
        yield config
        return
    if cluster is None:
        refuse_missing_packages(url)
        with tempfile.TemporaryDirectory() as folder:
            yield dataclasses.replace(config, train_dir=folder)
        return
    if cluster.job == "evaluator":
        with evaluating_config(config, stop) as evaluating:
            yield evaluating
        return
    located_config = dataclasses.replace(config, train_dir=local_folder(url), train_url=url)
    if not cluster.is_chief:
        yield located_config
        return
    refuse_missing_packages(url)
    try:
        checkpoints.check_writable(located_config.train_dir)
    except ConfigError as error:
        raise ConfigError(error.code, f"--train_dir: {url} needs a folder on this machine for what is uploaded, and "
                          f"this user may not write to {located_config.train_dir!r}; let TMPDIR name another "
                          "temporary folder") from None
    with _mirrored(located_config, stop) as uploads, _naming_url(located_config):
        yield dataclasses.replace(located_config, uploads=uploads)


@contextlib.contextmanager
def _naming_url(config: Any) -> Iterator[None]:
    """Names the URL in place of the folder in errors of its body about what is there."""
    try:
        yield
    except (ConfigError, CheckpointError) as error:
        name_url(error, config.train_dir, config.train_url)
        raise


@contextlib.contextmanager
def _mirrored(config: Any, stop: threading.Event) -> Iterator[Uploads]:
    """Fetches what the store has; uploads while its body runs, and after it."""
    url, folder = config.train_url, config.train_dir
    start_secs = config.start_timeout_secs
    is_keras = not isinstance(config, Config)  # both kinds may have trained there
    # A training with the same URL in a store at another address has the same folder here.
    with contextlib.suppress(OSError), _naming_url(config):  # OSError: the chief warns when it takes the lock
        folder_lock.make_free(folder, config.beat_timeout_secs, stop.wait)
    place = f"--train_dir={url}"
    store = insist(lambda: open_store(url), place, start_secs, stop)
    name = f".ps_train-{secrets.token_hex(8)}"  # one, however often that is tried
    insist(lambda: _check_rights(store, name), place, start_secs, stop)
    lock = StoreLock(store, stop)
    try:
        insist(lock.acquire, place, start_secs, stop, progress=lock.waited_secs)
        if not store.is_conditional:
            _log.warning("%s has no conditional writes: a second training that starts in the same second would not be "
                         "noticed at once", url)
        _sweep(store)
        fetcher = Fetcher(PatientStore(store, start_secs, stop), folder, is_keras=is_keras)
        listing_again(lambda: fetcher.fetch_for_training(_check_of(is_keras)), place, stop)
        _log.info("checkpoints are uploaded to %s; on this machine they are in %s", url, folder)
        uploader = Uploader(store, folder, config.keep_checkpoint_max, lock.check, is_keras)
        uploader.start()
        with _finishing(config, uploader, lock, _remaining(config, stop), stop) as flush:
            yield Uploads(flush, uploader.progress)
    finally:
        with contextlib.suppress(clock.AbandonedError):  # the next training waits for a sign of life
            clock.call(lock.release, "store unlock", timeout_secs=_RELEASE_SECS)


def _check_rights(store: ObjectStore, name: str) -> None:
    """Writes and removes an object, as a training does much later; raises StoreError if it cannot."""
    store.write(name, b"of a check")
    store.remove([name])


def _check_of(is_keras: bool) -> Callable[[str], bool]:
    """Returns what tells whether a checkpoint here can be read, by its path as in `fetch_for_training`; it warns."""
    return _is_whole_archive if is_keras else lambda path: checkpoints.is_sound(path.removesuffix(".index"))


def _is_whole_archive(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            name = file.testzip()
        fault = f"{name} in it is damaged" if name else ""
    except _DAMAGES as error:
        fault = str(error) or type(error).__name__
    if fault:
        _log.warning("%s cannot be read: %s; it is skipped", path, fault)
    return not fault


def _sweep(store: ObjectStore) -> None:
    """Removes what killed uploads have left in the bucket, if this process may do that, and if it is quick."""
    try:
        clock.call(store.abort_unfinished_uploads, "store sweep", timeout_secs=_SWEEP_SECS)
    except (StoreError, clock.AbandonedError) as error:  # it costs space only
        _log.info("unfinished uploads to %s are not removed: %s", store.url, str(error) or "no answer")


@contextlib.contextmanager
def _finishing(
    config: Any, uploader: Uploader, lock: StoreLock, remaining_secs: Callable[[], Callable[[], float]],
    stop: threading.Event,
) -> Iterator[Callable[[], None]]:
    """Yields `Uploads.flush`; waits for the uploads after its body, however it ends, and raises what is missing."""
    url, folder = config.train_url, config.train_dir

    def missing(wait: Callable[[Callable[[], float]], str], secs: Callable[[], float]) -> str:
        lacks = wait(secs)
        if lock.lost is not None:
            raise lock.lost
        return f"{url} lacks {lacks}; the files are in {folder} on this machine" if lacks else ""

    try:
        yield functools.partial(_wait_for_uploads, lambda: missing(uploader.flush, remaining_secs()), stop)
    except StoppedError as error:
        lacks = missing(uploader.finish, remaining_secs())
        text = str(error).replace(folder, url)
        raise type(error)(error.code, f"{text}; {lacks}" if lacks and lacks not in text else text) from error
    except BaseException as error:
        has_waited = isinstance(error, SaveError)  # that of the upload, or the disk here is full
        if lacks := missing(uploader.finish, (lambda: 0.0) if has_waited else remaining_secs()):
            _log.warning("%s", lacks)
        raise
    if lacks := missing(uploader.finish, remaining_secs()):
        raise _unfinished(lacks, stop)


def _wait_for_uploads(missing: Callable[[], str], stop: threading.Event) -> None:
    if lacks := missing():
        raise _unfinished(lacks, stop)


def _unfinished(lacks: str, stop: threading.Event) -> SaveError | StoppedError:
    if stop.is_set():
        return StoppedError("stopped", f"stopped before the last upload had ended: {lacks}")
    return SaveError("upload_unfinished", f"{lacks}; make room or mend the store, then run the same command again here")


def _remaining(config: Any, stop: threading.Event) -> Callable[[], Callable[[], float]]:
    """Returns a function that starts the last wait, and returns the seconds that remain of it, as a function.

    The wait has --save_timeout_secs; after a stop, what is left of --stop_timeout_secs.
    """
    stopped: list[float] = []

    def note() -> None:
        stop.wait()
        stopped.append(time.monotonic())

    clock.start_call(note, "stop of uploads")

    def begin() -> Callable[[], float]:
        end_secs = time.monotonic() + config.save_timeout_secs

        def remaining() -> float:
            after_stop = stopped[0] + _SHARE_OF_GRACE * config.stop_timeout_secs if stopped else end_secs
            return min(end_secs, after_stop) - time.monotonic()

        return remaining

    return begin


class StorePart(Part):
    """What a worker knows of the URL; `mirrored_config` does the work of the chief."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether --train_dir is a URL."""
        return bool(config.train_url)

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the URL and the folder."""
        self._local, self._given = f"--train_dir={config.train_dir}", f"--train_dir={config.train_url}"
        self._uploads, self._evaluations = config.uploads, config.evaluations

    def adjust(self, settings: Any) -> Any:
        """Returns the settings with the URL where `ps_train resume` and `status` show it."""
        command = [self._given if word == self._local else word for word in settings.identity.command]
        return settings._replace(identity=settings.identity._replace(
            command=command, train_dir=self._given.partition("=")[2]))

    def status(self) -> Mapping[str, Any]:
        """Returns, in the chief, how far the uploads are behind."""
        return {"uploads": self._uploads.progress()} if self._uploads else {}

    def before_look(self, listening: Callable[[], contextlib.AbstractContextManager]) -> None:
        """Fetches, in an evaluator, the newest checkpoint; raises as `StoreEvaluations.fetch` does."""
        if self._evaluations and self._evaluations.has_new():
            with listening():
                self._evaluations.fetch()

    def after_evaluation(self, evaluation: Any, path: str) -> None:
        """Waits, in the chief, until the last checkpoint is in the store; uploads the summaries of an evaluator.

        Raises:
          ClusterLostError: the store did not take the summaries in time.
          SaveError: it is not there in time.
          StoppedError: neither, and this task was asked to stop.
          FolderLostError: another training has taken the store.
        """
        if self._evaluations:
            self._evaluations.send()
        else:
            self._uploads.flush()
