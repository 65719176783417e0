"""ps_train: parameter-server training for TensorFlow 1 graph code, on today's TensorFlow.

    python -m ps_train ... --> __main__.py --> tasks/run.py     one task of a cluster: ps, worker or evaluator
                                           --> launch/          a cluster on this machine
                                           --> keras/           Keras models under tf.distribute

The names below are the public API, for plug-ins and for programs that embed ps_train. Those that need TensorFlow import
it on first use. ARCHITECTURE.md has the map of the folders.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ps_train.errors import (
    CheckpointError,
    ClusterLostError,
    ConfigError,
    DataError,
    PsTrainError,
    StoppedError,
    UserCodeError,
)
from ps_train.plugins.contracts import EVAL, PREDICT, TRAIN, VALIDATION, ModelSpec

if TYPE_CHECKING:  # what type checkers and editors see of _WITH_TENSORFLOW
    from ps_train.graph.input.arrays import from_arrays, input_feed
    from ps_train.graph.input.file_ranges import file_ranges
    from ps_train.graph.input.readers import LineReader, RecordReader
    from ps_train.parts.keras.plugins import KerasTwin
    from ps_train.parts.legacy.classic.placement import replica_device_setter
    from ps_train.parts.legacy.classic.server import Server
    from ps_train.parts.legacy.classic.sessions import MonitoredTrainingSession, Supervisor
    from ps_train.parts.sharding.range_batches import range_batches
    from ps_train.parts.tables.files.reading import read_table
    from ps_train.parts.tables.tables import embedding_table
    from ps_train.parts.tables.variable import get_embedding_variable
    from ps_train.updates.sync.sync_replicas import SyncReplicasOptimizer

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ClusterLostError",
    "ConfigError",
    "DataError",
    "EVAL",
    "KerasTwin",
    "LineReader",
    "ModelSpec",
    "MonitoredTrainingSession",
    "PREDICT",
    "PsTrainError",
    "RecordReader",
    "Server",
    "StoppedError",
    "Supervisor",
    "SyncReplicasOptimizer",
    "TRAIN",
    "UserCodeError",
    "VALIDATION",
    "embedding_table",
    "file_ranges",
    "from_arrays",
    "get_embedding_variable",
    "input_feed",
    "range_batches",
    "read_table",
    "replica_device_setter",
]

# Name -> its module. They need TensorFlow, which takes seconds to import, so they are imported on first use.
_WITH_TENSORFLOW = {
    "KerasTwin": "ps_train.parts.keras.plugins",
    "LineReader": "ps_train.graph.input.readers",
    "MonitoredTrainingSession": "ps_train.parts.legacy.classic.sessions",
    "RecordReader": "ps_train.graph.input.readers",
    "Server": "ps_train.parts.legacy.classic.server",
    "Supervisor": "ps_train.parts.legacy.classic.sessions",
    "SyncReplicasOptimizer": "ps_train.updates.sync.sync_replicas",
    "embedding_table": "ps_train.parts.tables.tables",
    "file_ranges": "ps_train.graph.input.file_ranges",
    "from_arrays": "ps_train.graph.input.arrays",
    "get_embedding_variable": "ps_train.parts.tables.variable",
    "input_feed": "ps_train.graph.input.arrays",
    "range_batches": "ps_train.parts.sharding.range_batches",
    "read_table": "ps_train.parts.tables.files.reading",
    "replica_device_setter": "ps_train.parts.legacy.classic.placement",
}


def __getattr__(name: str) -> Any:
    if name in _WITH_TENSORFLOW:
        return getattr(importlib.import_module(_WITH_TENSORFLOW[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
