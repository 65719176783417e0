"""Publishes each new state of a training until it has ended, and notes how fresh what is served is.

    train_dir --new checkpoint or delta--> Publisher --> publish_dir --> a Sender for each target
    train_dir/publish.json    {"number", "step", "time", "model", FRESHNESS of the folder,
                               "targets": [{"target", "number", "problem", FRESHNESS}]}

FRESHNESS is what `ServedAges.as_json` returns.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ConfigError, PsTrainError, StoppedError
from ps_train.parts.control.history import PUBLISH_NAME, read_published
from ps_train.parts.live.exporting import make_export
from ps_train.parts.live.predict_calls import predict_client
from ps_train.parts.object_store.flags import protocol_of
from ps_train.parts.object_store.patience import insist
from ps_train.parts.object_store.store import open_store
from ps_train.parts.publish import trained
from ps_train.parts.publish.flags import PublishConfig, split_targets
from ps_train.parts.publish.freshness import ServedAges
from ps_train.parts.publish.publisher import Publisher
from ps_train.parts.publish.sending import Sender, ServerSender, StoreSender, close_all
from ps_train.parts.tables.contents import Source
from ps_train.runtime import logs, waits
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints
from ps_train.storage.folder_lock import FolderLock
from ps_train.tasks import setup

_POLL_SECS = 0.2  # at the end, and before a state is read once more
_TRIES = 3  # to read a state before newer ones replace it
_PAUSE_SECS = 5.0  # after an error
_SILENT_SECS = 10.0  # after which a publisher on another machine counts as ended
_FAILURES = (OSError, tf.errors.OpError, CheckpointError, ConfigError)
# Those that may be over at the next try: the files of a state were removed, the disk of the folder is full.
_UNREADABLE, _UNWRITABLE = "checkpoint_unreadable", "folder_not_writable"
_log = logging.getLogger(__name__)


def publish_until_done(config: PublishConfig, stop: threading.Event) -> None:
    """Publishes what the training changes until it has ended, or once.

    Raises:
      ConfigError: the folder cannot be written, or another publisher has it; there is no checkpoint to publish once.
      ClusterLostError: a store of --targets that is connected to at once does not answer in time.
      PsTrainError: the model cannot be exported, or is of another training; publishing once has failed three times.
      StoppedError: `stop` was set.
    """
    setup.prepare_tensorflow(config.tf_log)
    _make_folder(config.publish_dir)
    with _locked(config.publish_dir, stop) as lock:
        senders = [_make_sender(target, config, stop) for target in split_targets("--targets", config.targets)]
        for sender in senders:
            sender.start()
        try:
            Following(config, senders, stop, lock.check).run()
        finally:
            close_all(senders, config.target_timeout_secs)


def _make_sender(target: str, config: PublishConfig, stop: threading.Event) -> Sender:
    if protocol_of(target):
        store = insist(lambda: open_store(target, "--targets"), f"--targets={target}", config.target_timeout_secs, stop)
        return StoreSender(target, config.publish_dir, store)
    return ServerSender(target, config.publish_dir, predict_client(target, config.target_timeout_secs))


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigError("folder_not_writable", f"--publish_dir: cannot make {folder!r}: {error.strerror}; give a "
                          "folder that this user may write to") from None


@contextlib.contextmanager
def _locked(folder: str, stop: threading.Event) -> Iterator[FolderLock]:
    lock = FolderLock(folder, _SILENT_SECS, stop)
    try:
        with lock.holding():
            yield lock
    except ConfigError as error:
        if error.code != "train_dir_in_use":
            raise
        raise ConfigError("publish_dir_in_use", f"--publish_dir: another process publishes to {folder}, or trains "
                          "there; wait for its end or stop it, or give another folder") from None


class Following:
    """Follows one train_dir."""

    def __init__(
        self, config: PublishConfig, senders: Sequence[Sender], stop: threading.Event, check: Callable[[], None]
    ) -> None:
        """Has published nothing yet; `check` raises an error if another publisher has taken the folder."""
        self._config, self._senders, self._stop = config, senders, stop
        self._publisher = Publisher(config.train_dir, config.publish_dir, make_export(config), check)
        self._freshness = ServedAges()
        self._state: Source | None = None  # the one that was published last
        self._status: Mapping[str, Any] = {}
        self._problem = ""  # of the last try that failed
        self._is_status_lost = self._has_warned = False

    def run(self) -> None:
        """Publishes each new state, the last one in any case; raises as `publish_until_done` does."""
        awaited, num_failed = waits.Reminder(f"a checkpoint in {self._config.train_dir}"), 0
        earlier = trained.final_ending(self._config.train_dir)  # perhaps of a launch that has been corrected since
        while True:
            ending = trained.final_ending(self._config.train_dir)  # before the state: else the last one could be missed
            is_done = self._publish_new()
            self._write_status()
            has_ended = ending and (ending != earlier or self._publisher.published is not None)
            if is_done and (has_ended or self._config.once):
                break
            num_failed = 0 if is_done else num_failed + 1
            if self._config.once and num_failed >= _TRIES:
                raise PsTrainError("publish_failed", f"publishing has failed {_TRIES} times: {self._problem}; mend "
                                   "that, then run the same command again")
            if not is_done:
                _log.warning("%s; the next try is in %g s", self._problem, _PAUSE_SECS)
            if self._state is None:
                awaited.remind()
            if self._stop.wait(self._config.publish_secs if is_done else _PAUSE_SECS):
                raise StoppedError("stopped", "stopped while publishing")
        self._end(ending)

    def _publish_new(self) -> bool:
        """Publishes the newest state, if it is new; returns whether that did not fail."""
        before = self._publisher.published
        for _ in range(_TRIES):
            if not self._has_taken_version(self._publisher.take_version):
                return False
            try:
                state = trained.newest_state(self._config.train_dir)
            except (OSError, CheckpointError) as error:  # the folder cannot be listed now
                self._problem = f"cannot look for a new state: {reason(error)}"
                return False
            try:
                if state is None or not self._is_new(state):
                    return True
                self._publisher.publish(state)
                break
            except _FAILURES as error:
                self._problem = f"cannot publish {state.newest}: {reason(error)}"
                code = getattr(error, "code", "")  # of a PsTrainError
                if code not in ("", _UNREADABLE, _UNWRITABLE):
                    raise
                if code != _UNREADABLE and all(map(checkpoints.exists, (state.path, state.newest))):
                    return False
                self._stop.wait(_POLL_SECS)  # it was removed, or is written again
        else:
            return False
        self._state = state
        begin = self._publisher.published.begin
        self._freshness.served(begin)
        is_served = before is not None and before.begin == begin
        _log.info("step %d was published before, as push %d" if is_served else "published step %d as push %d",
                  begin.step, begin.number)
        for sender in self._senders:
            sender.wake()
        return True

    def _has_taken_version(self, take: Callable[[], None]) -> bool:
        """Tells the readers of a new version of the model, if there is one; returns whether that did not fail."""
        try:
            take()
        except OSError as error:
            self._problem = f"cannot tell the readers of a new version of the model: {reason(error)}"
            return False
        return True

    def _is_new(self, state: Source) -> bool:
        """Returns whether a state was not published.

        An earlier delta does not count, as the newest one cannot be read while it is written again; nor, for a new
        publisher, does any state before the one that is published. All states of another training are new.
        """
        published = self._publisher.published
        if published is None or published.current.training != trained.training_id(self._config.train_dir):
            return True
        step = checkpoints.step_in_name(state.newest)
        if self._state is None:
            return step >= published.begin.step
        return state != self._state and not (
            state.path == self._state.path and step < checkpoints.step_in_name(self._state.newest))

    def _end(self, ending: str) -> None:
        """Waits until the targets have the last push, for a bounded time, and says how it ended."""
        if self._publisher.published is None:
            why = f", and training has ended: {ending}" if ending else ""
            others = ", or leave --once out to wait for one" * self._config.once
            raise ConfigError("no_checkpoint", f"--train_dir: no checkpoint in {self._config.train_dir!r}{why}; give "
                              f"the folder of a training{others}")
        if not self._has_taken_version(self._publisher.finish):
            _log.warning("%s; they stay with the one before, which has all pushes", self._problem)
        begin, limit_secs = self._publisher.published.begin, time.monotonic() + self._config.target_timeout_secs
        while not all(sender.has(begin.number) for sender in self._senders) and time.monotonic() < limit_secs:
            if self._stop.wait(_POLL_SECS):
                raise StoppedError("stopped", "stopped while publishing")
        self._write_status()
        for sender in self._senders:
            if not sender.has(begin.number):
                _log.warning("target %s does not have push %d: %s", sender.target, begin.number, sender.why_behind())
        why = f"; the training has ended: {ending}" if ending else ""
        logs.show(f"Published step {begin.step} as push {begin.number} in {self._config.publish_dir}{why}")

    def _write_status(self) -> None:
        """Writes publish.json, if it is another one; only warns if that fails."""
        if self._state is None:
            return
        current, begin = self._publisher.published.current, self._publisher.published.begin
        status = {
            "number": begin.number, "step": begin.step, "time": self._freshness.last_secs,
            "model": os.path.join(self._config.publish_dir, current.model), **self._freshness.as_json(),
            "targets": [sender.as_json() for sender in self._senders]}
        if status == self._status:
            return
        self._warn_of_another()
        path = os.path.join(self._config.train_dir, PUBLISH_NAME)
        new_path = f"{path}.{trained.folder_hash(self._config.publish_dir)}.new"  # another publisher has one, too
        try:
            with open(new_path, "w", encoding="utf-8") as file:
                json.dump(status, file)
            os.replace(new_path, path)
            self._status, self._is_status_lost = status, False
        except OSError as error:
            if not self._is_status_lost:
                _log.warning("cannot write %s: %s; `ps_train status` does not show what is published", path,
                             error.strerror)
            self._is_status_lost = True

    def _warn_of_another(self) -> None:
        """Warns once if another process publishes this training to another folder: publish.json is that of one."""
        if not self._status or self._has_warned:
            return
        written, own = (os.path.dirname(status.get("model", "")) for status in (
            read_published(self._config.train_dir), self._status))
        if written not in ("", own):
            _log.warning("another process publishes this training to %s; `ps_train status` and the report show only "
                         "what one of the two has published last; one publisher with --targets shows all", written)
            self._has_warned = True
