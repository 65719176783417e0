"""Predicts with a checkpoint, or with a SavedModel, in a session that uses this process only.

    named batch  {"ids": int64 [n, 26], ...} --> Predictor.predict --> {"probabilities": float32 [n], ...}
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.graph import devices, extensions
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.parts.inference import serving
from ps_train.parts.tables import connection
from ps_train.plugins.contracts import PREDICT, Model
from ps_train.storage import checkpoints

_MAX_LISTED = 8
Batch = Mapping[str, Any]  # name -> array [n, ...], SparseTensorValue or RaggedTensorValue


class InputColumn(NamedTuple):
    """One input of the model.

    Attributes:
      dtype: its type.
      shape: of one example; None for a size that is open, and for a shape that is unknown.
      is_sparse: whether it is a SparseTensor.
    """

    dtype: tf.DType
    shape: Sequence[int | None] | None
    is_sparse: bool = False

    def __str__(self) -> str:
        """The form of a batch, such as "float32 [n, 784]"."""
        shape = "of any shape" if self.shape is None else \
            f"[{', '.join(['n', *('?' if size is None else str(size) for size in self.shape)])}]"
        return f"{'sparse ' if self.is_sparse else ''}{self.dtype.name} {shape}"


class Predictor:
    """A model that predicts. Close it.

    Attributes:
      inputs: name -> input of the model.
    """

    def __init__(self, session: tf.Session, inputs: Mapping[str, Any], outputs: Mapping[str, Any], name: str) -> None:
        """Takes the tensors of a session by their names.

        Args:
          name: the model, for errors.
        """
        self._session, self._name = session, name
        # By their names: a SavedModel has no order.
        self._tensors, self._outputs = dict(sorted(inputs.items())), dict(sorted(outputs.items()))
        self.inputs = {name: _column(tensor) for name, tensor in self._tensors.items()}

    def select(self, names: Sequence[str]) -> None:
        """Keeps only these predictions, if any are named.

        Raises:
          ConfigError: no prediction has that name.
        """
        unknown = [name for name in names if name not in self._outputs]
        if unknown:
            raise ConfigError("no_such_prediction", f"--outputs: got {unknown[0]!r}; {self._name} predicts "
                              f"{', '.join(sorted(self._outputs))}")
        if names:
            self._outputs = {name: self._outputs[name] for name in names}

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns name -> array [n, ...] of each prediction.

        Raises:
          UserCodeError: a prediction is no dense tensor or lacks a row for each example, or a table cannot have an id.
        """
        feed = {tensor: batch[name] for name, tensor in self._tensors.items() if name in batch}
        try:
            predictions = self._session.run(self._outputs, feed)
        except tf.errors.InvalidArgumentError as error:
            connection.raise_if_bad_id(error, "prediction")
            raise
        for name, values in predictions.items():
            if not isinstance(values, (np.ndarray, np.generic, bytes)):  # a SparseTensor, a RaggedTensor, a dict, ...
                raise UserCodeError("prediction_not_dense", f"{self._name}: prediction {name!r} gives a "
                                    f"{type(values).__name__}; it must be one dense tensor: make it one in model_fn, "
                                    "as by tf.sparse.to_dense, or leave it out with --outputs")
            if np.ndim(values) == 0 or len(values) != count_examples(batch):
                raise UserCodeError("prediction_shape",
                                    f"{self._name}: prediction {name!r} has the shape {list(np.shape(values))} for "
                                    f"{count_examples(batch)} examples; it must be [examples, ...]")
        return predictions

    def close(self) -> None:
        """Closes the session."""
        self._session.close()


def count_examples(batch: Batch) -> int:
    """Returns the number of examples in a batch."""
    first = next(iter(batch.values()))
    if isinstance(first, tf.ragged.RaggedTensorValue):
        return len(first.row_splits) - 1
    return int(first.dense_shape[0]) if isinstance(first, tf.SparseTensorValue) else len(first)


def of_checkpoint(
    path: str, model: Model, model_params: Mapping[str, Any], make_input: Any, num_threads: int
) -> Predictor:
    """Returns the predictor of a checkpoint.

    Args:
      make_input: adds the model's input to the current graph, a `ServingInput`.
      num_threads: for one operation; 0 for all cores.

    Raises:
      CheckpointError: the checkpoint is of another model.
      UserCodeError: model_fn does not predict.
    """
    with contextlib.ExitStack() as on_error, tf.Graph().as_default() as graph, devices.ignoring_tasks():
        tf.train.create_global_step()
        inputs = serving.add_input(make_input, path)
        spec = call_model_fn(model, inputs.features, None, PREDICT, model_params)
        if spec.predictions is None:
            raise UserCodeError("model_without_predictions",
                                f"{model.name}.model_fn returned no predictions with the mode {PREDICT!r}")
        rows = extensions.row_parameters()
        rows.connect()
        rows.add_saving()
        if getattr(spec.scaffold, "saver", None) is None:
            checkpoints.check_fits(path, tf.global_variables())
        rows.check_fits(path)
        session = tf.Session(graph=graph, config=session_options(num_threads))
        on_error.callback(session.close)
        local_init_op = getattr(spec.scaffold, "local_init_op", None)
        session.run([tf.local_variables_initializer(), tf.tables_initializer(),
                     *([] if local_init_op is None else [local_init_op])])
        for saver in checkpoints.restoring_savers(path, spec.scaffold):
            saver.restore(session, path)
        rows.restore(session, path)
        outputs = spec.predictions if isinstance(spec.predictions, Mapping) else {"predictions": spec.predictions}
        on_error.pop_all()
        return Predictor(session, inputs.receivers, outputs, model.name)


def newest_version(folder: str) -> str:
    """Returns the folder of a SavedModel: this one, or the newest version in it.

    Raises:
      ConfigError: the folder has no SavedModel.
    """
    versions = sorted((name for name in _names(folder) if name.isdecimal()), key=int)
    if not tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")) and versions:
        folder = os.path.join(folder, versions[-1])
    if not tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        below = folders_with(folder, "saved_model.pb", "*/saved_model.pb")  # as --export_dir of a training has them
        wanted = " or ".join(below) or "the folder that `ps_train export` wrote"
        raise ConfigError("no_saved_model", f"--saved_model: no saved_model.pb in {folder!r}; give {wanted}")
    return folder


def folders_with(folder: str, *patterns: str) -> list[str]:
    """Returns the folders in a folder that have files of these patterns, some of them if they are many."""
    found = {str(pathlib.Path(folder, path.relative_to(folder).parts[0]))
             for pattern in patterns for path in pathlib.Path(folder).glob(f"*/{pattern}")}
    return sorted(found)[:_MAX_LISTED]


def of_saved_model(folder: str, num_threads: int) -> Predictor:
    """Returns the predictor of a SavedModel, by its default signature; of several versions, the newest.

    Raises:
      ConfigError: the folder has no SavedModel.
    """
    folder = newest_version(folder)
    with tf.Graph().as_default() as graph:
        session = tf.Session(graph=graph, config=session_options(num_threads))
        signatures = tf.saved_model.load(session, [tf.saved_model.tag_constants.SERVING], folder).signature_def
        if serving.DEFAULT_SIGNATURE not in signatures:
            raise ConfigError("no_default_signature",
                              f"--saved_model: {folder} has the signatures {', '.join(sorted(signatures))}, and none "
                              f"that is called {serving.DEFAULT_SIGNATURE!r}")
        signature = signatures[serving.DEFAULT_SIGNATURE]
        tensors = [{name: tf.saved_model.utils.get_tensor_from_tensor_info(info, graph) for name, info in infos.items()}
                   for infos in (signature.inputs, signature.outputs)]
        return Predictor(session, *tensors, name=folder)


def session_options(num_threads: int) -> tf.ConfigProto:
    """Returns the options of one of several sessions on this machine."""
    return tf.ConfigProto(allow_soft_placement=True, intra_op_parallelism_threads=num_threads)


def _names(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _column(tensor: Any) -> InputColumn:
    shape = tensor.shape
    sizes = None if shape.rank is None else shape.as_list()[1:]
    return InputColumn(tensor.dtype, sizes, isinstance(tensor, tf.SparseTensor))
