"""ps_train: parameter-server training for TensorFlow 1 graph code, on today's TensorFlow.

    python -m ps_train ... --> __main__.py --> tasks/run.py     one task of a cluster: ps, worker or evaluator
                                           --> launch/          a cluster on this machine
                                           --> keras/           Keras models under tf.distribute

The names below are the public API, for plug-ins and for programs that embed ps_train. Those that need TensorFlow import
it on first use. ARCHITECTURE.md has the map of the folders.
"""

from __future__ import annotations

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
    "PREDICT",
    "PsTrainError",
    "StoppedError",
    "SyncReplicasOptimizer",
    "TRAIN",
    "UserCodeError",
    "VALIDATION",
    "from_arrays",
    "input_feed",
]


def __getattr__(name: str) -> Any:
    if name == "SyncReplicasOptimizer":
        from ps_train.updates.sync import sync_replicas  # noqa: PLC0415 (TensorFlow takes seconds to import)

        return sync_replicas.SyncReplicasOptimizer
    if name in ("from_arrays", "input_feed"):
        from ps_train.graph.input import arrays  # noqa: PLC0415 (TensorFlow takes seconds to import)

        return getattr(arrays, name)
    if name == "KerasTwin":
        from ps_train.keras import plugins  # noqa: PLC0415 (only a model with a Keras twin needs it)

        return plugins.KerasTwin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
