"""ps_train: parameter-server training for TensorFlow 1 graph code, on today's TensorFlow.

    python -m ps_train ... --> __main__.py --> tasks/run.py     one task of a cluster: ps, worker or evaluator
                                           --> launch/          a cluster on this machine
                                           --> parts/keras/     Keras models under tf.distribute

The names below are the public API, for plug-ins and for programs that embed ps_train. Those that need TensorFlow import
it on first use. ARCHITECTURE.md has the map of the folders.
"""

from __future__ import annotations

import importlib
import sys
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
from ps_train.parts import table
from ps_train.plugins.contracts import EVAL, PREDICT, TRAIN, VALIDATION, ModelSpec

__version__ = "0.1.0"

# Name -> its module. Most need TensorFlow, which takes seconds to import, so they are imported on first use.
_ON_FIRST_USE = {
    "Training": "ps_train.launch.training",
    "from_arrays": "ps_train.graph.arrays",
    "input_feed": "ps_train.graph.batches",
    **table.public_names(),
}

__all__ = [
    "CheckpointError", "ClusterLostError", "ConfigError", "DataError", "EVAL", "ModelSpec", "PREDICT", "PsTrainError",
    "StoppedError", "TRAIN", "UserCodeError", "VALIDATION"]
__all__ += _ON_FIRST_USE
__all__.sort()


sys.meta_path.insert(0, table.EarlierModules())  # before the finder of files, which would load a module twice


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return getattr(importlib.import_module(_ON_FIRST_USE[name]), name)
    if name in table.earlier_names():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
