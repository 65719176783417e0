"""The names of `horovod.keras` and `horovod.tensorflow.keras`, for graphs that Keras 2 builds.

    init, rank, size, local_rank, ...     those of module.py
    DistributedOptimizer, load_model      keras_optimizer.py
    allreduce, allgather, broadcast       keras_values.py: they take and return numbers and arrays, at once
    broadcast_global_variables            the same: all ranks have the values of rank 0 when it returns
    callbacks                             keras_callbacks.py

Each rank has its own variables, as under Horovod. Both packages are one module here, as both of their Keras are.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from ps_train.errors import MissingNameError
from ps_train.parts.legacy.horovod import keras_callbacks, keras_optimizer, keras_values
from ps_train.parts.legacy.horovod import module as hvd
from ps_train.parts.legacy.names.namespace import script_line

_SHARED = (
    "init", "shutdown", "is_initialized", "is_homogeneous", "rank", "size", "local_rank", "local_size", "cross_rank",
    "cross_size", "mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built",
    "ddl_built", "ccl_built", "cuda_built", "rocm_built", "Average", "Sum", "Adasum", "Min", "Max", "Product",
    "Compression", "broadcast_object", "allgather_object")
_CALLBACKS = ("BroadcastGlobalVariablesCallback", "MetricAverageCallback", "LearningRateScheduleCallback",
              "LearningRateWarmupCallback")
_OWN = {
    "DistributedOptimizer": keras_optimizer.distributed_keras_optimizer,
    "load_model": keras_optimizer.load_horovod_model,
    "allreduce": keras_values.allreduce_values,
    "allgather": keras_values.allgather_values,
    "broadcast": keras_values.broadcast_value,
    "broadcast_global_variables": keras_values.broadcast_values,
}


@functools.cache
def stand_in_of_keras() -> types.ModuleType:
    """Returns the module, with its `callbacks`; another name in it is an error of one line."""
    callbacks = _make_module("horovod.keras.callbacks", {name: getattr(keras_callbacks, name) for name in _CALLBACKS})
    shared = {name: getattr(hvd, name) for name in _SHARED}
    return _make_module("horovod.keras", {**shared, **_OWN, "callbacks": callbacks})


def _make_module(name: str, names: dict[str, Any]) -> types.ModuleType:
    def refuse(leaf: str) -> Any:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        raise MissingNameError("horovod_name_missing", f"{name}.{leaf} ({script_line()}): ps_train has no stand-in for "
                               "this name of Horovod; docs/migrate_horovod.md lists those that it has")

    made = types.ModuleType(name, __doc__)
    vars(made).update(names, __path__=[], __getattr__=refuse)  # so that its submodules can be imported
    return made
