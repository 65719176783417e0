"""Finds the checkpoints of a train_dir, and checks whether they can be read and fit a model.

    train_dir/
      checkpoint                            TensorFlow's record of the newest and of all; for other programs
      model.ckpt-N.index                    where each tensor is; written last: without it the checkpoint does not exist
      model.ckpt-N.data-00000-of-00001      the tensors, each with its CRC
      model.ckpt-N.meta                     the graph
      *.tempstate*  *_temp/  *.tmp*         left by a save that was killed
      best/                                 the checkpoint that --keep_best and --early_stopping keep

N is the global step. The record `checkpoint` may name a removed one, so the files count: docs/decisions/checkpoints.md.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ConfigError, UserCodeError
from ps_train.runtime import tensorflow_errors

BASENAME = "model.ckpt"
BEST = "best"
_MAX_SHOWN = 8
# TensorFlow's reader keeps 1 MB for each file that it has read small tensors from, and a large table has hundreds.
# Sorted by their names, the tensors of a file come together.
_NAMES_PER_READER = 128
_INDEX = re.compile(rf"{re.escape(BASENAME)}-(\d+)\.index")
FILE = re.compile(rf"({re.escape(BASENAME)}-\d+)\.(index|meta|data-\d{{5}}-of-\d{{5}})")
_READ = re.compile(r"\.(index|data-\d{5}-of-\d{5})")
# tensor_bundle.cc adds `.tempstate` and a number, the sharded Saver makes `_temp` (training/saver.py), and
# `atomic_write_string_to_file`, which writes the record and the graph, adds `.tmp` and a number (lib/io/file_io.py).
_LEFTOVER = re.compile(
    rf"{re.escape(BASENAME)}-\d+(\..*\.tempstate\d+|(\.delta-\d+)?_temp|\.meta\.tmp\w+)|checkpoint\.tmp\w+")
_UNREADABLE = (tf.errors.OpError, LookupError, ValueError, RuntimeError, OSError)  # the errors of the reader
_REFUSALS = tuple(map(os.strerror, errno.errorcode))  # TensorFlow's reader has these texts only, in an OpError
_log = logging.getLogger(__name__)


def path_of(train_dir: str, step: int) -> str:
    """Returns the path prefix of the checkpoint for a global step."""
    return os.path.join(train_dir, f"{BASENAME}-{step}")


def step_in_name(path: str) -> int:
    """Returns the global step in the name of a checkpoint."""
    return int(path.rpartition("-")[2])


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Raises CheckpointError if its body cannot read the checkpoint."""
    try:
        yield
    except _UNREADABLE as error:
        reason = tensorflow_errors.problem_of_path(path) or tensorflow_errors.reason(error)
        raise CheckpointError("checkpoint_unreadable", f"checkpoint {path} cannot be read: {reason}") from None


def step_of(path: str) -> int:
    """Returns the global step of a checkpoint.

    Raises:
      CheckpointError: it cannot be read, or has none.
    """
    with reading(path):
        return int(tf.train.load_checkpoint(path).get_tensor(tf.GraphKeys.GLOBAL_STEP))


def paths(train_dir: str) -> list[str]:
    """Returns the path prefixes of all checkpoints in the folder, sound or not, in the order of their steps."""
    steps = sorted(int(match[1]) for match in map(_INDEX.fullmatch, _names(train_dir)) if match)
    return [path_of(train_dir, step) for step in steps]


def newest_sound(train_dir: str, *, must_be_one: bool = False) -> str | None:
    """Returns the path prefix of the readable checkpoint with the highest global step, or None.

    Warns of each checkpoint that cannot be read, once in the life of this process.

    Raises:
      CheckpointError: the folder cannot be listed; or with `must_be_one` there are checkpoints, and none is readable.
    """
    candidates = paths(train_dir)[::-1]
    # A user may have written another name into the file `checkpoint`. It comes after all that were saved here.
    recorded = tf.train.latest_checkpoint(train_dir)  # None if its files are missing
    if recorded is not None and recorded not in candidates:
        candidates.append(recorded)
    newest = next(filter(is_sound, candidates), None)
    if must_be_one and candidates and newest is None:
        raise CheckpointError("checkpoint_unreadable", f"--train_dir={train_dir}: of {len(candidates)} checkpoints "
                              "there none can be read, for the reasons above; make one readable or restore it, or "
                              "remove them to start from new parameters")
    return newest


def is_sound(path: str) -> bool:
    """Returns whether a checkpoint exists and can be read; warns once if it exists but cannot."""
    if not exists(path):
        return False
    try:
        with reading(path):
            fault = _damage(path, _identity(path))
    except CheckpointError as error:
        fault = str(error)
    if fault and exists(path):  # otherwise it was removed because of newer ones
        _warn(fault)
    return not fault


def exists(path: str) -> bool:
    """Returns whether a checkpoint exists, sound or not."""
    return os.path.exists(path + ".index")


@functools.lru_cache(maxsize=256)
def _damage(path: str, identity: tuple[tuple[str, int, int], ...]) -> str:
    """Reads a checkpoint, but only once for each state of its files: an evaluator checks it every second."""
    try:
        verify(path)
    except CheckpointError as error:
        if str(error).endswith(_REFUSALS):  # that may be over at the next call, so it is not cached
            raise
        return str(error)
    return ""


@functools.lru_cache(maxsize=256)
def _warn(fault: str) -> None:
    _log.warning("%s; it is skipped", fault)


def _identity(path: str) -> tuple[tuple[str, int, int], ...]:
    """Returns (path, bytes, modification time in ns) of each file that a checkpoint is read from."""
    # Without its deltas: one of them may be written just now, and the files of a save come and go.
    files = [file for file in files_of(path) if _READ.fullmatch(file[len(path):])]
    states = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(file)
            states.append((file, status.st_size, status.st_mtime_ns))
    return tuple(states)


def verify(path: str, names: Sequence[str] = ()) -> None:
    """Reads every tensor of a checkpoint, or those of these names; TensorFlow's reader compares its CRC.

    Raises:
      CheckpointError: the checkpoint is incomplete or damaged; the error says why.
    """
    with reading(path):
        names = sorted(names or tf.train.load_checkpoint(path).get_variable_to_shape_map())
        for begin in range(0, len(names), _NAMES_PER_READER):
            reader = tf.train.load_checkpoint(path)
            for name in names[begin:begin + _NAMES_PER_READER]:
                reader.get_tensor(name)


def remove(path: str) -> None:
    """Removes the files of a checkpoint and of its deltas, also of a delta that was not written to its end."""
    # The index first: after that the checkpoint does not exist, even if this process is killed now.
    for file in sorted(files_of(path), key=lambda file: not file.endswith(".index")):
        _remove(file)


def record_and_prune(train_dir: str, path: str, keep_max: int) -> None:
    """Records a new, sound checkpoint as the newest, and removes old checkpoints and leftover files.

    Of the checkpoints up to the step of `path`, the last `keep_max` are kept. Checkpoints of later steps stay.

    Raises:
      tf.errors.OpError: the record cannot be written; old checkpoints are removed all the same.
    """
    all_paths = paths(train_dir)
    up_to_path = all_paths[:all_paths.index(path) + 1] if path in all_paths else [path]
    try:
        names = [os.path.basename(kept) for kept in up_to_path[-keep_max:]]  # no folders: train_dir may be moved
        tf.train.update_checkpoint_state(os.path.abspath(train_dir), names[-1], names)
    finally:
        for old in up_to_path[:-keep_max]:
            remove(old)
        remove_leftovers(train_dir)


def remove_leftovers(train_dir: str) -> None:
    """Removes the remains of a killed or failed save: temporary files, and data without an index."""
    complete = {os.path.basename(path) for path in paths(train_dir)}
    for name in _names(train_dir):
        file = os.path.join(train_dir, name)
        match = FILE.fullmatch(name)
        if _LEFTOVER.fullmatch(name) or (match and match[1] not in complete):
            _remove(file)


def _remove(file: str) -> None:
    """Removes a file or a folder, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(file) if os.path.isdir(file) else os.remove(file)


def files_of(path: str) -> list[str]:
    """Returns the files of a checkpoint and of its deltas."""
    folder, basename = os.path.split(path)
    return [os.path.join(folder, name) for name in sorted(_names(folder)) if name.startswith(basename + ".")]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError("folder_unreadable", f"cannot list {folder!r}: {error.strerror}; give a folder that "
                              "this user may read, or look at the mount") from None


def check_writable(train_dir: str) -> None:
    """Creates the folder if it does not exist.

    Raises:
      ConfigError: the folder cannot be created, or this user may not write to it.
    """
    try:
        os.makedirs(train_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError("folder_not_writable", f"--train_dir: cannot create {train_dir!r}: {error.strerror}; give a "
                          "folder that this user may write to") from None
    if not os.access(train_dir, os.W_OK | os.X_OK):
        raise ConfigError("folder_not_writable",
                          f"--train_dir: this user may not write to {train_dir!r}; give another folder")


def saved_objects() -> list[Any]:
    """Returns what a Saver of the current graph takes: global variables and `saved_tables`."""
    return [*tf.global_variables(), *saved_tables()]


def restoring_savers(path: str, scaffold: Any) -> list[tf.train.Saver]:
    """Returns what restores the variables of the current graph, by the model's own saver if any, and its tables."""
    own_saver = getattr(scaffold, "saver", None)
    return [own_saver or tf.train.Saver(tf.global_variables()), tf.train.Saver(saved_tables(path), allow_empty=True)]


def saved_tables(path: str = "") -> list[Any]:
    """Returns the tables of the current graph to which a model adds entries, such as a MutableHashTable.

    Args:
      path: of a checkpoint: without the tables that it does not have, as a model may count in evaluation only.

    Raises:
      UserCodeError: a table has the name of another, of which TensorFlow's Saver would take one.
    """
    # Of the other objects in the collection, iterators are the worker's own.
    tables = [table for table in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) if hasattr(table.op, "lookup")]
    if path:
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        tables = [table for table in tables if all(spec.name in shapes for spec in table.specs)]
    names = [table.name for table in tables]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserCodeError("table_named_twice", f"model_fn makes two mutable tables called {twice[0]}, and a "
                            "checkpoint can have only one of them; give each another `name`")
    return tables


def check_fits(path: str, variables: Sequence[Any]) -> None:
    """Compares what is saved of a graph, see `saved_objects`, with a checkpoint, which may have more.

    Raises:
      CheckpointError: a variable is missing there, or has another shape or dtype; the error lists these variables.
    """
    reader = tf.train.load_checkpoint(path)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    differing = []
    for name, (shape, dtype) in sorted(_as_saved(variables).items()):
        if name not in shapes:
            differing.append(f"{name} is missing")
        elif not tf.TensorShape(shapes[name]).is_compatible_with(shape):  # None fits all
            differing.append(f"{name} has shape {shapes[name]} instead of {shape.as_list()}")
        elif dtypes[name] != dtype:
            differing.append(f"{name} is {dtypes[name].name} instead of {dtype.name}")
    if differing:
        more = f" and {len(differing) - _MAX_SHOWN} more" if len(differing) > _MAX_SHOWN else ""
        raise CheckpointError("checkpoint_of_another_model", f"checkpoint {path} is of another model or optimizer: "
                              f"{'; '.join(differing[:_MAX_SHOWN])}{more}; give another --train_dir or "
                              "--init_checkpoint, or the --model, --params and --optimizer that it was trained with")


def _as_saved(variables: Sequence[Any]) -> dict[str, tuple[tf.TensorShape, tf.DType]]:
    """Returns name -> (shape, dtype) as in a checkpoint, where all parts of a partitioned variable are one tensor."""
    saved = {}
    for variable in variables:
        if specs := getattr(variable, "specs", ()):  # a table, of any number of entries
            saved.update({spec.name: (tf.TensorShape(None), spec.dtype) for spec in specs})
            continue
        part = variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; it has no public name)
        name, shape = (part.full_name, part.full_shape) if part else (variable.op.name, variable.shape)
        saved[name] = (tf.TensorShape(shape), variable.dtype.base_dtype)
    return saved
