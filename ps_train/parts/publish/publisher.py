"""Writes what a state of the training changes to the folder: the next push, or a new version of the model.

    a new training, an empty folder, no room for new rows, another model --> model-N, from the checkpoint
    a new checkpoint          --all its rows that differ from what was published--> push-N
                              --the pushes are 4 times the model--> model-N, too: the same state as push-N, written
                                                                    in a thread, while push-N+1, ... are made
    a new delta               --its rows that differ--> push-N

    model-N/assets.extra/push-N.tfrecord    all rows of the model, as a push

`CURRENT` names a model and a push only when both are complete, so a publisher may be killed at any moment: the next one
writes again what `CURRENT` does not name.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, PsTrainError
from ps_train.parts.live import pushes
from ps_train.parts.live.exporting import Export, LiveLayout, read_layout
from ps_train.parts.live.pushes import Begin, Current, PushWriter
from ps_train.parts.publish import trained
from ps_train.parts.publish.rows_state import Comparison, PublishedTable, hash_rows
from ps_train.parts.sharding.position import watermark_of
from ps_train.parts.tables import contents
from ps_train.parts.tables.contents import Source
from ps_train.runtime import clock, waits
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints

_RECORD_BYTES = 1 << 20  # of rows, in a record and so in a call of a target: gRPC's servers take 4 MB by default
_EXTRA = "assets.extra"  # of a SavedModel, for files that TensorFlow does not look at
_TEMPORARY = "temp-"
_POLL_SECS = 0.2  # while a version is being written
_MOST_PUSHED = 4  # times the rows of the model, until a new version comes
_NO_IDS = np.zeros([0], np.int64)
_log = logging.getLogger(__name__)


class Published(NamedTuple):
    """What readers of the folder have.

    Attributes:
      current: the content of `CURRENT`.
      begin: how the last push begins.
      layout: of the model.
      tables: name -> rows.
    """

    current: Current
    begin: Begin
    layout: LiveLayout
    tables: dict[str, PublishedTable]


class NoRoomError(Exception):
    """The model has no room for the new rows of a table."""


class Publisher:
    """Publishes one training to one folder, which it must have for itself.

    Attributes:
      published: what readers of the folder have; None before the first model.
    """

    def __init__(
        self, train_dir: str, publish_dir: str, export: Export, check: Callable[[], None] = lambda: None
    ) -> None:
        """Reads what an earlier publisher has left in the folder; if that cannot be read, a new model comes first.

        Args:
          check: called before `CURRENT` is replaced; raises an error if another publisher has the folder by now.
        """
        self._train_dir, self._dir, self._export, self._check = train_dir, publish_dir, export, check
        self._states = trained.HeldStates(train_dir, publish_dir)
        self._compared = ""  # the name of the checkpoint all of whose rows were compared
        self._version: clock.Call | None = None  # which writes a new version, and returns (Current, LiveLayout)
        self.published = published_in(publish_dir)

    def publish(self, state: Source) -> None:
        """Publishes a state of the training; nothing, if it is the one that an earlier publisher published last.

        Raises:
          CheckpointError: a file of it cannot be read.
          OSError: the folder cannot be written.
          FolderLostError: `check` has raised it.
        """
        self.take_version()
        training = trained.training_id(self._train_dir)
        if not self._compared and self._is_published(state, training):
            self._compared = os.path.basename(state.path)
            return
        with self._states.holding(state) as held:
            if self.published is None or self.published.current.training != training:
                self._publish_model(held, training)
            else:
                try:
                    self._publish_changes(held, self.published.begin.step)
                except (NoRoomError, CheckpointError) as error:
                    if isinstance(error, CheckpointError) and error.code == "checkpoint_unreadable":
                        raise
                    # Or the model has changed since, as by a table or a variable less.
                    _log.info("%s; a new version of the model follows", str(error).partition(";")[0])
                    self._publish_model(held, training)
        self._compared = os.path.basename(state.path)

    def _is_published(self, state: Source, training: str) -> bool:
        published = self.published
        return published is not None and (
            published.current.training, published.begin.step, published.begin.cut_secs) == (
                training, checkpoints.step_in_name(state.newest), trained.trained_secs(state.newest))

    def _publish_changes(self, state: Source, step: int) -> None:
        at_checkpoint, first = Source(state.path), None
        if os.path.basename(state.path) != self._compared or checkpoints.step_in_name(state.newest) < step:
            # A new publisher may know a later state than that of the checkpoint: what is served does not go back.
            first = at_checkpoint if checkpoints.step_in_name(state.path) >= step else state
            self._set(self._push(first, is_whole=True))
            self._compared = os.path.basename(state.path)
            if first == at_checkpoint and self._needs_version():
                self._begin_version(at_checkpoint)
        if state not in (at_checkpoint, first):
            self._set(self._push(state, is_whole=False))

    def _publish_model(self, state: Source, training: str) -> None:
        """Writes a new model, and what the delta changes, before a reader is told."""
        self.finish()
        number = 1 + max([0, *pushes.numbers(self._dir)])
        published = self._model(Source(state.path), training, number, trained.num_rows(state))
        if state.delta:
            published = self._push(state, is_whole=False, published=published)
        self._set(published)

    def _begin_version(self, state: Source) -> None:
        """Begins to write the model of a checkpoint that was pushed last, unless one is being written."""
        if self._version is not None:
            return
        current, stack = self.published.current, contextlib.ExitStack()
        held = stack.enter_context(self._states.holding(state))

        def write() -> tuple[Current, LiveLayout]:
            with stack:
                model = self._model(held, current.training, current.last, {})
                return model.current, model.layout

        self._version = clock.start_call(write, "new version")

    def take_version(self) -> None:
        """Tells the readers of a new version, if one was begun and has been written.

        Raises:
          OSError: the folder cannot be written; a later call tells them.
          FolderLostError: `check` has raised it.
        """
        if self._version is None or self._version.is_alive():
            return
        try:
            model, layout = self._version.result()
        except (OSError, tf.errors.OpError, PsTrainError) as error:
            _log.warning("cannot write a new version of the model: %s; the next try is with the next checkpoint",
                         reason(error))
            self._version = None
            return
        # A reader may go on with the version before, or begin with this one, so both must have room for a push.
        room = {name: min(size, layout.capacity[name]) for name, size in self.published.layout.capacity.items()}
        outgrown = [name for name, table in self.published.tables.items() if len(table.ids) > room[name]]
        if outgrown:
            _log.warning("table %s has outgrown the new version of the model; the next try is with the next checkpoint",
                         outgrown[0])
            shutil.rmtree(os.path.join(self._dir, model.model), ignore_errors=True)
            self._version = None
            return
        self._set(self.published._replace(
            current=self.published.current._replace(model=model.model, model_number=model.model_number),
            layout=self.published.layout._replace(capacity=room)))
        self._version = None

    def finish(self) -> None:
        """Waits for the version that is being written, and does what `take_version` does."""
        if self._version is not None:
            reminder = waits.Reminder(f"a new version of the model in {self._dir}")
            while self._version.is_alive():
                self._version.join(_POLL_SECS)
                reminder.remind()
        self.take_version()

    def _push(self, state: Source, *, is_whole: bool, published: Published | None = None) -> Published:
        """Writes the next push, of all rows that differ, or of those of the delta; tells no reader yet."""
        published = published or self.published
        number = published.current.last + 1
        begin = _begin(state, published.current.training, number, number - 1)
        tables = _write_push(self._dir, begin, published, state, is_whole=is_whole)
        return published._replace(current=published.current._replace(last=number), begin=begin, tables=tables)

    def _model(self, state: Source, training: str, number: int, num_rows: Mapping[str, int]) -> Published:
        """Writes the model of a checkpoint, with its rows; tells no reader yet."""
        name = pushes.model_name(number)
        temporary, path = os.path.join(self._dir, f"{_TEMPORARY}{name}"), os.path.join(self._dir, name)
        for remains in (*glob.glob(os.path.join(glob.escape(self._dir), f"{_TEMPORARY}*")), path):
            shutil.rmtree(remains, ignore_errors=True)  # of a publisher that was killed, or a full disk
        self._export(state.path, temporary, training, number, num_rows)
        extra = os.path.join(temporary, _EXTRA)
        os.makedirs(extra, exist_ok=True)
        begin = _begin(state, training, number, 0)
        layout = read_layout(temporary)  # the training may have more tables than a prediction
        empty = Published(Current(training, name, number, number), begin, layout,
                          {table: PublishedTable() for table in layout.capacity})
        tables = _write_push(extra, begin, empty, state, is_whole=True)
        for folder, _, files in os.walk(temporary):
            for written in (folder, *(os.path.join(folder, file) for file in files)):
                pushes.sync(written)
        os.rename(temporary, path)
        return empty._replace(tables=tables)

    def _set(self, published: Published) -> None:
        """Tells the readers; removes what none of them needs: they have the last model, or the one before."""
        before = self.published
        self._check()
        pushes.write_current(self._dir, published.current)
        self.published = published
        if before is not None and before.current.model != published.current.model:
            _remove_older(self._dir, before.current.model_number)

    def _needs_version(self) -> bool:
        """Returns whether the pushes are large, or one of them or the model is gone: a reader that lacks it waits."""
        current = self.published.current
        try:
            pushed_bytes = sum(os.path.getsize(pushes.push_path(self._dir, number))
                               for number in range(current.model_number + 1, current.last + 1))
            return pushed_bytes > _MOST_PUSHED * os.path.getsize(_model_push(self._dir, current))
        except FileNotFoundError as error:
            _log.warning("%s was removed; a new version of the model follows", error.filename)
            return True


def published_files(publish_dir: str, current: Current) -> dict[str, int]:
    """Returns name -> bytes of the files of all models and pushes up to the one that `CURRENT` names last.

    Raises:
      OSError: one was removed meanwhile.
    """
    names = []
    for name in sorted(os.listdir(publish_dir)):
        if (number := pushes.number_in(name)) is not None and number <= current.last:
            path = os.path.join(publish_dir, name)
            names += [os.path.relpath(os.path.join(folder, file), publish_dir)
                      for folder, _, files in os.walk(path) for file in files] if os.path.isdir(path) else [name]
    return {name: os.path.getsize(os.path.join(publish_dir, name)) for name in names}


def last_path(publish_dir: str, current: Current) -> str:
    """Returns the path of the push that `CURRENT` names last; right after a new model, that is in it."""
    return _model_push(publish_dir, current) if current.last == current.model_number else pushes.push_path(
        publish_dir, current.last)


def published_in(publish_dir: str) -> Published | None:
    """Returns what readers of the folder have: its model, and the pushes after it; None if it cannot be read."""
    current = pushes.read_current(publish_dir)
    if current is None:
        return None
    try:
        layout = read_layout(os.path.join(publish_dir, current.model))
        tables = {name: PublishedTable() for name in layout.capacity}
        for path in [_model_push(publish_dir, current), *(pushes.push_path(publish_dir, number) for number in range(
                current.model_number + 1, current.last + 1))]:
            begin = _replay(path, tables)
        return Published(current, begin, layout, tables)
    except (OSError, ValueError, KeyError, TypeError, pushes.PushError) as error:
        _log.warning("%s cannot be read: %s; a new version of the model follows", publish_dir, error)
        return None


def _model_push(publish_dir: str, current: Current) -> str:
    return pushes.push_path(os.path.join(publish_dir, current.model, _EXTRA), current.model_number)


def _replay(path: str, tables: dict[str, PublishedTable]) -> Begin:
    begin, records = pushes.read_push(path)
    parts: dict[str, list[tuple[np.ndarray, ...]]] = {}
    for record in records:
        if isinstance(record, pushes.Rows):
            parts.setdefault(record.table, []).append((record.ids, hash_rows(record.rows), record.dropped))
    for name, of_table in parts.items():
        ids, hashes, dropped = map(np.concatenate, zip(*of_table))  # an id comes once in a push
        tables[name] = tables[name].without(dropped).with_rows(ids, hashes)
    return begin


def _begin(state: Source, training: str, number: int, previous: int) -> Begin:
    return Begin(number=number, previous=previous, training=training, step=checkpoints.step_in_name(state.newest),
                 cut_secs=trained.trained_secs(state.newest), watermark_secs=watermark_of(state.newest))


def _write_push(
    folder: str, begin: Begin, before: Published, state: Source, *, is_whole: bool
) -> dict[str, PublishedTable]:
    """Writes a push; returns what is published then; raises NoRoomError if the model cannot take it."""
    tables = {}
    with pushes.writing_push(folder, begin) as writer:
        for name, table in before.tables.items():
            comparison = Comparison(table)
            dropped = _write_rows(writer, name, comparison, state, is_whole=is_whole)
            known = comparison.finished()  # what a reader has until it drops the others
            if len(known.ids) > (capacity := before.layout.capacity[name]):
                raise NoRoomError(f"table {name} has {len(known.ids)} rows, and the published model has room for "
                                  f"{capacity}")
            tables[name] = known.without(dropped)
        writer.dense(trained.dense_bytes(state.newest, before.layout.dense))
    return tables


def _write_rows(
    writer: PushWriter, name: str, comparison: Comparison, state: Source, *, is_whole: bool
) -> np.ndarray:
    """Writes the rows of a table that differ, then the ids that were dropped, int64 [n], which it returns."""
    for ids, rows in contents.newest_rows(state, name) if is_whole else contents.read_table(state.delta, name):
        is_changed = comparison.changed(ids, rows)
        for some_ids, some_rows in _in_records(ids[is_changed], rows[is_changed]):
            writer.rows(name, some_ids, some_rows, _NO_IDS)
    dropped = comparison.missing() if is_whole else _NO_IDS
    no_rows = np.zeros([0, contents.read_described(state.newest, name).dim], np.float32)
    for some_ids, _ in _in_records(dropped, dropped[:, np.newaxis]):
        writer.rows(name, _NO_IDS, no_rows, some_ids)
    return dropped


def _in_records(ids: np.ndarray, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    num = max(1, _RECORD_BYTES // (8 + rows.itemsize * rows.shape[1]))
    return ((ids[begin:begin + num], rows[begin:begin + num]) for begin in range(0, len(ids), num))


def _remove_older(publish_dir: str, number: int) -> None:
    """Removes the models before the one of this number, and the pushes that are in it."""
    for older in pushes.numbers(publish_dir):
        if older < number:
            shutil.rmtree(os.path.join(publish_dir, pushes.model_name(older)), ignore_errors=True)
        if older <= number and os.path.exists(path := pushes.push_path(publish_dir, older)):
            os.remove(path)
