"""Exports a checkpoint as a live SavedModel: one whose rows and dense variables change while it is served.

    signature           inputs                              outputs
    those of an export  as there                            as there
    live_rows/TABLE     number, ids, rows, dropped          used, capacity
    live_commit         number, previous, dense, step       number
    live_status         probe                               number, step, training, dense_bytes, dense_layout, tables,
                                                            used

    variables/          dense       the bytes of all dense variables, with the number of the push
                        table/TABLE the ids and rows of the checkpoint, as in a plain export
    assets/             live.json   {"dense": [...], "tables": {name: {"dim", "capacity"}}, "training", "number"}

docs/fresh_rows.md describes the signatures.
"""

from __future__ import annotations

import functools
import json
import math
import os
import tempfile
import types
import uuid
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from ps_train.graph.adam import run_exclusively
from ps_train.parts.inference import on_checkpoint, serving
from ps_train.parts.inference.flags import CheckpointFlags
from ps_train.parts.live.dense import DenseLayout, DenseState, check_connected, check_saved
from ps_train.parts.live.flags import LiveExportConfig
from ps_train.parts.live.table import LiveTable, ensure
from ps_train.parts.sharding.position import reading_as_trained
from ps_train.parts.tables import contents
from ps_train.parts.tables.exported import PiecewiseSaver
from ps_train.parts.tables.rules import MAX_ROWS_PER_PS, TableSpec
from ps_train.plugins.contracts import Model
from ps_train.storage import checkpoints

ASSET = "live.json"
_ENTRY = ("name", "dtype", "shape", "offset", "saved", "part")
_HEAD_ROOM = 1.5
_VIRTUAL_BYTES = 500_000_000  # that a table has room for, at least; memory is used as rows are made


class LiveLayout(NamedTuple):
    """What a live model takes.

    Attributes:
      dense: of each dense variable its name, the place of its bytes, and where a checkpoint has them: {"name", "dtype",
        "shape", "offset", "saved", "part"}, as in `DenseLayout`.
      capacity: name of a table -> rows that it has room for.
    """

    dense: list[dict[str, Any]]
    capacity: dict[str, int]


class Version(NamedTuple):
    """Which state of which training a live model is.

    Attributes:
      training: the ID of the training.
      number: of the last push that is in it.
      num_rows: name of a table -> least number of rows that it needs room for, if there are more than in the
        checkpoint.
      head_room: rows that a table has room for, in multiples of those that it needs; None for 1.5, and at least as many
        as 500 MB hold.
    """

    training: str = ""
    number: int = 0
    num_rows: Mapping[str, int] = types.MappingProxyType({})
    head_room: Optional[float] = None

    def capacity(self, num_rows: int, spec: TableSpec) -> int:
        """Returns the rows that a table with this many has room for."""
        least = 1 if self.head_room else _VIRTUAL_BYTES // spec.row_format.stored_bytes
        capacity = max(math.ceil(num_rows * (self.head_room or _HEAD_ROOM)), least)
        return min(capacity, spec.num_rows or MAX_ROWS_PER_PS)


# `export(path, output_dir, training, number, num_rows)` writes the live model of a checkpoint to a folder that does not
# exist, with room for as many rows of each table, and some more.
Export = Callable[[str, str, str, int, Mapping[str, int]], None]


def make_export(config: CheckpointFlags) -> Export:
    """Returns a function that exports checkpoints of the training of these flags as live models.

    It raises as `write_live` does.
    """
    def export(path: str, output_dir: str, training: str, number: int, num_rows: Mapping[str, int]) -> None:
        plugins = on_checkpoint.load_as_trained(config, config.train_dir)
        with reading_as_trained(path):
            if serving.needs_dataset(plugins.model, plugins.dataset):
                on_checkpoint.prepare_data(config, plugins, config.train_dir)
            make_input = serving.serving_input_maker(*plugins)
            write_live(path, output_dir, plugins.model, plugins.model_params, make_input,
                       Version(training, number, num_rows))

    return export


def export_live_or_plain(config: LiveExportConfig) -> None:
    """Writes a checkpoint to export_dir/STEP, live if the flags say so, and prints its signatures.

    Raises:
      PsTrainError: the checkpoint does not exist or is of another model, or the model cannot be exported.
    """
    version = Version(head_room=config.live_head_room)
    on_checkpoint.export_checkpoint(
        config, functools.partial(write_live, version=version) if config.live else serving.export_model)


def write_live(
    path: str, output_dir: str, model: Model, model_params: Mapping[str, Any], features: Any,
    version: Optional[Version] = None, replaces: bool = False,
) -> dict[str, str]:
    """Writes a live SavedModel with the tag `serve`; the arguments and the result are those of `serving.export_model`.

    Raises:
      UserCodeError: a variable of the model cannot be replaced by a slice.
      PsTrainError: as of `serving.export_model`.
    """
    with tempfile.TemporaryDirectory() as folder:
        return serving.export_model(
            path, output_dir, model, model_params, features, replaces,
            make_graph=functools.partial(LiveGraph, version=version or Version(), asset=os.path.join(folder, ASSET)))


def check_live(model: Model, model_params: Mapping[str, Any], make_input: serving.MakeInput) -> None:
    """Builds the graph of a live model, to find what it cannot have before training.

    Raises:
      UserCodeError: a variable of the model cannot be replaced by a slice.
    """
    with tempfile.TemporaryDirectory() as folder:
        serving.check_exportable(model, model_params, make_input, functools.partial(
            LiveGraph, version=Version(), asset=os.path.join(folder, ASSET)))


def read_layout(model_dir: str) -> LiveLayout:
    """Returns what the live model in a folder takes.

    Raises:
      OSError, ValueError, KeyError: it has no such file, a damaged one, or one of an earlier version of ps_train.
    """
    with open(os.path.join(model_dir, "assets", ASSET), encoding="utf-8") as file:
        about = json.load(file)
    dense = [{key: entry[key] for key in _ENTRY} for entry in about["dense"]]  # without "saved" it cannot be updated
    return LiveLayout(dense, {name: table["capacity"] for name, table in about["tables"].items()})


class LiveGraph(serving.ServedGraph):
    """A model in mode "infer" whose rows and dense variables can be replaced, in the current graph."""

    def __init__(self, *arguments: Any, version: Version, asset: str) -> None:
        """Adds the model to the graph; the arguments, and errors, are those of `ServedGraph`.

        Args:
          asset: a path on this machine, to which it writes a file that becomes an asset.

        Raises:
          UserCodeError: a variable of the model cannot be replaced by a slice.
        """
        self._version, self._uid = version, uuid.uuid4().hex
        super().__init__(*arguments)
        layout = DenseLayout(self.dense, self.restoring)
        if self.path is not None:
            check_saved(self.path, layout.entries)
        self._state = DenseState(layout)
        renamed = self._state.connect(self.dense)
        self._signatures = {name: _with_names(signature, renamed) for name, signature in super().signatures().items()}
        check_connected([tf.get_default_graph().get_tensor_by_name(name) for signature in self._signatures.values()
                         for name in _names_of(signature.outputs)], self.dense)
        self._signatures |= {f"live_rows/{name}": self._rows_signature(table) for name, table in self.tables.items()}
        self._signatures |= {"live_commit": self._commit_signature(), "live_status": self._status_signature()}
        self._asset = _add_asset(asset, {
            "dense": self._state.layout.entries, "tables": self._about_tables(), "training": version.training,
            "number": version.number})

    def _about_tables(self) -> dict[str, dict[str, int]]:
        return {name: {"dim": table.spec.dim, "capacity": table.capacity} for name, table in self.tables.items()}

    def _table_maker(self) -> Callable[..., LiveTable]:
        def make(spec: TableSpec, **_: Any) -> LiveTable:
            num_saved = 0 if self.path is None else contents.count_rows(self.path, spec.name)
            num_rows = max(num_saved, self._version.num_rows.get(spec.name, 0))
            return LiveTable(spec, num_rows=num_saved, capacity=self._version.capacity(num_rows, spec), uid=self._uid)

        return make

    def signatures(self) -> dict[str, Any]:
        """Returns name -> SignatureDef."""
        return self._signatures

    def _saver(self, session: tf.Session) -> tf.train.Saver:
        names = [variable.op.name for variable in self.dense]
        packed = self._state.layout.pack(dict(zip(names, session.run(list(self.dense)))))
        first = self._state.first_value(self._version.number, checkpoints.step_of(self.path), packed)
        # By this collection, TensorFlow finds the variables of a SavedModel.
        for collection in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES,
                           tf.GraphKeys.MODEL_VARIABLES, tf.GraphKeys.MOVING_AVERAGE_VARIABLES):
            tf.get_default_graph().clear_collection(collection)
        self._state.variable.load(first, session)
        saver = PiecewiseSaver([self._state.variable], self.tables, self.path, self.mutable)
        for variable in saver.variables:
            tf.add_to_collection(tf.GraphKeys.GLOBAL_VARIABLES, variable)
        return saver

    def _load_ops(self) -> list[tf.Operation]:
        return [*super()._load_ops(), *(table.load() for table in self.tables.values())]

    def _exclusively(self, inputs: Mapping[str, tf.Tensor], body: Callable[[], list[tf.Operation]]) -> tf.Operation:
        return run_exclusively(f"live/{self._uid}", list(inputs.values()), body)

    def _rows_signature(self, table: LiveTable) -> Any:
        inputs = _placeholders(number=tf.int64, ids=[tf.int64, None], rows=[tf.float32, None, None],
                               dropped=[tf.int64, None])

        def body() -> list[tf.Operation]:
            number = inputs["number"]
            current, _ = self._state.number_and_step()
            with tf.control_dependencies([ensure(
                    number > current, f"live_rows/{table.spec.name}: got push {{}}; allowed: those after {{}}, which "
                    "this model is at", number, current)]):
                return table.change(*(tf.identity(inputs[name]) for name in ("ids", "rows", "dropped")))

        with tf.control_dependencies([self._exclusively(inputs, body)]):
            outputs = {"used": table.num_used(), "capacity": tf.identity(tf.constant(table.capacity, tf.int64))}
        return _signature(inputs, outputs)

    def _commit_signature(self) -> Any:
        inputs = _placeholders(number=tf.int64, previous=tf.int64, dense=[tf.uint8, None], step=tf.int64)
        number, previous, dense, step = inputs.values()
        num_bytes = self._state.layout.num_bytes

        def body() -> list[tf.Operation]:
            current, _ = self._state.number_and_step()
            follows = tf.equal(previous, current) & (number > current)
            with tf.control_dependencies([
                    ensure(follows, "live_commit: got push {} after push {}; this model is at push {}: send the pushes "
                           "after that in order, or load a new version", number, previous, current),
                    ensure(tf.equal(tf.size(dense), num_bytes), "live_commit: got {} bytes of dense variables; "
                           f"allowed: {num_bytes}", tf.size(dense))]):
                released = [operation for table in self.tables.values() for operation in table.release()]
            with tf.control_dependencies(released):
                return [self._state.assign(*map(tf.identity, (number, step, dense)))]

        with tf.control_dependencies([self._exclusively(inputs, body)]):
            return _signature(inputs, {"number": tf.identity(number)})

    def _status_signature(self) -> Any:
        inputs = _placeholders(probe=tf.int64)
        number, step = self._state.number_and_step()
        layout = self._state.layout
        return _signature(inputs, {
            "number": number, "step": step, "training": tf.constant(self._version.training),
            "dense_bytes": tf.constant(layout.num_bytes, tf.int64),
            "dense_layout": tf.constant(json.dumps(layout.entries)),
            "tables": tf.constant(json.dumps(self._about_tables())),
            "used": tf.stack([table.num_used() for table in self.tables.values()]) if self.tables
            else tf.zeros([0], tf.int64)})


def _add_asset(path: str, about: Mapping[str, Any]) -> tf.Tensor:
    """Writes a file that the SavedModel has as an asset; returns its path, a string scalar."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(about, file)
    asset = tf.constant(path, name="ps_train/live/asset")
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
    return asset


def _placeholders(**forms: Any) -> dict[str, tf.Tensor]:
    """Returns name -> placeholder of a type, of a scalar; or of [type, size, ...]."""
    made = {}
    for name, form in forms.items():
        dtype, *shape = form if isinstance(form, list) else [form]
        made[name] = tf.placeholder(dtype, shape, name=f"ps_train/live/{name}")
    return made


def _signature(inputs: Mapping[str, tf.Tensor], outputs: Mapping[str, tf.Tensor]) -> Any:
    infos = [{name: tf.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
             for tensors in (inputs, outputs)]
    return tf.saved_model.build_signature_def(*infos, tf.saved_model.signature_constants.PREDICT_METHOD_NAME)


def _names_of(infos: Mapping[str, Any]) -> list[str]:
    """Returns the names of all tensors of a signature's outputs."""
    sparse = ("values_tensor_name", "indices_tensor_name", "dense_shape_tensor_name")
    return [name for info in infos.values() for name in (
        [info.name] if info.name else [getattr(info.coo_sparse, part) for part in sparse]) if name]


def _with_names(signature: Any, renamed: Mapping[str, str]) -> Any:
    """Returns the signature; an output that was the value of a variable is the value that is read now."""
    for info in signature.outputs.values():
        if info.name in renamed:
            info.name = renamed[info.name]
    return signature
