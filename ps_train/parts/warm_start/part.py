"""The part of a warm start: a new training takes values of variables from the checkpoint of another one.

    checkpoint, --init_map --> match --> variable -> name in the checkpoint --> load, when the variables are new

    tables of the model    --> table or variable in the checkpoint --> load, when the tables are empty

    mutable tables         --> entries in the checkpoint (entries.py)

    --init_by_modulo --> the order of the rows (partitions.py)

Optimizer slots and the global step are taken only if --init_map names them; the slots of rows never are. A variable
that is not taken, but begins as one that is, such as a moving average, begins with its new value.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.config import folders
from ps_train.errors import CheckpointError, ConfigError
from ps_train.graph import extensions
from ps_train.part import Part
from ps_train.parts.tables import contents
from ps_train.parts.tables.part import TableParameters
from ps_train.parts.tables.pretrained import Origin, PretrainedRows, deeprec_variables
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.warm_start import casting, partitions
from ps_train.parts.warm_start.entries import Entries, tensor_names
from ps_train.parts.warm_start.flags import parse_init_map, parse_names
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints, folder_record
from ps_train.tasks.worker import PreparedWorker
from ps_train.updates.update import Update

_MAX_LISTED = 8
_COPIES = "ps_train/current/"  # the scope of a worker's copies of variables, in rounds of local steps
_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}
_WITHOUT_VALUES = {"Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike"}  # of their inputs
_POWER_OF_BETA = re.compile(r"(^|/)beta[12]_power(_\d+)?$")  # of Adam, which may be in a scope, or one of several
_log = logging.getLogger(__name__)


class WarmStartPart(Part):
    """Sets new variables to the values of --init_checkpoint."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether this is the chief, and the flag is given."""
        return bool(config.init_checkpoint) and cluster.is_chief

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the flags; the variables are known once the model is built."""
        self._path, self._pairs = config.init_checkpoint, parse_init_map("--init_map", config.init_map)
        self._by_modulo = parse_names("--init_by_modulo", config.init_by_modulo)
        self._local_device = f"{cluster.task.device}/cpu:0" if cluster else ""
        self._variables: list[tf.Variable] = []
        self._losses: list[tf.Tensor] = []
        self._rows: PretrainedRows | None = None
        self._entries: Entries | None = None
        self._fetched = contextlib.ExitStack()
        self._warm_start: WarmStart | None = None
        self._stop: threading.Event | None = None  # none where no task runs

    def update(self, update: Update) -> Update:
        """Takes note of the variables, and of the loss, which depends on no slot."""
        self._variables, self._losses = tf.global_variables(), [update.loss]
        return update

    def saved_part(self) -> None:
        """Adds what sets rows, now that the tables have their operations; writes nothing."""
        rows = extensions.row_parameters()
        if isinstance(rows, TableParameters) and rows.specs:
            self._rows = PretrainedRows(rows.files, self._local_device)
        self._entries = Entries(checkpoints.saved_tables(), self._local_device)

    @contextlib.contextmanager
    def around_task(self, stop: threading.Event) -> Iterator[None]:
        """Keeps what is fetched from a store while the task runs."""
        self._stop = stop
        with self._fetched:
            yield

    def check_origin(self, path: str | None) -> None:
        """Finds the variables in the checkpoint, if the parameters will be new; raises as `WarmStart` does."""
        if path is None and self._warm_start is None:
            atexit.register(self._fetched.close)  # where no task runs, as in `ps_train plan`
            path = self._fetched.enter_context(_on_this_machine(self._path, self._stop))
            self._warm_start = WarmStart(
                path, self._pairs, self._variables, self._rows.specs if self._rows else {}, losses=self._losses,
                by_modulo=self._by_modulo, entries=self._entries)

    def before_server(self, task: PreparedWorker) -> None:
        """Logs that the flag has no effect if the training continues from a checkpoint."""
        if path := checkpoints.newest_sound(task.settings.train_dir):
            _log.info("--init_checkpoint has no effect: %s is there", path)

    def after_init(self, session: tf.Session) -> None:
        """Sets the variables."""
        self._warm_start.log()
        self._warm_start.load(session)

    def after_restore(self, session: tf.Session, path: str) -> None:
        """Sets the rows of tables, if they are new."""
        if not path and self._rows:
            self._warm_start.load_rows(session, self._rows)


@contextlib.contextmanager
def _on_this_machine(path: str, stop: threading.Event | None) -> Iterator[str]:
    """Yields the path of a checkpoint or folder that TensorFlow can read; of one in a store while its body runs."""
    scheme, is_url, _ = path.partition("://")
    if not is_url or scheme in tf.io.gfile.get_registered_schemes():
        yield path
        return
    folder, _, name = path.rstrip("/").rpartition("/")
    step = name.removeprefix("model.ckpt-")
    words = [f"--train_dir={folder}", f"--checkpoint={step}"] if step.isdecimal() and step != name else [
        f"--train_dir={path}"]
    with folders.readable_words(words, "checkpoint", "--init_checkpoint", stop) as (word, *_):
        fetched = word.partition("=")[2]
        yield fetched if len(words) == 1 else os.path.join(fetched, name)


def _open(path: str) -> tuple[str, Any]:
    """Returns the path prefix of a checkpoint, of the newest one if this is a folder, and its reader."""
    if os.path.isdir(path):
        path = checkpoints.newest_sound(path) or path
    if base := contents.base_of(path):
        raise ConfigError("delta_for_checkpoint", f"--init_checkpoint: {path} has only the rows that changed since "
                          f"{base}; give that one, or a later checkpoint")
    try:
        return path, tf.train.load_checkpoint(path)
    except (tf.errors.OpError, ValueError) as error:
        raise ConfigError("checkpoint_unreadable", f"--init_checkpoint: cannot read {path}: {reason(error)}; give "
                          "the path of a checkpoint, such as DIR/model.ckpt-1000, or its folder") from None


class WarmStart:
    """The values that a new training begins with."""

    def __init__(
        self, path: str, pairs: Sequence[tuple[str, str]], variables: Sequence[tf.Variable],
        tables: Mapping[str, TableSpec] | None = None, *, losses: Sequence[tf.Tensor] = (),
        by_modulo: Sequence[str] = (), entries: Entries | None = None,
    ) -> None:
        """Finds the variables in the checkpoint, and sets none yet.

        Args:
          path: the path prefix of a checkpoint, or a folder, for its newest one.
          pairs: (name in the checkpoint, name in the model); both end in "/" for all variables and tables of a scope.
            Without pairs, each of the model takes the value of the same name.
          variables: those of the graph.
          tables: name -> table, those of the model.
          losses: depend on all variables that the model computes with.
          by_modulo: names in the checkpoint of variables in parts, over which "mod" spread the rows.
          entries: sets those of mutable tables.

        Raises:
          ConfigError: the checkpoint cannot be read or lacks a name, or a shape, type or value does not fit.
        """
        self._path, self._reader = _open(path)
        self._shapes = self._reader.get_variable_to_shape_map()
        self._saved_tables = contents.read_tables(self._path)
        self._deeprec = deeprec_variables(self._shapes)
        self._shapes.update({name: [sum(self._shapes[f"{part}-keys"][0] for part in parts),
                                    *self._shapes[f"{parts[0]}-values"][1:]] for name, parts in self._deeprec.items()})
        self._rows_of_parts = partitions.rows_of_parts(self._reader)
        self._row_ids = {name: self._ids_by_modulo(name) for name in by_modulo}
        self._variables: dict[str, list[tf.Variable]] = {}  # the parts of each, or the whole one
        for variable in variables:
            self._variables.setdefault(_name_of(variable), []).append(variable)
        self._slots = self._find_slots({name.removeprefix(_COPIES) for name in _variables_behind(losses)})
        self._tables = dict(tables or {})
        self._entries = entries or Entries()
        self._filled, others = self._entries.take(pairs, self._shapes)
        found = dict(self._mapped(others) if pairs else self._same_names())
        self._saved_names = {name: saved for name, saved in found.items() if name not in self._tables}
        self._origins = {name: self._origin(saved) for name, saved in found.items() if name in self._tables}
        self._derived = self._find_derived()
        self._check(has_map=bool(pairs))

    def _ids_by_modulo(self, name: str) -> np.ndarray:
        """Returns the id of each row of a variable."""
        found = partitions.ids_by_modulo(self._rows_of_parts[name]) if name in self._rows_of_parts else None
        if found is None:
            raise ConfigError("variable_missing", f"--init_by_modulo: {name!r} is no variable of {self._path} in parts "
                              f"of as many rows; such are: {_listed(sorted(self._rows_of_parts)) or 'none'}")
        return found

    def _check(self, *, has_map: bool) -> None:
        """Raises ConfigError unless the values exist, fit, and can be read."""
        here = {name: _shape_of(self._variables[name][0]) for name in self._saved_names}
        wrong = [f"{name} {here[name]} here, {self._shapes[saved]} there"
                 for name, saved in self._saved_names.items() if here[name] != self._shapes[saved]]
        taken = {*self._saved_names.values(), *(origin.name for origin in self._origins.values())}
        if unused := [name for name in self._row_ids if name not in taken]:
            raise ConfigError("variable_missing", f"--init_by_modulo: the model does not take {_listed(unused)} from "
                              f"{self._path}; name it in --init_map, or leave it out")
        wrong += [problem for name, origin in self._origins.items()
                  if (problem := origin.problem(self._tables[name]))]
        wanted, dtypes = [*self._wanted()], self._reader.get_variable_to_dtype_map()
        wrong += [*casting.problems_of_kinds(wanted, dtypes), *self._entries.problems(self._filled, self._reader)]
        if wrong:
            others = "leave them out of --init_map" if has_map else "name the other variables with --init_map"
            raise ConfigError("checkpoint_of_another_model", f"--init_checkpoint: {self._path} has other shapes or "
                              f"types: {_listed(wrong)}; {others}, or change the model")
        if not (self._saved_names or self._origins or self._filled):
            raise ConfigError("checkpoint_of_another_model", "--init_checkpoint: no variable of the model is in "
                              f"{self._path}, which has {_listed(sorted(self._shapes))}; name them with --init_map")
        try:
            checkpoints.verify(self._path, [*self._saved_names.values(), *tensor_names(self._filled), *(
                name for origin in self._origins.values() for name in origin.tensor_names())])
        except CheckpointError as error:
            raise ConfigError(error.code, f"--init_checkpoint: {error}; give another one") from None
        casting.check_values(wanted, dtypes, self._reader)

    def _wanted(self) -> Iterator[tuple[str, tf.DType, str]]:
        """Yields the name, the type, and the name in the checkpoint of each variable, and of rows that were one."""
        for name, saved in self._saved_names.items():
            if saved not in self._deeprec:  # which `verify` refuses
                yield name, self._variables[name][0].dtype.base_dtype, saved
        for name, origin in self._origins.items():
            for saved in origin.tensor_names() if origin.saved is None else ():
                if not (origin.parts and saved.endswith("-keys")):
                    yield name, tf.float32, saved

    def log(self) -> None:
        """Logs the number of values, and which of the model's variables are missing in the checkpoint."""
        taken = {*self._saved_names, *self._origins, *map(_name_of, self._derived)}
        missing = [name for name in [*self._model_names(), *self._tables] if name not in taken]
        tables = f" and the rows of {_listed([*self._origins, *self._filled])}" if self._origins or self._filled else ""
        _log.info("%d variables%s begin with the values in %s%s", len(self._saved_names), tables, self._path,
                  f"; new: {_listed(missing)}" if missing else "")
        taken = {*self._saved_names.values(), *(origin.name for origin in self._origins.values())}
        unclear = sorted(taken & (self._rows_of_parts.keys() - self._row_ids.keys()))
        if unclear and not folder_record.read_record(os.path.dirname(self._path)):  # ps_train saves rows by ids
            _log.warning("in %s, %s is in parts: if another program than ps_train has saved it, and looked its rows up "
                         "with partition_strategy=\"mod\", the default of tf.nn.embedding_lookup, give "
                         "--init_by_modulo=%s, or ids have the rows of others",
                         self._path, _listed(unclear), ",".join(unclear))

    def load(self, session: Any) -> None:
        """Sets the variables, which must have been initialised."""
        for name, saved in self._saved_names.items():
            value = self._reader.get_tensor(saved)
            if saved in self._row_ids:
                value = value[np.argsort(self._row_ids[saved])]
            for variable in self._variables[name]:
                variable.load(_part_of(value, variable), session)
        self._entries.load(session, self._reader, self._filled)
        for variable in self._derived:  # one after the other: one may derive from the one before
            session.run(variable.initializer)

    def load_rows(self, session: Any, rows: PretrainedRows) -> None:
        """Sets the rows of the tables, which must be empty."""
        rows.load(session, self._path, self._origins)

    def _origin(self, saved: str) -> Origin:
        """Returns where the rows of a table come from, by the name in the checkpoint."""
        if saved in self._saved_tables:
            return Origin(saved, self._saved_tables[saved])
        return Origin(saved, shape=self._shapes[saved], parts=self._deeprec.get(saved, ()),
                      row_ids=self._row_ids.get(saved))

    def _model_names(self) -> list[str]:
        """Returns the names of the model's variables, without optimizer slots and the global step."""
        return [name for name in self._variables if name not in self._slots]

    def _is_below_trained(self, name: str) -> bool:
        """Returns whether a variable has the name of a slot, as the mask or the moving average of a variable may."""
        trained = (other for other, (variable, *_) in self._variables.items() if variable.trainable)
        return not self._variables[name][0].trainable and any(name.startswith(f"{other}/") for other in trained)

    def _find_slots(self, computed_with: set[str]) -> set[str]:
        """Returns the names of optimizer slots, Adam's powers, and the global step.

        A slot has the name of a trained variable, and more; but the loss does not depend on it, nor its initial value
        on a variable.
        """
        def is_slot(name: str, variable: tf.Variable) -> bool:
            return self._is_below_trained(name) and computed_with.isdisjoint((name, variable.op.name)) and not (
                _sources_of(variable))

        return {name for name, (variable, *_) in self._variables.items() if name == "global_step"
                or (not variable.trainable and _POWER_OF_BETA.search(name)) or is_slot(name, variable)}

    def _find_derived(self) -> list[tf.Variable]:
        """Returns variables that are not taken, and whose initial values are those of variables that change."""
        changed = {part.op.name for name in self._saved_names for part in self._variables[name]}
        derived = []
        for name, parts in self._variables.items():
            for variable in parts if name not in self._saved_names else ():
                if _sources_of(variable) & changed:
                    changed.add(variable.op.name)
                    derived.append(variable)
        return derived

    def _same_names(self) -> list[tuple[str, str]]:
        return [(name, name) for name in [*self._model_names(), *self._tables]
                if name in self._shapes or (name in self._tables and name in self._saved_tables)]

    def _mapped(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        pairs_of_names: list[tuple[str, str]] = []
        known = [*self._model_names(), *self._tables]
        for old, new in pairs:
            scope = new if new.endswith("/") else ""
            names = [name for name in known if name.startswith(scope)] if scope else [new]
            if not names or names[0] not in {**self._variables, **self._tables}:
                raise ConfigError("variable_missing", f"--init_map: the model has no variable or table {new!r}; it has "
                                  f"{_listed(known)}")
            for name in names:
                saved = old + name[len(scope):] if scope else old
                if scope and saved not in self._shapes and name in self._variables and self._is_below_trained(name):
                    continue  # as for a checkpoint without moving averages
                if saved not in self._shapes and not (name in self._tables and saved in self._saved_tables):
                    there = sorted({*self._shapes} - {contents.KEY})
                    raise ConfigError("variable_missing", f"--init_map: {self._path} has no variable {saved!r} for "
                                      f"{name}; it has {_listed([*self._saved_tables, *there])}")
                pairs_of_names.append((name, saved))
        return pairs_of_names


def _variables_behind(tensors: Iterable[tf.Tensor]) -> set[str]:
    """Returns the names of the variables on whose values tensors depend."""
    waiting, seen = [tensor.op for tensor in tensors], set()
    while waiting:
        operation = waiting.pop()
        if operation not in seen and operation.type not in _WITHOUT_VALUES:
            seen.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return {operation.name for operation in seen if operation.type in _VARIABLE_OPS}


def _sources_of(variable: tf.Variable) -> set[str]:
    """Returns the names of the variables on which the initial value of a variable depends."""
    return _variables_behind(list(variable.initializer.inputs)[1:])  # without the variable itself


def _slice_of(variable: tf.Variable) -> Any:
    """Returns the SaveSliceInfo of a part of a partitioned variable; None for another variable."""
    return variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; no public name)


def _name_of(variable: tf.Variable) -> str:
    """Returns the name in a checkpoint, which has the whole of a partitioned variable."""
    part = _slice_of(variable)
    return part.full_name if part else variable.op.name


def _shape_of(variable: tf.Variable) -> list[int]:
    part = _slice_of(variable)
    return list(part.full_shape) if part else variable.shape.as_list()


def _part_of(value: np.ndarray, variable: tf.Variable) -> np.ndarray:
    """Returns what a variable takes of the value of the whole."""
    part = _slice_of(variable)
    if part is None:
        return value
    return value[tuple(slice(begin, begin + size) for begin, size in zip(part.var_offset, part.var_shape))]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
