"""Lets verbs that read a train_dir take a URL: what they need is fetched to a folder that lasts as long as the verb.

    ps_train evaluate s3://bucket/run  -->  ps_train evaluate --train_dir=/tmp/...

They fetch what training has uploaded so far, hold no lock, and write nothing to the store.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence

from ps_train.errors import ConfigError
from ps_train.parts.object_store import manifests
from ps_train.parts.object_store.fetching import Fetcher, is_event_file, is_small, listing_again
from ps_train.parts.object_store.flags import check_location, protocol_of, refuse_missing_packages
from ps_train.parts.object_store.store import BEST, ObjectStore, PatientStore, insist, open_store

_FILES_SECS, _FETCH_SECS = 60.0, 600.0  # for each listing and file: small ones, and those of a checkpoint and events


@contextlib.contextmanager
def fetched_words(words: Sequence[str], needs: str) -> Iterator[list[str]]:
    """Yields the arguments of a verb with a folder of this machine in place of a URL.

    Args:
      words: the arguments; if there is a folder, as --train_dir.
      needs: "checkpoint": that of --checkpoint, or the newest; "curves": event files; "": neither.

    Raises:
      ConfigError: the store cannot be used, or has no such training or checkpoint.
      ClusterLostError: it does not answer.
    """
    url = _value(words, "train_dir")
    if "://" not in url:
        yield list(words)
        return
    check_location("--train_dir", url)
    refuse_missing_packages(url)
    if protocol_of(_value(words, "checkpoint")):
        raise ConfigError("path_is_url", "--checkpoint: got a URL; give its step, or best")
    with tempfile.TemporaryDirectory(prefix="ps_train-") as folder:
        timeout_secs, never = _FETCH_SECS if needs else _FILES_SECS, threading.Event()
        store = PatientStore(insist(lambda: open_store(url), url, timeout_secs, never, is_first=True),
                             timeout_secs, never)
        listing_again(lambda: _fetch(store, folder, needs, _value(words, "checkpoint")), url, never)
        rest = _without(words, "train_dir")
        if needs == "curves" and not _value(words, "output"):
            rest.append("--output=report.html")  # the folder of the training lasts no longer than the verb
        yield [f"--train_dir={folder}", *rest]


def _fetch(store: ObjectStore, folder: str, needs: str, checkpoint: str) -> None:
    names = store.names(is_deep=True)
    if not names:
        raise ConfigError("train_dir_missing", f"--train_dir: no training in {store.url}; give the --train_dir of one")
    fetcher = Fetcher(store, folder)
    fetcher.fetch_files([name for name in names if is_small(name) or (needs == "curves" and is_event_file(name))])
    units = fetcher.units(names)
    if needs != "checkpoint":
        fetcher.fetch_files([name for name in (manifests.RECORD, *(f"{unit.name}.index" for unit in units))
                             if name in names])
    elif checkpoint == BEST:
        fetcher.below(BEST).fetch_newest_of_all()
    else:
        fetcher.fetch_newest([unit for unit in units if not checkpoint or checkpoint == str(unit.step)])
        if checkpoint and not os.path.exists(os.path.join(folder, f"model.ckpt-{checkpoint}.index")):
            steps = ", ".join(str(unit.step) for unit in units if not unit.is_delta) or "no checkpoint"
            raise ConfigError("no_checkpoint", f"--checkpoint: got {checkpoint!r}; {store.url} has {steps}; give one "
                              "of these")


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
