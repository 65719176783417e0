"""Makes the versions of the model in a folder of pushes, with the plug-ins of the training.

    checkpoint --> SavedModel, as `ps_train export` writes it
               --> LiveLayout: where each of its dense variables is among the bytes of a push; room for more rows
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.inference import on_checkpoint, serving
from ps_train.parts.publish.flags import PublishConfig
from ps_train.parts.publish.publisher import Export, LiveLayout
from ps_train.parts.tables import contents

_HEAD_ROOM, _LEAST_ROOM = 1.25, 1000  # rows
_VARIABLES = os.path.join("variables", "variables")  # of a SavedModel
_OF_TABLES = "ps_train/table/"  # the names of their variables, see parts/tables/exported.py
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # tf.train.Saver may add it


def make_export(config: PublishConfig) -> Export:
    """Returns what writes a version of the model; it raises a PsTrainError if the model cannot be exported."""
    def export(path: str, output_dir: str, training: str, number: int, num_rows: Mapping[str, int]) -> LiveLayout:
        del training, number  # CURRENT has them
        plugins = on_checkpoint.load_as_trained(config, config.train_dir)
        if serving.needs_dataset(plugins.model, plugins.dataset):
            on_checkpoint.prepare_data(config, plugins)
        serving.export_model(path, output_dir, plugins.model, plugins.model_params,
                             serving.serving_input_maker(*plugins))
        return LiveLayout(dense_layout(os.path.join(output_dir, _VARIABLES)), {
            name: int(_HEAD_ROOM * max(num_rows.get(name, 0), contents.count_rows(path, name))) + _LEAST_ROOM
            for name in contents.read_tables(path)})

    return export


def dense_layout(path: str) -> list[dict[str, Any]]:
    """Returns the places of the dense variables in a checkpoint of a SavedModel, one after the other by their names."""
    reader, layout, offset = tf.train.load_checkpoint(path), [], 0
    for name, shape in sorted(reader.get_variable_to_shape_map().items()):
        if not name.startswith(_OF_TABLES) and name != _OBJECT_GRAPH:
            array = reader.get_tensor(name)
            layout.append({"name": name, "dtype": str(array.dtype), "shape": shape, "offset": offset})
            offset += array.nbytes
    return layout
