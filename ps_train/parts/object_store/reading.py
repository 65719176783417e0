"""Lets verbs that read a train_dir take a URL: what they need is fetched to a folder that lasts as long as the verb.

    ps_train evaluate s3://bucket/run  -->  ps_train evaluate --train_dir=/tmp/...

They fetch what training has uploaded so far, hold no lock, and write nothing to the store. A verb that is killed leaves
its folder; the next one in the same temporary folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError, Problem, PsTrainError, StoppedError
from ps_train.parts.object_store import manifests
from ps_train.parts.object_store.fetching import Fetcher, listing_again
from ps_train.parts.object_store.flags import check_location, protocol_of
from ps_train.parts.object_store.other_files import OWN, is_event_file, names_with
from ps_train.parts.object_store.patience import PatientStore, insist
from ps_train.parts.object_store.store import BEST, TRAIN_DIR, ObjectStore, open_store
from ps_train.runtime import logs
from ps_train.storage.folder_lock import LOCK_NAME

_FILES_SECS, _FETCH_SECS = 60.0, 600.0  # for each listing and file: small ones, and those of a checkpoint and events
_FOLDERS = {"checkpoint": (BEST,), "curves": ("eval",), "": ()}  # of which a verb reads files, besides the train_dir's
_PREFIX, _NEW_PREFIX, _LOCK = "ps_train-fetched-", "ps_train-new-", ".lock"


@contextlib.contextmanager
def fetched_words(
    words: Sequence[str], needs: str, flag: str = TRAIN_DIR, stop: threading.Event | None = None
) -> Iterator[list[str]]:
    """Yields the arguments of a verb with a folder of this machine in place of a URL.

    Args:
      words: the arguments; if there is a folder, as --train_dir.
      needs: "checkpoint": that of --checkpoint, or the newest; "curves": event files; "": neither.
      flag: which flag the user gave, for errors.
      stop: ends the wait, in a task; a verb has none.

    Raises:
      ConfigError: the store cannot be used, or has no such training or checkpoint.
      ClusterLostError: it does not answer.
      StoppedError: SIGTERM came, or `stop` was set.
    """
    url = _value(words, "train_dir")
    if "://" not in url:
        yield list(words)
        return
    check_location(flag, url)
    if protocol_of(_value(words, "checkpoint")):
        raise ConfigError("path_is_url", "--checkpoint: got a URL; give its step, or best")
    with _raising_on_sigterm(), temporary_folder() as folder, naming_url(folder, url.rstrip("/")):
        timeout_secs, stop = _FETCH_SECS if needs else _FILES_SECS, stop or threading.Event()
        place = f"{flag}={url}"
        store = PatientStore(insist(lambda: open_store(url, flag), place, timeout_secs, stop), timeout_secs, stop)
        wanted = {flag: value for flag in ("--since", "--checkpoint") if (value := _value(words, flag[2:]))}
        listing_again(lambda: _fetch(store, folder, needs, wanted), place, stop)
        rest = _without(words, "train_dir")
        if needs == "curves" and not _value(words, "output"):
            rest.append("--output=report.html")  # the folder of the training lasts no longer than the verb
        yield [f"--train_dir={folder}", *rest]


@contextlib.contextmanager
def naming_url(folder: str, url: str) -> Iterator[None]:
    """Names the URL in place of the folder in what its body prints and raises."""
    with logs.naming(folder, url):
        try:
            yield
        except PsTrainError as error:  # it is printed later
            name_url(error, folder, url)
            raise


def name_url(error: PsTrainError, folder: str, url: str) -> None:
    """Names the URL in place of the folder in an error."""
    error.problems = tuple(Problem(problem.code, problem.replace(folder, url)) for problem in error.problems)
    error.args = tuple(value.replace(folder, url) if isinstance(value, str) else value for value in error.args)


@contextlib.contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    """Raises StoppedError in its body at a SIGTERM, unless the body handles that itself: folders are then removed."""
    def stop(number: int, frame: Any) -> None:
        raise StoppedError("stopped", "stopped")

    if threading.current_thread() is not threading.main_thread():  # of a task, which handles signals
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yields a new folder, which is removed at the end, or else by the next process after this one."""
    _remove_leftovers()
    folder = tempfile.mkdtemp(prefix=_NEW_PREFIX)
    try:
        with open(os.path.join(folder, _LOCK), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as long as this process lives
            parent, name = os.path.split(folder)
            locked_folder = os.path.join(parent, _PREFIX + name.removeprefix(_NEW_PREFIX))
            os.rename(folder, locked_folder)  # no other process has seen it before it was locked
            folder = locked_folder
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a download that nobody waits for may still write there


def _remove_leftovers() -> None:
    for entry in os.scandir(tempfile.gettempdir()):
        if entry.name.startswith(_PREFIX):
            # Errors: it is another user's, in use, or just being removed.
            with contextlib.suppress(OSError):
                _remove_leftover(entry.path)


def _remove_leftover(folder: str) -> None:
    with contextlib.ExitStack() as stack:
        # Without it, its process was killed while it removed the folder, or a download has made the folder once more.
        with contextlib.suppress(FileNotFoundError):
            lock = stack.enter_context(open(os.path.join(folder, _LOCK), "rb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(store: ObjectStore, folder: str, needs: str, wanted: Mapping[str, str]) -> None:
    """Fetches what a verb needs; `wanted` has the checkpoints that flags name: the newest if --checkpoint does not."""
    names = names_with(store, _FOLDERS[needs])
    if not names:
        raise ConfigError("train_dir_missing", f"{store.flag}: no training in {store.url}; give the URL of one")
    fetcher = Fetcher(store, folder)
    fetcher.fetch_files([name for name in names if name in OWN or (needs == "curves" and is_event_file(name))])
    units = fetcher.units(names)
    if needs != "checkpoint":
        heads = [unit.manifest if unit.is_keras else unit.head for unit in units]
        fetcher.fetch_files([name for name in (manifests.RECORD, LOCK_NAME, *heads) if name in names])
    else:
        # That of --checkpoint last: the record then names it as the newest one.
        for flag, checkpoint in {**wanted, "--checkpoint": wanted.get("--checkpoint", "")}.items():
            if not _fetch_checkpoint(fetcher, units, checkpoint) and checkpoint:
                steps = ", ".join(str(unit.step) for unit in units if not unit.is_delta) or "no checkpoint"
                raise ConfigError("no_checkpoint", f"{flag}: got {checkpoint!r}; {store.url} has {steps}; give one of "
                                  "these")


def _fetch_checkpoint(fetcher: Fetcher, units: Sequence[manifests.Unit], checkpoint: str) -> bool:
    """Fetches a checkpoint by its step or `best`, or the newest for ""; returns whether there is an undamaged one."""
    if checkpoint == BEST:
        fetcher.below(BEST).fetch_newest_of_all()
        return True  # or the verb says that there is none
    wanted = [unit for unit in units if checkpoint in ("", str(unit.step))]
    # Of each kind, where both trainings have used the folder: the verb knows which one it reads.
    found = [fetcher.fetch_newest([unit for unit in wanted if unit.is_keras == is_keras]) for is_keras in (False, True)]
    return any(found)


def _value(words: Sequence[str], name: str) -> str:
    """Returns the value of a flag among the arguments, or ""."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in (f"--{name}", f"-{name}"):
            return value if equals else "".join(words[index + 1:index + 2])
    return ""


def _without(words: Sequence[str], name: str) -> list[str]:
    """Returns the arguments without a flag and its value."""
    left, is_value = [], False
    for word in words:
        if is_value:
            is_value = False
        elif word.partition("=")[0] in (f"--{name}", f"-{name}"):
            is_value = "=" not in word
        else:
            left.append(word)
    return left
