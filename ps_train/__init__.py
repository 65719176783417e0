"""ps_train: parameter-server training for TensorFlow 1 graph code, on today's TensorFlow.

These names are for plug-ins and for programs that embed ps_train; those that need TensorFlow import it on first use.
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
from ps_train.plugins import EVAL, PREDICT, TRAIN, KerasTwin, ModelSpec

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
    "TRAIN",
    "UserCodeError",
    "from_arrays",
    "input_feed",
]


def __getattr__(name: str) -> Any:
    if name in ("from_arrays", "input_feed"):
        from ps_train import inputs  # noqa: PLC0415 (TensorFlow takes seconds to import)

        return getattr(inputs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
