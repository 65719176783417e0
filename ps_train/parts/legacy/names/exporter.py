"""`tf.contrib.session_bundle.exporter`: exports a session's variables, but as a SavedModel.

    base/00000123/    version 123, as the Exporter named it: what tf.saved_model.load and TensorFlow Serving read

Nothing reads the format of 2016 any more. The signatures "inputs" and "outputs" become `serving_default`, or `predict`
where there is a default signature.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

_SIGNATURES = tf.saved_model.signature_constants
_DEFAULT = _SIGNATURES.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class Signature(NamedTuple):
    """What goes in and comes out; a generic one has either, `tensors`."""

    method: str
    inputs: Mapping[str, tf.Tensor]
    outputs: Mapping[str, tf.Tensor]
    tensors: Mapping[str, tf.Tensor]


def generic_signature(name_tensor_map: Mapping[str, tf.Tensor]) -> Signature:
    """Returns the signature of one side, such as `named_graph_signatures["inputs"]`."""
    return Signature(_SIGNATURES.PREDICT_METHOD_NAME, {}, {}, dict(name_tensor_map))


def classification_signature(input_tensor: tf.Tensor, classes_tensor: tf.Tensor | None = None,
                             scores_tensor: tf.Tensor | None = None) -> Signature:
    """Returns the signature of a classifier: serialized examples -> classes and scores."""
    outputs = {_SIGNATURES.CLASSIFY_OUTPUT_CLASSES: classes_tensor, _SIGNATURES.CLASSIFY_OUTPUT_SCORES: scores_tensor}
    return Signature(_SIGNATURES.CLASSIFY_METHOD_NAME, {_SIGNATURES.CLASSIFY_INPUTS: input_tensor},
                     {name: tensor for name, tensor in outputs.items() if tensor is not None}, {})


def regression_signature(input_tensor: tf.Tensor, output_tensor: tf.Tensor) -> Signature:
    """Returns the signature of a regression: serialized examples -> numbers."""
    return Signature(_SIGNATURES.REGRESS_METHOD_NAME, {_SIGNATURES.REGRESS_INPUTS: input_tensor},
                     {_SIGNATURES.REGRESS_OUTPUTS: output_tensor}, {})


class Exporter:
    """Exports what a Saver saves."""

    def __init__(self, saver: tf.train.Saver) -> None:
        self._saver, self._signatures = saver, {}
        self._init_op: Any = None
        self._clear_devices, self._assets = False, None

    def init(self, graph_def: Any = None, init_op: Any = None, clear_devices: bool = False,
             default_graph_signature: Signature | None = None,
             named_graph_signatures: Mapping[str, Signature] | None = None, assets_collection: Any = None,
             assets_callback: Any = None) -> None:
        """Says what is exported.

        Args:
          graph_def: not used: the graph is the session's.
          init_op: what initialises tables when the model is loaded.
          clear_devices: whether the export forgets devices such as /job:worker.
          default_graph_signature: of a classifier or of a regression.
          named_graph_signatures: "inputs" and "outputs", or others by name.
          assets_collection: tensors with the paths of files that the export gets copies of.
          assets_callback: not used: the files are copied.
        """
        del graph_def, assets_callback
        named = dict(named_graph_signatures or {})
        if "inputs" in named and "outputs" in named:
            inputs, outputs = named.pop("inputs").tensors, named.pop("outputs").tensors
            name = _DEFAULT if default_graph_signature is None else "predict"
            named[name] = Signature(_SIGNATURES.PREDICT_METHOD_NAME, inputs, outputs, {})
        if default_graph_signature is not None:
            named[_DEFAULT] = default_graph_signature
        self._signatures = {name: _definition(signature) for name, signature in named.items()}
        self._init_op, self._clear_devices, self._assets = init_op, clear_devices, assets_collection

    def export(self, export_dir_base: Any, global_step_tensor: Any, sess: tf.Session | None = None,
               exports_to_keep: Any = None) -> str:
        """Writes the next version, and returns its folder.

        Args:
          export_dir_base: the folder of all versions.
          global_step_tensor: the number of this one.
          sess: the session; the default one if None.
          exports_to_keep: must be None: older versions stay.

        Raises:
          RuntimeError: there is such a version.
          ValueError: exports_to_keep was given.
        """
        if exports_to_keep is not None:
            raise ValueError("Exporter.export: exports_to_keep is not supported; remove older versions yourself")
        session = sess or tf.get_default_session()
        base = os.fspath(export_dir_base) if not isinstance(export_dir_base, bytes) else export_dir_base.decode()
        folder = os.path.join(base, f"{tf.train.global_step(session, global_step_tensor):08d}")
        if tf.gfile.Exists(folder):
            raise RuntimeError(f"the export {folder} exists already")
        if tf.gfile.Exists(f"{folder}-tmp"):  # of a process that was killed
            tf.gfile.DeleteRecursively(f"{folder}-tmp")
        with session.graph.as_default():
            if self._init_op is not None:  # the builder adds it to a collection, and refuses a second one
                session.graph.clear_collection(tf.saved_model.constants.MAIN_OP_KEY)
            builder = tf.saved_model.builder.SavedModelBuilder(f"{folder}-tmp")
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.tag_constants.SERVING], self._signatures, self._assets,
                clear_devices=self._clear_devices, main_op=self._init_op, saver=self._saver)
            builder.save()
        tf.gfile.Rename(f"{folder}-tmp", folder)  # so that a server does not load half of it
        return folder


def _definition(signature: Signature) -> Any:
    info = tf.saved_model.utils.build_tensor_info
    outputs = signature.outputs or signature.tensors
    return tf.saved_model.signature_def_utils.build_signature_def(
        {name: info(tensor) for name, tensor in signature.inputs.items()},
        {name: info(tensor) for name, tensor in outputs.items()}, signature.method)
