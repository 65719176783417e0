"""Exports a checkpoint as a SavedModel, which TensorFlow and TensorFlow Serving load without ps_train.

    model_fn in mode "infer"             --> saved_model.pb   signatures, without devices
    checkpoint --> variables, tables     --> variables/

The model is written next to its final path and renamed, so a server never loads a part of it:

    temp-STEP-*/export.lock   who writes it
                model/        the SavedModel, which becomes STEP

The input of a request:

    serving_input_fn() of the model, or of the dataset    ServingInputReceiver, tensors, or a dict of them
    none                                                  placeholders like the dataset's features, any batch size
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import itertools
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.graph import devices
from ps_train.graph.batches import INPUT_SCOPE
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.parts.inference.request_inputs import INPUTS, ServingInput, feature_specs, input_of_specs, refuse_ragged
from ps_train.parts.tables import connection, contents, registry
from ps_train.parts.tables.exported import PiecewiseSaver, table_maker
from ps_train.parts.tables.rules import Frozen
from ps_train.plugins.contracts import PREDICT, Dataset, Model, ModelSpec
from ps_train.runtime import tensorflow_errors
from ps_train.storage import checkpoints, folder_lock

_SCOPE = "serving_input"
# The scopes that the input takes in training, before the model: its iterator and a mini-batch. A model with a scope of
# that name has them numbered, and needs the same numbers here.
_INPUT_SCOPES = 2
DEFAULT_SIGNATURE = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_PREDICT = tf.saved_model.signature_constants.PREDICT_METHOD_NAME
_TEMPORARY, _HOLDER = "temp-", "export.lock"  # TensorFlow Serving loads folders that are called by a number
# Folders of an export without a holder, of an earlier version or killed before it was written, and what is in them;
# anything else may be a user's.
_UNHELD = re.compile(r"temp-(old-)?\d+(-\w{8})?")
_WRITTEN = re.compile(r"model(-\d+)?|saved_model\.pb|fingerprint\.pb|variables|assets(\.extra)?")
_MOST_SECS = 24 * 3600  # that an export of another machine, which may have been killed, may take
_log = logging.getLogger(__name__)

MakeInput = Callable[[], ServingInput]


def serving_input_maker(
    model: Model, model_params: Mapping[str, Any], dataset: Dataset, dataset_params: Mapping[str, Any]
) -> Callable[[], ServingInput]:
    """Returns a function that adds the serving input to the current graph.

    Raises:
      UserCodeError: the input_fn does not yield features that a request can have.
      Exception: from input_fn.
    """
    for plugin, params in ((model, model_params), (dataset, dataset_params)):
        if plugin.serving_input_fn is not None:
            return lambda plugin=plugin, params=params: _as_serving_input(
                plugin.serving_input_fn(params=dict(params)), f"{plugin.name}.serving_input_fn")
    specs = feature_specs(dataset, dataset_params)
    refuse_ragged(dataset, specs)
    return lambda: input_of_specs(specs)


def needs_dataset(model: Model, dataset: Dataset) -> bool:
    """Returns whether the dataset's features define the input of a request."""
    return model.serving_input_fn is None and dataset.serving_input_fn is None


def add_input(make_input: Callable[[], ServingInput], path: str | None) -> ServingInput:
    """Adds the serving input to the current graph, under names that no variable of the model has.

    Placeholders have the names of the features. If a variable or its scope is called so, they are in a scope:
    TensorFlow would otherwise rename the variable, which comes later, and the checkpoint would lack it.

    Args:
      path: of the checkpoint, which has the names of the variables; None only checks the model.
    """
    taken: set[str] = set()
    if path is not None:
        with checkpoints.reading(path):
            taken = _names_and_scopes(tf.train.load_checkpoint(path).get_variable_to_shape_map())
    with tf.Graph().as_default() as scratch:
        make_input()
    names = _names_and_scopes(operation.name for operation in scratch.get_operations())
    with contextlib.ExitStack() as stack:
        if names & taken:
            numbered = (f"{_SCOPE}_{number}" for number in itertools.count(1))
            stack.enter_context(tf.name_scope(next(
                name for name in itertools.chain([_SCOPE], numbered) if name not in taken)))
        serving_input = make_input()
    for _ in range(_INPUT_SCOPES):
        with tf.name_scope(INPUT_SCOPE):
            pass
    return serving_input


def _names_and_scopes(names: Iterable[str]) -> set[str]:
    """Returns these names and the scopes that they are in, in lower case: TensorFlow's names differ in more."""
    scopes = set()
    for name in names:
        parts = name.lower().split("/")
        scopes.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    return scopes


def _as_serving_input(returned: Any, function: str) -> ServingInput:
    """Returns the result of a serving_input_fn; its forms are those of Estimator, and tensors or a dict of them."""
    if hasattr(returned, "receiver_tensors"):
        others = getattr(returned, "receiver_tensors_alternatives", None) or {}
        return ServingInput(returned.features, _named(returned.receiver_tensors, INPUTS),
                            {name: _named(tensors, name) for name, tensors in others.items()})
    if isinstance(returned, Mapping) or _is_tensor(returned):
        return ServingInput(returned, _named(returned, INPUTS), {})
    if isinstance(returned, tuple) and len(returned) == 2:
        return ServingInput(returned[0], _named(returned[1], INPUTS), {})
    raise UserCodeError("plugin_returned_wrong_type",
                        f"{function} returned {type(returned).__name__}; it must return a tensor, a dict of tensors, "
                        "(features, receiver_tensors), or Estimator's ServingInputReceiver")


def _named(tensors: Any, name: str) -> dict[str, Any]:
    return dict(tensors) if isinstance(tensors, Mapping) else {name: tensors}


def _is_tensor(value: Any) -> bool:
    return tf.is_tensor(value) or isinstance(value, tf.SparseTensor)


class ServedGraph:
    """A model in mode "infer", in the graph that is current when it is made.

    Attributes:
      inputs: the input of a request.
      spec: the result of model_fn.
      path: of the checkpoint; None only checks the model.
      dense: the variables, without those of tables.
      tables: name -> table.
      mutable: TensorFlow's tables to which a model adds entries, and which the checkpoint has.
    """

    def __init__(
        self, model: Model, model_params: Mapping[str, Any], make_input: MakeInput, path: str | None
    ) -> None:
        """Adds the model to the graph.

        Args:
          path: of the checkpoint, which determines the number of rows of the tables; None only checks the model.

        Raises:
          CheckpointError: the tables are not those of the checkpoint.
          UserCodeError: model_fn does not predict.
        """
        self.path: Any = path
        tf.train.create_global_step()
        self.inputs = add_input(make_input, path)
        tables = registry.install_registry([""], Frozen(learning_rate=0.0), self._table_maker(), refuses_ids=False)
        tables.begin_build(self.inputs.features)
        self.spec = call_model_fn(model, self.inputs.features, None, PREDICT, model_params)
        if self.spec.predictions is None and not self.spec.export_outputs:
            raise UserCodeError("model_without_predictions",
                                f"{model.name}.model_fn returned no predictions with the mode {PREDICT!r}")
        self._own_saver = getattr(self.spec.scaffold, "saver", None)
        self.dense = tf.global_variables()  # the tables are added now
        if path is not None:
            contents.check_tables_fit(path, tables.specs)
            if self._own_saver is None:
                checkpoints.check_fits(path, self.dense)
        self.mutable = [] if path is None else checkpoints.saved_tables(path)
        connection.connect_lookups()
        self.tables: dict[str, Any] = {store.spec.name: store for store in tables.all_stores()}

    def _table_maker(self) -> Callable[..., Any]:
        """Returns the function that makes the rows of a table."""
        return table_maker(self.path)

    def _saver(self, session: tf.Session) -> tf.train.Saver:
        """Returns what saves the variables of a session, which have the values of the checkpoint."""
        del session  # the variables themselves are saved
        return PiecewiseSaver(self.dense, self.tables, self.path, self.mutable)

    def _load_ops(self) -> list[tf.Operation]:
        """Returns the operations that run when the model is loaded, after the variables are restored."""
        local_init_op = getattr(self.spec.scaffold, "local_init_op", None)
        return [tf.local_variables_initializer(), tf.tables_initializer(),
                *([] if local_init_op is None else [local_init_op])]

    def signatures(self) -> dict[str, Any]:
        """Returns name -> SignatureDef.

        Raises:
          UserCodeError: no output has a signature, or none is the default.
        """
        return _signatures(self.spec, self.inputs)

    @functools.cached_property
    def restoring(self) -> tf.train.Saver:
        """Restores the dense variables: the saver of the model's scaffold, or one of all of them."""
        return self._own_saver or tf.train.Saver(self.dense)

    def write(self, output_dir: str) -> None:
        """Writes the SavedModel to a folder that does not exist yet."""
        restoring = self.restoring
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})) as session:
            with checkpoints.reading(self.path):
                restoring.restore(session, self.path)
                if self.mutable:
                    tf.train.Saver(self.mutable).restore(session, self.path)
            saver = self._saver(session)
            builder = tf.saved_model.Builder(output_dir)
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.tag_constants.SERVING], self.signatures(),
                assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS), main_op=tf.group(*self._load_ops()),
                saver=saver, clear_devices=True, strip_default_attrs=True)
            builder.save()


def export_model(
    path: str, output_dir: str, model: Model, model_params: Mapping[str, Any], features: Any | MakeInput,
    replaces: bool = False, make_graph: Callable[..., ServedGraph] = ServedGraph,
) -> dict[str, str]:
    """Writes a SavedModel with the tag `serve`.

    Args:
      path: path prefix of the checkpoint.
      output_dir: a folder that does not exist yet, unless it is replaced.
      model: its model_fn is called with the mode "infer" and without labels.
      features: the input of a request: a `tf.TensorSpec` or `tf.SparseTensorSpec`, a dict of them, or the result of
        `serving_input_maker`.
      replaces: whether it replaces an earlier export.
      make_graph: makes the graph, as `ServedGraph` does.

    Returns:
      name -> a line about each signature.

    Raises:
      CheckpointError: the checkpoint cannot be read, or is of another model.
      ConfigError: the folder exists, or cannot be written, as on a full disk.
      UserCodeError: model_fn does not predict.
    """
    if os.path.exists(output_dir) and not replaces:
        raise _exists(output_dir)
    make_input = features if callable(features) else lambda: input_of_specs(features)
    with tf.Graph().as_default(), devices.ignoring_tasks():
        graph = make_graph(model, model_params, make_input, path)
        with _writable(output_dir), _temporary_folder(output_dir) as folder:
            written = os.path.join(folder, "model")
            graph.write(written)
            _put_in_place(written, output_dir, replaces)
        return {name: _describe(signature) for name, signature in graph.signatures().items()}


def check_exportable(
    model: Model, model_params: Mapping[str, Any], make_input: MakeInput, make_graph: Callable = ServedGraph,
) -> None:
    """Builds the graph of an export, to find the faults of a plug-in before training.

    Raises:
      UserCodeError: model_fn does not predict.
      Exception: from a plug-in.
    """
    with tf.Graph().as_default(), devices.ignoring_tasks():
        make_graph(model, model_params, make_input, None).signatures()


def _put_in_place(written: str, output_dir: str, replaces: bool) -> None:
    """Renames a complete model, over an existing one if it replaces that; a server sees the old one, none, or the new.

    Raises:
      ConfigError: another process has exported to this folder meanwhile.
      OSError: the file system fails; then the old one is there.
    """
    for number in itertools.count():
        old = f"{written}-{number}"  # removed with the temporary folder
        with contextlib.suppress(FileNotFoundError):
            if replaces:
                os.rename(output_dir, old)
        try:
            os.rename(written, output_dir)
            return
        except OSError as error:
            is_there = error.errno in (errno.EEXIST, errno.ENOTEMPTY)  # of another export, which has just ended
            if is_there and not replaces:
                raise _exists(output_dir) from None
            if not is_there:
                if os.path.exists(old):
                    os.rename(old, output_dir)
                raise


def _exists(output_dir: str) -> ConfigError:
    return ConfigError("export_exists", f"cannot export to {output_dir}: it exists; remove it, or give another folder")


@contextlib.contextmanager
def _writable(output_dir: str) -> Iterator[None]:
    """Raises ConfigError if its body cannot write the model; what is read has errors of its own."""
    try:
        yield
    except (OSError, tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError) as error:
        if "OOM when allocating" in str(error):  # that is memory, not the disk
            raise
        why = getattr(error, "strerror", None) or tensorflow_errors.reason(error)
        raise ConfigError("folder_not_writable", f"cannot write the model to {output_dir!r}: {why}; give a folder that "
                          "this user may write to, on a disk with room for the model") from None


@contextlib.contextmanager
def _temporary_folder(output_dir: str) -> Iterator[str]:
    """Yields a folder beside `output_dir` of this export alone; removes it, and those of exports that were killed."""
    parent, name = os.path.split(os.path.abspath(output_dir))
    os.makedirs(parent, exist_ok=True)
    _remove_killed(parent)
    folder = tempfile.mkdtemp(prefix=f"{_TEMPORARY}{name}-", dir=parent)
    try:
        with open(os.path.join(folder, _HOLDER), "wb") as file:
            file.write(folder_lock.lock_text(time.strftime("%Y-%m-%d %H:%M:%S %z"), "", 0))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_killed(parent: str) -> None:
    """Removes the temporary folders of exports that have ended; where nobody can tell, those of a day ago."""
    for folder in glob.glob(os.path.join(glob.escape(parent), f"{_TEMPORARY}*")):
        # Just removed by its export or another one, a file of somebody, or a folder of another user.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            names, dated, has_ended = os.listdir(folder), folder, None
            if _HOLDER in names:
                dated = os.path.join(folder, _HOLDER)
                has_ended = folder_lock.has_ended_here(folder_lock.read_lock(dated) or b"")
            elif not (_UNHELD.fullmatch(os.path.basename(folder)) and all(map(_WRITTEN.fullmatch, names))):
                continue
            if has_ended or (has_ended is None and time.time() - os.stat(dated).st_mtime > _MOST_SECS):
                shutil.rmtree(folder, ignore_errors=True)


def _signatures(spec: ModelSpec, inputs: ServingInput) -> dict[str, Any]:
    """Returns name -> SignatureDef; without a name it is called `inputs` or `predictions`.

    Raises:
      UserCodeError: no output has a signature, or none is the default.
    """
    outputs = dict(spec.export_outputs or {DEFAULT_SIGNATURE: spec.predictions})
    if DEFAULT_SIGNATURE not in outputs and len(outputs) == 1:  # as Estimator does
        outputs[DEFAULT_SIGNATURE] = next(iter(outputs.values()))
    if DEFAULT_SIGNATURE not in outputs:
        raise UserCodeError("no_default_signature",
                            f"model_fn returned export_outputs {', '.join(sorted(outputs))}; one of several must be "
                            f"called {DEFAULT_SIGNATURE!r}")
    requests = {"": inputs.receivers, **{f"{kind}:": tensors for kind, tensors in inputs.alternatives.items()}}
    signatures, reasons = {}, {}
    for kind, receivers in requests.items():
        for name, output in outputs.items():
            try:
                signatures[kind + name] = _signature(output, receivers)
            except ValueError as error:  # of Estimator: classification and regression take serialized examples only
                reasons[kind + name] = str(error).partition("\n")[0]
    if not signatures:
        raise UserCodeError("no_signature", "model_fn returned export_outputs "
                            f"{', '.join(sorted(spec.export_outputs or outputs))}, of which none can be "
                            f"exported: {next(iter(reasons.values()))}")
    for name, reason in reasons.items():
        _warn(f"the signature {name!r} is left out: {reason}")
    if DEFAULT_SIGNATURE not in signatures:
        instead = "predict" if "predict" in signatures else next(iter(signatures))
        _warn(f"the signature {DEFAULT_SIGNATURE!r} is that of {instead!r}")
        signatures[DEFAULT_SIGNATURE] = signatures[instead]
    return signatures


@functools.cache  # each once in the life of this process, which may export many checkpoints
def _warn(message: str) -> None:
    _log.warning("%s", message)


def _signature(output: Any, receivers: Mapping[str, Any]) -> Any:
    if hasattr(output, "as_signature_def"):  # an ExportOutput of Estimator
        return output.as_signature_def(dict(receivers))
    results = output if isinstance(output, Mapping) else {"predictions": output}
    infos = [{name: tf.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
             for tensors in (receivers, results)]
    return tf.saved_model.build_signature_def(*infos, _PREDICT)


def _describe(signature: Any) -> str:
    """Returns `inputs float32 [?, 784] -> classes int32 [?]`."""
    return " -> ".join(", ".join(f"{name} {tf.as_dtype(info.dtype).name} {_shape(info.tensor_shape)}"
                                 for name, info in sorted(infos.items()))
                       for infos in (signature.inputs, signature.outputs))


def _shape(shape: Any) -> str:
    sizes = [str(dim.size) if dim.size >= 0 else "?" for dim in shape.dim]
    return "of any shape" if shape.unknown_rank else f"[{', '.join(sizes)}]"
