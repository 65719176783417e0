"""ps_train: parameter-server training for TensorFlow 1 graph code, on today's TensorFlow.

    python -m ps_train ... --> __main__.py --> tasks/run.py     one task of a cluster: ps, worker or evaluator
                                           --> launch/          a cluster on this machine
                                           --> keras/           Keras models under tf.distribute

The names below are the public API, for plug-ins and for programs that embed ps_train. Those that need TensorFlow import
it on first use. ARCHITECTURE.md has the map of the folders.
"""

from __future__ import annotations

import importlib
from typing import Any

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

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ClusterLostError",
    "ConfigError",
    "DataError",
    "EVAL",
    "KerasTwin",
    "ModelSpec",
    "MonitoredTrainingSession",
    "PREDICT",
    "PsTrainError",
    "Server",
    "StoppedError",
    "Supervisor",
    "SyncReplicasOptimizer",
    "TRAIN",
    "UserCodeError",
    "VALIDATION",
    "from_arrays",
    "input_feed",
    "replica_device_setter",
]

# Name -> its module. They need TensorFlow, which takes seconds to import, so they are imported on first use.
_WITH_TENSORFLOW = {
    "KerasTwin": "ps_train.keras.plugins",
    "MonitoredTrainingSession": "ps_train.legacy.classic.sessions",
    "Server": "ps_train.legacy.classic.server",
    "Supervisor": "ps_train.legacy.classic.sessions",
    "SyncReplicasOptimizer": "ps_train.updates.sync.sync_replicas",
    "from_arrays": "ps_train.graph.input.arrays",
    "input_feed": "ps_train.graph.input.arrays",
    "replica_device_setter": "ps_train.legacy.classic.placement",
}


def __getattr__(name: str) -> Any:
    if name in _WITH_TENSORFLOW:
        return getattr(importlib.import_module(_WITH_TENSORFLOW[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
