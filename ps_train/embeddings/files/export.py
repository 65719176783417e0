"""Exports a model with its tables as a SavedModel, which TensorFlow loads without ps_train.

    checkpoint --> rows, piece by piece --> variables/   ids, numbers, values of each table
    model_fn in mode "infer"            --> saved_model.pb

A table is looked up by a binary search in its sorted ids. An id without a row has its first value. The process that
exports holds 16 bytes a row and one piece; the process that loads holds whole tables.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.embeddings import connection, registry
from ps_train.embeddings.files import contents, reading
from ps_train.embeddings.files.slices import SliceWriter
from ps_train.embeddings.rows.first_values import first_values
from ps_train.embeddings.rows.row_ops import gather, read_whole
from ps_train.embeddings.rules import Frozen
from ps_train.embeddings.spec import EMPTY_KEY, TableSpec
from ps_train.errors import CheckpointError, ConfigError, UserCodeError
from ps_train.graph import devices
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.plugins.contracts import PREDICT, Model


class ExportedTable:
    """The rows of a table, to be read only.

    The first one belongs to EMPTY_KEY, which no lookup has. It precedes all ids, so each search finds a place.

    Attributes:
      spec: the table.
      ids: variable int64 [1 + rows], in ascending order.
      numbers: variable int64 [1 + rows], the place of each id's row in `values`.
      values: variable float32 [1 + rows, dim], in the order of the checkpoint.
    """

    device = ""

    def __init__(self, spec: TableSpec, num_rows: int) -> None:
        """Adds the variables to the current graph."""
        self.spec, self.width = spec, spec.dim
        name = f"ps_train/table/{spec.name}"
        self.ids = _variable(f"{name}/ids", tf.int64, [1 + num_rows])
        self.numbers = _variable(f"{name}/numbers", tf.int64, [1 + num_rows])
        self.values = _variable(f"{name}/values", tf.float32, [1 + num_rows, spec.dim])

    def read(self, ids: tf.Tensor, *, with_slots: bool = False) -> tf.Tensor:
        """Returns the values of ids int64 [n], float32 [n, dim]; the first values of those without a row."""
        del with_slots  # there are none
        known = read_whole(self.ids)  # shares the memory of a variable that nobody writes
        places = tf.searchsorted(known, ids, side="right", out_type=tf.int64) - 1
        values = gather(self.values, tf.gather(read_whole(self.numbers), places))
        missing = tf.where(tf.not_equal(tf.gather(known, places), ids))[:, 0]
        first = first_values(
            tf.gather(ids, missing), self.spec.dim, limit=self.spec.initial_limit, seed=self.spec.name)
        return tf.tensor_scatter_nd_update(values, missing[:, tf.newaxis], first)


def export_model(
    path: str, output_dir: str, model: Model, model_params: Mapping[str, Any], features: Mapping[str, Any] | tf.TypeSpec
) -> None:
    """Writes a SavedModel with the tag `serve` and the signature `serving_default`.

    Args:
      path: path prefix of the checkpoint.
      output_dir: a folder that does not exist yet.
      model: its model_fn is called with the mode "infer" and without labels.
      features: what a request has: a `tf.TensorSpec` or `tf.SparseTensorSpec`, or a dict of them.

    Raises:
      CheckpointError: the checkpoint cannot be read, or is of another model.
      ConfigError: the folder exists.
      UserCodeError: model_fn does not predict.
    """
    if os.path.exists(output_dir):
        raise ConfigError(f"cannot export to {output_dir}: it exists; give a new folder")
    with tf.Graph().as_default() as graph, devices.ignoring_tasks():
        tf.train.create_global_step()
        inputs = tf.nest.map_structure(_placeholder, features)
        found = registry.install_registry([""], Frozen(learning_rate=0.0), _table_maker(path))
        found.begin_build()
        spec = call_model_fn(model, inputs, None, PREDICT, model_params)
        contents.check_tables_fit(path, found.specs)
        dense = _checked(path, tf.global_variables())  # the tables are added now
        connection.connect_lookups()
        tables = {store.spec.name: store for store in connection.stores_of(found)}
        saver = _PiecewiseSaver(dense, tables, path)
        with tf.Session(graph=graph) as session:
            tf.train.Saver(dense).restore(session, path)
            _write(session, output_dir, _signature(model.name, inputs, spec.predictions), saver)


def _table_maker(path: str) -> Any:
    """Returns what makes a table with as many rows as it has in a checkpoint."""
    def make(spec: TableSpec, **_: Any) -> ExportedTable:
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        pieces = contents.read_tables(path)[spec.name].pieces
        return ExportedTable(spec, sum(shapes[f"{piece}/ids"][0] for of_ps in pieces for piece in of_ps))

    return make


def _checked(path: str, variables: list[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables, all of which are in a checkpoint.

    Raises:
      CheckpointError: one is missing.
    """
    saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    missing = sorted({variable.op.name for variable in variables if not variable._get_save_slice_info()}  # noqa: SLF001
                     - set(saved))
    if missing:
        raise CheckpointError(f"checkpoint {path} is of another model: {', '.join(missing[:8])} missing there; give "
                              "the model and the params that it was trained with")
    return variables


def _placeholder(spec: tf.TypeSpec) -> Any:
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse_placeholder(spec.dtype, spec.shape)
    return tf.placeholder(spec.dtype, spec.shape, name=spec.name)


def _signature(model_name: str, inputs: Any, predictions: Any) -> Any:
    """Returns the signature of a model; what has no name is called `inputs` and `predictions`."""
    if predictions is None:
        raise UserCodeError(f"{model_name}.model_fn returned no predictions with the mode {PREDICT!r}")
    named = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    results = predictions if isinstance(predictions, Mapping) else {"predictions": predictions}
    told = [{name: tf.saved_model.build_tensor_info(tensor) for name, tensor in one.items()}
            for one in (named, results)]
    return tf.saved_model.build_signature_def(*told, tf.saved_model.signature_constants.PREDICT_METHOD_NAME)


def _write(session: tf.Session, output_dir: str, signature: Any, saver: tf.train.Saver) -> None:
    builder = tf.saved_model.Builder(output_dir)
    builder.add_meta_graph_and_variables(
        session, [tf.saved_model.tag_constants.SERVING],
        {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
        assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
        main_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer()), saver=saver)
    builder.save()


class _PiecewiseSaver(tf.train.Saver):
    """Saves the dense variables of a session, and tables from the pieces of a checkpoint; neither is ever whole."""

    def __init__(self, dense: list[tf.Variable], tables: Mapping[str, ExportedTable], path: str) -> None:
        of_tables = [variable for one in tables.values() for variable in (one.ids, one.numbers, one.values)]
        super().__init__([*dense, *of_tables])
        self._own = tf.train.Saver(dense)
        self._tables, self._path = tables, path

    def save(self, sess: tf.Session, save_path: str, *_: Any, **__: Any) -> str:
        """Writes everything to one checkpoint."""
        parts = f"{save_path}_temp"
        os.makedirs(parts)
        prefixes = [self._own.save(sess, f"{parts}/dense", write_meta_graph=False, write_state=False)]
        writer = SliceWriter(parts)
        for name, table in self._tables.items():
            ids = np.concatenate([[EMPTY_KEY], *reading.read_ids(self._path, contents.read_tables(self._path)[name])])
            numbers = np.argsort(ids, kind="stable")
            writer.write_whole(table.numbers, numbers)
            ids.sort()
            writer.write_whole(table.ids, ids)
            first = np.zeros([1, table.spec.dim], np.float32)
            writer.write(table.values, itertools.chain(
                [first], (values for _, values in reading.read_table(self._path, name))))
        writer.merge(prefixes, save_path)
        return save_path


def _variable(name: str, dtype: tf.DType, shape: list[int]) -> tf.Variable:
    # In the collection of global variables, by which TensorFlow finds what a SavedModel has.
    return tf.Variable(lambda: tf.zeros(shape, dtype), trainable=False, name=name, use_resource=True)
