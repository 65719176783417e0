"""The train_dir of `ps_train keras`, and how a model is restored from it.

    train_dir/
      ckpt-00001000.keras    the model after that global step: weights, optimizer, architecture; a user reads it with
                             `tf_keras.models.load_model`
      .saving.keras          a checkpoint that is being written; after a `kill -9` the next one overwrites it
      train/ validation/     TensorBoard's event files

A truncated or damaged checkpoint is skipped: its zip directory or a checksum shows the damage. A checkpoint has the
whole variables, however --variable_partitioner splits them:

    hidden/kernel/part_0 [400, 256], hidden/kernel/part_1 [384, 256]  <-->  hidden/kernel [784, 256]
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import struct
import tempfile
import types
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tf_keras

from ps_train.errors import CheckpointError, SaveError, UserCodeError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasModel, KerasPlugins
from ps_train.runtime import tensorflow_errors
from ps_train.runtime.threads import Call
from ps_train.storage.folder_lock import FolderLock

_CHECKPOINT = re.compile(r"ckpt-(\d+)\.keras")
_PART = re.compile(r"(.*)/part_(\d+)(?::0)?")  # as ShardedVariable's creator names them (sharded_variable.py)
_UNFINISHED = ".saving.keras"
_MAX_CHARACTERS, _MAX_LISTED = 200, 8
REGISTER = ("a layer, loss or metric of your own that is not defined in the model's module needs "
             "@tf_keras.saving.register_keras_serializable(), and in place of a lambda give a function of that module")
# What reading an archive raises: a wrong bit in a header is a RuntimeError (encrypted, or packed in an unknown way), a
# ValueError (a name that is no text) or a struct.error, and a wrong length an EOFError.
_DAMAGES = (zipfile.BadZipFile, OSError, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
_FAILURES = (OSError, tf.errors.ResourceExhaustedError)  # TensorFlow raises the second for a full disk
_log = logging.getLogger(__name__)


def checkpoint_path(train_dir: str, step: int) -> str:
    """Returns the path of the checkpoint of a global step."""
    return os.path.join(train_dir, f"ckpt-{step:08d}.keras")


def checkpoint_paths(train_dir: str) -> dict[int, str]:
    """Returns global step -> path of all checkpoints in the folder, readable or not, in order."""
    names = os.listdir(train_dir) if os.path.isdir(train_dir) else []
    matches = filter(None, map(_CHECKPOINT.fullmatch, names))
    return dict(sorted((int(match[1]), os.path.join(train_dir, match[0])) for match in matches))


def newest_readable(train_dir: str) -> tuple[int, str] | None:
    """Returns (global step, path) of the newest checkpoint that can be read, or None; warns of damaged ones."""
    for step, path in reversed(checkpoint_paths(train_dir).items()):
        try:
            with zipfile.ZipFile(path) as file:
                damaged = file.testzip()
            if not damaged:
                return step, path
            problem = f"{damaged} in it is damaged"
        except _DAMAGES as error:
            problem = str(error) or type(error).__name__
        _log.warning("checkpoint %s cannot be read: %s; it is skipped", path, problem)
    return None


def remove_older(train_dir: str, step: int, keep: int) -> None:
    """Removes all checkpoints up to a global step but the newest of them; those of later steps stay.

    Warns of one that cannot be removed.
    """
    older: list[str] = []
    with _warning(f"cannot look for old checkpoints in {train_dir}"):
        # Later ones may be damaged, as training has begun at an earlier step.
        older = [path for other, path in checkpoint_paths(train_dir).items() if other <= step][:-keep]
    for path in older:
        with _warning(f"cannot remove the old checkpoint {path}"):
            os.remove(path)


@contextlib.contextmanager
def _warning(failure: str) -> Iterator[None]:
    """Warns if the body cannot list or remove files; not if a file was removed by somebody else."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("%s: %s; training goes on", failure, tensorflow_errors.reason(error))


def infinite_constants(model: tf_keras.Model) -> frozenset[str]:
    """Returns the names of the weights that are not trained and have infinite values, such as a mask's."""
    return frozenset(weight.name for weight in model.non_trainable_weights
                     if weight.dtype.is_floating and np.isinf(weight.numpy()).any())


def spoilt_weight(model: tf_keras.Model, constants: Collection[str] = ()) -> str:
    """Returns the name of a weight that is NaN or infinite, else ""; those named in `constants` may be infinite."""
    # Of the others, too: an optimizer that scales the loss leaves a step out, where a moving average does not.
    return next((weight.name for weight in model.weights if weight.dtype.is_floating
                 for values in [weight.numpy()]
                 if np.isnan(values).any() or weight.name not in constants and np.isinf(values).any()), "")


class ModelSaver:
    """Writes the checkpoints of one training."""

    def __init__(self, config: KerasConfig, plugins: KerasPlugins, is_chief: bool, lock: FolderLock) -> None:
        self._config, self._plugins, self._is_chief, self._lock = config, plugins, is_chief, lock
        self._step, self._is_saved = -1, True
        # Reading the variables may be a collective operation of all workers, so all of them read at once. They write to
        # a local folder: if only the chief's folder failed while they read, the others would wait for it for ever.
        self._reads_together = config.strategy == "multi_worker_mirrored"
        self._local: tempfile.TemporaryDirectory | None = None

    def save(self, model: tf_keras.Model, step: int, *, again: bool = False, is_last: bool = False) -> None:
        """Saves the model under its global step, and removes older checkpoints.

        If that fails, it warns, and the next call tries again. Each of several workers makes the same calls.

        Args:
          again: whether to replace the checkpoint of this step if there is one.
          is_last: whether no save follows, so that a failure is an error.

        Raises:
          SaveError: the disk is full, or the folder cannot be used. For --train_dir only the last save raises it; the
            message names the newest sound checkpoint.
          FolderLostError: another training has taken the folder.
        """
        if step != self._step or again:
            self._step, self._is_saved = step, not self._is_chief
            if self._reads_together:
                self._write_locally(model)
        if self._is_saved:
            return
        train_dir = self._config.train_dir
        try:
            self._save_as_chief(model, step)
        except _FAILURES as error:
            reason = tensorflow_errors.reason(error)
            if not is_last:
                _log.warning("cannot write the checkpoint of step %d in %s: %s; training goes on, and the next save "
                             "tries again", step, train_dir, reason)
                return
            newest = newest_readable(train_dir)
            good = f"the last good checkpoint is {newest[1]}" if newest else "no good checkpoint exists"
            raise SaveError("checkpoint_not_written", f"cannot write the checkpoint of step {step} in {train_dir}: "
                            f"{reason}; {good}; fix that, then run the same command again") from error
        self._is_saved = True
        self._remove_local()
        remove_older(train_dir, step, self._config.keep_checkpoint_max)

    def _write_locally(self, model: tf_keras.Model) -> None:
        """Writes the model to a temporary folder of this machine; the chief keeps it until it is saved."""
        folder = "the folder for temporary files"
        try:
            self._remove_local()
            self._local = tempfile.TemporaryDirectory(prefix="ps_train-")
            folder = self._local.name
            write_model(model, os.path.join(folder, _UNFINISHED))
            if not self._is_chief:
                self._remove_local()
        except _FAILURES as error:
            raise SaveError("checkpoint_not_written", f"cannot write the checkpoint of step {self._step} in {folder}, "
                            f"where each worker writes it first: {tensorflow_errors.reason(error)}; make room there or "
                            "set TMPDIR to another folder, then run the same command again") from error

    def _remove_local(self) -> None:
        if self._local is not None:
            with _warning(f"cannot remove {self._local.name}"):
                self._local.cleanup()
            self._local = None

    def _save_as_chief(self, model: tf_keras.Model, step: int) -> None:
        train_dir = self._config.train_dir
        unfinished = os.path.join(train_dir, _UNFINISHED)
        if self._config.variable_partitioner:
            # A new thread is not in the strategy's scope, which would split the variables of this model, too.
            building = Call(lambda: build_model(self._plugins.model, self._plugins.model_params), "whole model")
            building.join()
            whole = building.result()
            copy_variables(whole, model, "the model in training")
            model = whole
        try:
            if self._local is not None:
                shutil.copyfile(os.path.join(self._local.name, _UNFINISHED), unfinished)
            else:
                write_model(model, unfinished)
        except _FAILURES:
            with contextlib.suppress(OSError):
                os.remove(unfinished)  # frees the room for the next try
            raise
        self._lock.check()
        os.replace(unfinished, checkpoint_path(train_dir, step))


def save_alike_in_all_threads() -> None:
    """Lets Keras write each `.keras` file in its format, also outside the main thread, where training runs."""
    # There tf_keras 2.15 to 2.21 writes the first one so, and then HDF5 under that name: a thread-local value, which
    # has its default in the main thread only (saving/saving_lib.py). Callbacks and loops of plug-ins save, too.
    saving = importlib.import_module("tf_keras.src.saving.saving_lib")
    saving._SAVING_V3_ENABLED = types.SimpleNamespace(value=True)  # noqa: SLF001


def write_model(model: tf_keras.Model, path: str) -> None:
    """Writes a `.keras` file."""
    model.save(path, overwrite=True, save_format="keras_v3")


def build_model(plugin: KerasModel, params: Mapping[str, Any]) -> tf_keras.Model:
    """Returns the plug-in's model with its optimizer's variables; raises UserCodeError if it breaks the contract."""
    model = plugin.build_model(params=params)
    if not isinstance(model, tf_keras.Model):
        raise UserCodeError("plugin_returned_wrong_type",
                            f"{plugin.name}.build_model returned {type(model).__module__}.{type(model).__name__}; it "
                            "must return a tf_keras.Model (of tf_keras, not of Keras 3)")
    if model.optimizer is None or not model.built:
        problem = "is not compiled" if model.optimizer is None else \
            "has no input shape: begin it with an Input layer, or call it once on a batch"
        raise UserCodeError("model_not_compiled",
                            f"{plugin.name}.build_model: the model {problem}; it must return a compiled, built model")
    if not hasattr(model.optimizer, "build"):
        kind = type(model.optimizer)
        raise UserCodeError("legacy_keras_optimizer",
                            f"{plugin.name}.build_model: the optimizer is {kind.__module__}.{kind.__name__}, whose "
                            "state a .keras checkpoint does not hold; give one of tf_keras.optimizers, not of "
                            "tf_keras.optimizers.legacy or TensorFlow 1")
    _check_aggregation(model, plugin.name)
    model.optimizer.build(model.trainable_variables)
    return model


def _check_aggregation(model: tf_keras.Model, plugin_name: str) -> None:
    """Raises UserCodeError if a variable has several values, and it is not said which one a checkpoint has."""
    names = [variable.name for variable in model.weights if isinstance(variable, tf.distribute.DistributedValues)
             and variable.synchronization == tf.VariableSynchronization.ON_READ
             and variable.aggregation == tf.VariableAggregation.NONE]
    if names:
        raise UserCodeError("variable_without_aggregation",
                            f"{plugin_name}.build_model: {names[0]} has its own value on each device "
                            "(synchronization=ON_READ), and no aggregation makes one of them for a checkpoint; give it "
                            "aggregation=tf.VariableAggregation.MEAN, SUM or ONLY_FIRST_REPLICA")


def load_newest(plugin: KerasModel, train_dir: str) -> tuple[int, str, tf_keras.Model] | None:
    """Returns (global step, path, model) of the newest readable checkpoint, or None if there is none.

    Call it outside of the strategy's scope, in which all workers would have to make the variables of this model.

    Raises:
      CheckpointError: no checkpoint of the folder can be read, or the model has what Keras does not know.
    """
    newest = newest_readable(train_dir)
    if newest is None and (paths := checkpoint_paths(train_dir)):
        raise CheckpointError("checkpoint_unreadable", f"--train_dir={train_dir}: of {len(paths)} checkpoints there "
                              "none can be read, for the reasons above; make one readable or restore it, or remove "
                              "them to start from new parameters")
    return newest and (*newest, load_model_file(newest[1], plugin.objects))


def restore_model(model: tf_keras.Model, newest: tuple[int, str, tf_keras.Model]) -> int:
    """Gives a model the weights and the optimizer of what `load_newest` has returned; returns the global step.

    Call it in the strategy's scope. Raises CheckpointError for variables of other shapes, or another optimizer's.
    """
    step, path, loaded = newest
    _check_optimizer(model, loaded, path)
    # The new model is filled, not replaced: it keeps the learning rate of the command line.
    copy_variables(model, loaded, f"checkpoint {path}")
    _log.info("restored %s", path)
    return step


def _check_optimizer(model: tf_keras.Model, loaded: tf_keras.Model, path: str) -> None:
    """Raises CheckpointError if a slot has another meaning: a momentum is no sum of squares, though of its shape."""
    for new, old in zip(_slots(model), _slots(loaded)):
        if new and old and new != old:
            kinds = [type(getattr(owner.optimizer, "inner_optimizer", owner.optimizer)).__name__
                     for owner in (model, loaded)]
            raise CheckpointError("checkpoint_of_another_optimizer", f"checkpoint {path} is of {kinds[1]}, and the "
                                  f"model has {kinds[0]}: a slot {new!r} would get the values of {old!r}; give the "
                                  "optimizer that it was trained with, or another --train_dir")


def _slots(model: tf_keras.Model) -> list[str]:
    """Returns the slot that each variable of the optimizer is, such as "m" of Adam; "" if it is none."""
    weights = sorted((_whole_name(name) for name, _ in _join_parts(model.trainable_weights)), key=len, reverse=True)
    names = [_whole_name(name) for name, _ in _join_parts(model.optimizer.variables)]
    owners = [next((weight for weight in weights if name.endswith(f"/{weight}")), None) for name in names]
    return ["" if owner is None else name.removesuffix(f"/{owner}").rpartition("/")[2]
            for name, owner in zip(names, owners)]


def _whole_name(name: str) -> str:
    return name.partition(":")[0]


def share_state(
    model: tf_keras.Model, step: int, strategy: tf.distribute.Strategy, is_chief: bool, beat: Callable[[], None]
) -> int:
    """Gives the models of all workers the chief's values, so only the chief needs the checkpoint; returns its step.

    Each worker calls it. The values are summed as integers, with zeros of the other workers: every bit is the chief's.

    Args:
      step: the global step, of which that of the chief counts.
      beat: called after each variable.
    """
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def add(words: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        is_first = tf.equal(context.replica_id_in_sync_group, 0)  # the chief has one with each of its GPUs
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(is_first, words, tf.zeros_like(words)))

    def shared(value: np.ndarray) -> np.ndarray:
        content = value.tobytes()
        words = np.frombuffer(content + bytes(-len(content) % 8), np.int64)
        total = strategy.experimental_local_results(strategy.run(add, args=(tf.constant(words),)))[0].numpy()
        beat()
        return np.frombuffer(total.tobytes()[:len(content)], value.dtype).reshape(value.shape)

    for variable in [*model.weights, *model.optimizer.variables]:
        # Those of this worker's devices, as the value of a variable that is synchronised on read, such as a moving
        # average, is a mean or sum over all workers.
        replicas = strategy.experimental_local_results(variable)
        value = shared(replicas[0].numpy())
        if not is_chief:
            for replica in replicas:
                replica.assign(value)
    return int(shared(np.array(step, np.int64)))


def load_model_file(path: str, objects: Mapping[str, Any]) -> tf_keras.Model:
    """Returns the compiled model of a checkpoint, given the plug-in's classes and functions by name.

    Raises:
      CheckpointError: the model has a layer, loss or metric that Keras does not know.
    """
    try:
        # Without custom_objects, Keras looks for unregistered objects nowhere, and for those of a module whose name
        # begins with "keras" in the wrong module (saving/serialization_lib.py).
        return tf_keras.models.load_model(path, custom_objects=dict(objects))
    except (TypeError, ValueError) as error:
        raise CheckpointError("unregistered_keras_object",
                              f"checkpoint {path} cannot be read: {first_line(error)}; {REGISTER}") from error


def first_line(error: Exception) -> str:
    """Returns the first line of an error, shortened."""
    return next(iter(str(error).splitlines()), "")[:_MAX_CHARACTERS]


def copy_variables(target: tf_keras.Model, source: tf_keras.Model, source_name: str) -> None:
    """Copies the weights and the optimizer's variables, which --variable_partitioner may have split in either model.

    Raises:
      CheckpointError: they have different shapes; the message calls the source `source_name`.
    """
    for kind, variables, origins in (("weights", target.weights, source.weights),
                                     ("optimizer", target.optimizer.variables, source.optimizer.variables)):
        targets, sources = _join_parts(variables), _join_parts(origins)
        differing = [f"{name} has shape {_shape(values)} instead of {_shape(parts)}"
                     for (name, parts), (_, values) in zip(targets, sources) if _shape(parts) != _shape(values)]
        if len(targets) != len(sources):
            differing = [f"{len(sources)} variables instead of {len(targets)}"]
        if differing:
            more = f" and {len(differing) - _MAX_LISTED} more" if len(differing) > _MAX_LISTED else ""
            raise CheckpointError("checkpoint_of_another_model", f"{source_name} is of another model: {kind}: "
                                  f"{'; '.join(differing[:_MAX_LISTED])}{more}; give another --train_dir, or the "
                                  "--model, --params and --hidden_units that it was trained with")
        for (_, parts), (_, values) in zip(targets, sources):
            _assign(parts, [value.numpy() for value in values])


def _join_parts(variables: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Returns (name, parts) of each variable: Keras lists those of a weight one by one, those of an optimizer as one.

    The parts follow each other along the first dimension.
    """
    joined: list[tuple[str, list[Any]]] = []
    for variable in variables:
        # Asked for an attribute that it lacks, a variable with a replica on each worker may read all of them.
        is_replicated = isinstance(variable, tf.distribute.DistributedValues)
        parts = [variable] if is_replicated else list(getattr(variable, "variables", [variable]))
        match = _PART.fullmatch(parts[0].name)
        if match and int(match[2]) and joined:
            joined[-1][1].extend(parts)
        else:
            joined.append((match[1] if match else parts[0].name, parts))
    return joined


def _shape(parts: list[Any]) -> list[int]:
    shape = parts[0].shape.as_list()
    return shape if len(parts) == 1 else [sum(part.shape[0] for part in parts), *shape[1:]]


def _assign(parts: list[Any], values: list[np.ndarray]) -> None:
    # The chief restores alone, but would read the new value of a variable that is synchronised on read with the others.
    if len(parts) == len(values) == 1:  # it may be a scalar
        parts[0].assign(values[0], read_value=False)
        return
    ends = np.cumsum([part.shape[0] for part in parts])
    for part, rows in zip(parts, np.split(np.concatenate(values), ends[:-1])):
        part.assign(rows, read_value=False)
