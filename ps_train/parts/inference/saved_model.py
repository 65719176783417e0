"""Exports a checkpoint as a SavedModel, which TensorFlow and TensorFlow Serving load without ps_train.

    model_fn in mode "infer"             --> saved_model.pb   signatures, without devices
    checkpoint --> variables, tables     --> variables/

The model is written beside its place and renamed, so that a server never loads a part of it.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ConfigError, UserCodeError
from ps_train.graph import devices
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.parts.inference import serving
from ps_train.parts.inference.serving import ServingInput
from ps_train.parts.tables import connection, registry
from ps_train.parts.tables.files import contents
from ps_train.parts.tables.files.exported import PiecewiseSaver, table_maker
from ps_train.parts.tables.rules import Frozen
from ps_train.plugins.contracts import PREDICT, Model, ModelSpec

DEFAULT_SIGNATURE = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_PREDICT = tf.saved_model.signature_constants.PREDICT_METHOD_NAME
MakeInput = Callable[[], ServingInput]
_log = logging.getLogger(__name__)


class ServedGraph:
    """A model in mode "infer", in the graph that is current when it is made.

    Attributes:
      inputs: what a request has.
      spec: what model_fn returned.
    """

    def __init__(
        self, model: Model, model_params: Mapping[str, Any], make_input: MakeInput, path: str | None
    ) -> None:
        """Adds the model to the graph.

        Args:
          path: of the checkpoint that says how many rows the tables have; None only checks the model.

        Raises:
          CheckpointError: the tables are not those of the checkpoint.
          UserCodeError: model_fn does not predict.
        """
        self._path = path
        tf.train.create_global_step()
        self.inputs = serving.add_input(make_input, path)
        found = registry.install_registry([""], Frozen(learning_rate=0.0), table_maker(path), refuses_ids=False)
        found.begin_build(self.inputs.features)
        self.spec = call_model_fn(model, self.inputs.features, None, PREDICT, model_params)
        if self.spec.predictions is None and not self.spec.export_outputs:
            raise UserCodeError(f"{model.name}.model_fn returned no predictions with the mode {PREDICT!r}")
        self._own_saver = getattr(self.spec.scaffold, "saver", None)
        self._dense = tf.global_variables()  # the tables are added now
        if path is not None:
            contents.check_tables_fit(path, found.specs)
            if self._own_saver is None:
                _check_variables(path, self._dense)
        connection.connect_lookups()
        self._tables = {store.spec.name: store for store in connection.stores_of(found)}

    def write(self, output_dir: str) -> None:
        """Writes the SavedModel to a folder that does not exist yet."""
        own = getattr(self.spec.scaffold, "local_init_op", None)
        main_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), *([] if own is None else [own]))
        restoring = self._own_saver or tf.train.Saver(self._dense)
        saver = PiecewiseSaver(self._dense, self._tables, self._path)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})) as session:
            restoring.restore(session, self._path)
            builder = tf.saved_model.Builder(output_dir)
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.tag_constants.SERVING], _signatures(self.spec, self.inputs),
                assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS), main_op=main_op, saver=saver,
                clear_devices=True, strip_default_attrs=True)
            builder.save()


def export_model(
    path: str, output_dir: str, model: Model, model_params: Mapping[str, Any], features: Any | MakeInput,
    replaces: bool = False,
) -> dict[str, str]:
    """Writes a SavedModel with the tag `serve`.

    Args:
      path: path prefix of the checkpoint.
      output_dir: a folder that does not exist yet, unless it is replaced.
      model: its model_fn is called with the mode "infer" and without labels.
      features: what a request has: a `tf.TensorSpec` or `tf.SparseTensorSpec`, a dict of them, or what
        `serving_input_maker` returns.
      replaces: takes the place of an earlier export.

    Returns:
      name -> a line about each signature.

    Raises:
      CheckpointError: the checkpoint cannot be read, or is of another model.
      ConfigError: the folder exists.
      UserCodeError: model_fn does not predict.
    """
    if os.path.exists(output_dir) and not replaces:
        raise ConfigError(f"cannot export to {output_dir}: it exists; remove it, or give another folder")
    make_input = features if callable(features) else lambda: serving.input_of_specs(features)
    parent, name = os.path.split(os.path.abspath(output_dir))
    beside = os.path.join(parent, f"temp-{name}")  # TensorFlow Serving loads folders that are called by a number
    with tf.Graph().as_default(), devices.ignoring_tasks():
        graph = ServedGraph(model, model_params, make_input, path)
        _make_folder(parent)
        shutil.rmtree(beside, ignore_errors=True)  # of an export that was killed
        graph.write(beside)
        _put_in_place(beside, output_dir)
        return {name: _describe(signature) for name, signature in _signatures(graph.spec, graph.inputs).items()}


def check_exportable(model: Model, model_params: Mapping[str, Any], make_input: MakeInput) -> None:
    """Builds what an export would, to find the faults of a plug-in before training.

    Raises:
      UserCodeError: model_fn does not predict.
      Exception: whatever a plug-in raises.
    """
    with tf.Graph().as_default(), devices.ignoring_tasks():
        graph = ServedGraph(model, model_params, make_input, None)
        _signatures(graph.spec, graph.inputs)


def _put_in_place(beside: str, output_dir: str) -> None:
    """Renames a complete model; one that is there gives way, so a server sees the old one, none, or the new one."""
    parent, name = os.path.split(os.path.abspath(output_dir))
    old = os.path.join(parent, f"temp-old-{name}")
    shutil.rmtree(old, ignore_errors=True)
    if os.path.exists(output_dir):
        os.rename(output_dir, old)
    os.rename(beside, output_dir)
    shutil.rmtree(old, ignore_errors=True)


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--export_dir: cannot make {folder!r}: {error.strerror}; give a folder that this user may "
                          "write to") from None


def _check_variables(path: str, variables: Sequence[tf.Variable]) -> None:
    """Raises CheckpointError if a variable is not in a checkpoint, or has another shape there."""
    saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    found = []
    for variable in sorted(variables, key=lambda one: one.op.name):
        part = variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; it has no public name)
        name, shape = (part.full_name, part.full_shape) if part else (variable.op.name, variable.shape.as_list())
        if name not in saved:
            found.append(f"{name} missing there")
        elif saved[name] != list(shape):
            found.append(f"{name} has shape {saved[name]} there instead of {list(shape)}")
    if found:
        raise CheckpointError(f"checkpoint {path} is of another model: {', '.join(found[:8])}; give the model and the "
                              "params that it was trained with")


def _signatures(spec: ModelSpec, inputs: ServingInput) -> dict[str, Any]:
    """Returns name -> SignatureDef; what has no name is called `inputs` and `predictions`.

    Raises:
      UserCodeError: no output has a signature, or none is the default.
    """
    outputs = dict(spec.export_outputs or {DEFAULT_SIGNATURE: spec.predictions})
    if DEFAULT_SIGNATURE not in outputs and len(outputs) == 1:  # as Estimator does
        outputs[DEFAULT_SIGNATURE] = next(iter(outputs.values()))
    if DEFAULT_SIGNATURE not in outputs:
        raise UserCodeError(f"model_fn returned export_outputs {', '.join(sorted(outputs))}; one of several must be "
                            f"called {DEFAULT_SIGNATURE!r}")
    requests = {"": inputs.receivers, **{f"{kind}:": one for kind, one in inputs.alternatives.items()}}
    found, reasons = {}, {}
    for kind, receivers in requests.items():
        for name, output in outputs.items():
            try:
                found[kind + name] = _signature(output, receivers)
            except ValueError as error:  # of Estimator: classification and regression take serialized examples only
                reasons[kind + name] = str(error).partition("\n")[0]
    if not found:
        raise UserCodeError(f"model_fn returned export_outputs {', '.join(sorted(spec.export_outputs or outputs))}, of "
                            f"which none can be exported: {next(iter(reasons.values()))}")
    for name, reason in reasons.items():
        _warn(f"the signature {name!r} is left out: {reason}")
    if DEFAULT_SIGNATURE not in found:
        instead = "predict" if "predict" in found else next(iter(found))
        _warn(f"the signature {DEFAULT_SIGNATURE!r} is that of {instead!r}")
        found[DEFAULT_SIGNATURE] = found[instead]
    return found


@functools.cache  # each once in the life of this process, which may export many checkpoints
def _warn(text: str) -> None:
    _log.warning("%s", text)


def _signature(output: Any, receivers: Mapping[str, Any]) -> Any:
    if hasattr(output, "as_signature_def"):  # an ExportOutput of Estimator
        return output.as_signature_def(dict(receivers))
    results = output if isinstance(output, Mapping) else {"predictions": output}
    told = [{name: tf.saved_model.build_tensor_info(tensor) for name, tensor in one.items()}
            for one in (receivers, results)]
    return tf.saved_model.build_signature_def(*told, _PREDICT)


def _describe(signature: Any) -> str:
    """Returns `inputs float32 [?, 784] -> classes int32 [?]`."""
    def tell(infos: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {tf.as_dtype(info.dtype).name} {_shape(info.tensor_shape)}"
                         for name, info in sorted(infos.items()))

    return f"{tell(signature.inputs)} -> {tell(signature.outputs)}"


def _shape(shape: Any) -> str:
    sizes = [str(one.size) if one.size >= 0 else "?" for one in shape.dim]
    return "of any shape" if shape.unknown_rank else f"[{', '.join(sizes)}]"
