"""The names of `horovod.tensorflow`: a script's `import horovod.tensorflow as hvd` finds this module (imports.py).

    init, shutdown, is_initialized                         allreduce, allgather, broadcast
    rank, size, local_rank, local_size, cross_...          broadcast_global_variables, broadcast_variables
    DistributedOptimizer, Compression, Average, Sum, ...   BroadcastGlobalVariablesHook
    mpi_built, gloo_built, nccl_built, ...                 broadcast_object, allgather_object

Without TF_CONFIG the script runs alone, as rank 0 of 1, in TensorFlow's own local sessions.
"""

from __future__ import annotations

import collections
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from ps_train.errors import ClusterLostError, ConfigError, MissingNameError
from ps_train.parts.legacy.classic import membership, sessions
from ps_train.parts.legacy.horovod import graphs, optimizer, ranks
from ps_train.parts.legacy.horovod.compression import (  # noqa: F401 (names of Horovod)
    Compression,
    Compressor,
    FP16Compressor,
    NoneCompressor,
)
from ps_train.parts.legacy.horovod.exchange import REDUCTIONS, Exchange
from ps_train.parts.legacy.horovod.fused import FusedExchange
from ps_train.parts.legacy.horovod.redirection import HorovodSessions
from ps_train.parts.legacy.horovod.second_step import Collectives
from ps_train.parts.legacy.names.namespace import script_line

Average, Sum, Adasum, Min, Max, Product = optimizer.AVERAGE, optimizer.SUM, optimizer.ADASUM, "Min", "Max", "Product"
NAME = "horovod.tensorflow"
SUBMODULES = tuple(f"{NAME}.{leaf}" for leaf in ("mpi_ops", "functions", "compression"))  # whose names are here, too
_log = logging.getLogger(__name__)


class _State:
    """What `init` has found; None before it."""

    server_class: Any = None
    ranks: ranks.Ranks | None = None
    exchange: Exchange | None = None  # None alone
    fused: FusedExchange | None = None  # None alone
    named: collections.Counter = collections.Counter()  # base of a name -> how many values have it
    end: Callable[[], None] | None = None
    keeps_variables: bool = False  # whether each rank has its own, as in a Keras script


def use_server(server_class: Any) -> None:
    """Takes the class of the server that `init` starts."""
    _State.server_class = server_class


def keep_variables() -> None:
    """Lets each rank have its own variables, as Horovod does: the script imports `horovod.keras`.

    Raises:
      ConfigError: `init` has decided otherwise.
    """
    if _State.exchange is not None and not _State.keeps_variables:
        raise ConfigError("horovod_import_too_late", f"{script_line()}: import horovod.keras before hvd.init() is "
                          "called, which places the variables")
    _State.keeps_variables = True


def init(*args: Any, **kwargs: Any) -> None:
    """Starts the server of this task; on a ps it never returns. Horovod's arguments, such as `comm`, do nothing.

    Raises:
      ConfigError: TF_CONFIG has no cluster for such a script, or the graph has variables already.
    """
    if _State.ranks is not None:
        return
    # An Estimator would take the variable for its own cluster, and a Horovod script's has none.
    cluster = ranks.horovod_cluster(os.environ.pop("TF_CONFIG", ""))
    if cluster is None:
        _State.ranks = ranks.ALONE
        return
    found = None if cluster.job == "ps" else ranks.ranks_of(cluster)
    server = _State.server_class(tf.train.ClusterSpec(cluster.server_spec), cluster.job, cluster.index,
                                 config=_gpu_options(found.local_rank) if found else None)
    if found is None:
        server.join()
        raise SystemExit(0)
    member = membership.current()
    _State.end = graphs.place_all(cluster, own=_State.keeps_variables)
    sessions.set_redirection(HorovodSessions(member))
    _State.exchange = Exchange(member)
    _State.fused = FusedExchange(member, _State.exchange)
    _State.ranks = found
    _log.info("hvd: rank %d of %d, %d of %d on this machine; its variables are on %s", found.rank, found.size,
              found.local_rank, found.local_size,
              cluster.task if _State.keeps_variables else ", ".join(map(str, cluster.ps)))


def _gpu_options(local_rank: int) -> tf.ConfigProto | None:
    """Returns the options of a server with the one GPU of its local rank; None without GPUs.

    A script gives them to its session, but the devices of a session with a server are the server's.
    """
    gpus = tf2.config.list_physical_devices("GPU")
    if not gpus:
        return None
    number = local_rank % len(gpus)
    tf2.config.set_visible_devices(gpus[number], "GPU")  # see tasks/setup.py, share_machine
    return tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list=str(number)), allow_soft_placement=True)


def shutdown() -> None:
    """Does nothing: a task leaves the cluster when its script ends."""


def is_initialized() -> bool:
    """Returns whether `init` was called."""
    return _State.ranks is not None


def _ranks() -> ranks.Ranks:
    if _State.ranks is None:
        raise ConfigError("horovod_not_initialized", f"{script_line()}: Horovod was not initialized; call hvd.init() "
                          "first")
    return _State.ranks


def rank() -> int:
    """Returns the number of this worker; 0 is the chief."""
    return _ranks().rank


def size() -> int:
    """Returns the number of workers."""
    return _ranks().size


def local_rank() -> int:
    """Returns the number of this worker on its machine."""
    return _ranks().local_rank


def local_size() -> int:
    """Returns the number of workers on this machine."""
    return _ranks().local_size


def cross_rank() -> int:
    """Returns the number of this machine."""
    return _ranks().cross_rank


def cross_size() -> int:
    """Returns the number of machines."""
    return _ranks().cross_size


def is_homogeneous() -> bool:
    """Returns whether each machine has as many workers as the others."""
    return _ranks().is_homogeneous


def _constant(number: Callable[[], int]) -> Callable[..., tf.Tensor]:
    def as_op(name: str | None = None) -> tf.Tensor:
        return tf.constant(number(), tf.int32, name=name)

    return as_op


rank_op, size_op, local_rank_op, local_size_op = map(_constant, (rank, size, local_rank, local_size))


def _false() -> bool:
    """Returns False: nothing here is built with it."""
    return False


mpi_built = mpi_enabled = mpi_threads_supported = gloo_built = gloo_enabled = _false
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _false


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "",
    device_sparse: str = "", compression: Any = Compression.none, sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1, op: str = Average, gradient_predivide_factor: float = 1.0, **kwargs: Any,
) -> Any:
    """Returns an optimizer that applies the mean (or with `op=hvd.Sum` the sum) of all workers' gradients, once a step.

    The devices, the compression and `gradient_predivide_factor`, which change how gradients travel or are rounded, do
    nothing.

    Raises:
      ConfigError: an argument asks for another kind of update.
    """
    if not isinstance(optimizer, tf.train.Optimizer):
        raise ConfigError("horovod_optimizer", f"hvd.DistributedOptimizer: got {type(optimizer).__name__}; allowed: an "
                          "optimizer of tf.train. For one of Keras write import horovod.tensorflow.keras as hvd")
    check_update(op, backward_passes_per_step, compression)
    if _State.keeps_variables:
        raise ConfigError("horovod_optimizer", f"hvd.DistributedOptimizer: got {type(optimizer).__name__}, but each "
                          "rank has its own variables, as the script imports horovod.keras; allowed: an optimizer of "
                          "Keras, in horovod.keras.DistributedOptimizer, or no import of horovod.keras")
    if _State.exchange is None:
        _ranks()
        return optimizer
    return _distributed(optimizer, op=op, sparse_as_dense=sparse_as_dense, use_locking=use_locking,
                        name=name or f"Distributed{type(optimizer).__name__}")


def check_update(op: str, backward_passes_per_step: int, compression: Any) -> None:
    """Raises ConfigError if arguments of an optimizer ask for another kind of update than those that there are."""
    if op not in (Average, Sum) or backward_passes_per_step != 1:
        raise ConfigError("horovod_optimizer", f"hvd.DistributedOptimizer: got op={op}, backward_passes_per_step="
                          f"{backward_passes_per_step}; allowed: op=hvd.Average or hvd.Sum, and 1; for several passes "
                          "give larger batches")
    if compression not in (Compression.none, None):
        _log.info("hvd.DistributedOptimizer: compression does nothing; gradients travel in the dtype that they have")


def _distributed(wrapped: Any, op: str, **options: Any) -> optimizer.HorovodOptimizer:
    collectives = Collectives(lambda tensor, name: allreduce(tensor, op=op, name=name), _await_chief)
    return optimizer.HorovodOptimizer(wrapped, size(), rank() == 0, op=op, collectives=collectives, **options)


def _await_chief(name: str) -> tf.Tensor:
    """Returns a tensor that is there when rank 0 has come so far; it fails if rank 0 has died."""
    def check(values: list) -> np.ndarray:
        if not any(values):
            raise ClusterLostError("chief_failed", f"rank 0 is no more, and applies the gradients of {name}; start all "
                                   "tasks again: they continue from the last checkpoint")
        return values[0]

    return _exchanged(tf.constant(rank() == 0), "await", name, check, tf.bool)


def _exchanged(value: Any, kind: str, name: str | None, combine: Callable[[list], np.ndarray], dtype: Any) -> tf.Tensor:
    """Returns a tensor that is made of all workers' values."""
    tensor = tf.convert_to_tensor(value)
    if (state := graphs.state_of(tensor.graph)) is not None:
        state.exchanges = True
    return _State.fused.operation(tensor, f"{kind}/{name or _common_name(tensor)}", combine, dtype)


def _common_name(tensor: tf.Tensor) -> str:
    """Returns a name for the values of a tensor that all workers give to it, if they exchange them in one order.

    The number at the end of TensorFlow's name will not do: the graphs of the ranks differ in a few operations.
    """
    base = re.sub(r"_\d+$", "", tensor.op.name)
    _State.named[base] += 1
    return f"{base}/{_State.named[base]}"


def reduction(average: bool | None, op: str | None) -> str:
    """Returns the name of a reduction in REDUCTIONS, from Horovod's two arguments.

    Raises:
      ConfigError: hvd.Adasum.
    """
    op = op or (Sum if average is False else Average)
    if op not in REDUCTIONS:
        raise ConfigError("horovod_reduction", f"hvd.allreduce: got op={op}; allowed: hvd.{', hvd.'.join(REDUCTIONS)}")
    return op


def allreduce(
    tensor: Any, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: str | None = None, name: str | None = None, **kwargs: Any,
) -> Any:
    """Returns the mean of all workers' tensors, or what `op` says: a tensor, or IndexedSlices of all their rows.

    Raises:
      ConfigError: hvd.Adasum.
    """
    op = reduction(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        values = allgather(tensor.values, name=name and f"{name}/values")
        values = values / tf.cast(size(), values.dtype) if op == Average else values
        return tf.IndexedSlices(values, allgather(tensor.indices, name=name and f"{name}/indices"), tensor.dense_shape)
    tensor = tf.convert_to_tensor(tensor)
    dtype = tf.float64 if op == Average and tensor.dtype.is_integer else tensor.dtype
    if _alone():
        return tf.cast(tensor, dtype)
    result = _exchanged(tensor, "allreduce", name, REDUCTIONS[op], dtype)
    result.set_shape(tensor.shape)
    return result


def grouped_allreduce(tensors: Sequence[Any], *args: Any, name: str | None = None, **kwargs: Any) -> list:
    """Returns `allreduce` of each tensor of a list."""
    return [allreduce(tensor, *args, name=name and f"{name}/{place}", **kwargs) for place, tensor in enumerate(tensors)]


def _allreduce(tensor: Any, name: str | None = None, **kwargs: Any) -> Any:
    """Returns the sum, as the function of `horovod.tensorflow.mpi_ops` that scripts take in its place."""
    return allreduce(tensor, **{"op": Sum, "name": name, **kwargs})


def allgather(tensor: Any, name: str | None = None, **kwargs: Any) -> tf.Tensor:
    """Returns the tensors of all workers, by rank, one after the other along the first axis."""
    tensor = tf.convert_to_tensor(tensor)
    if _alone():
        return tensor
    result = _exchanged(tensor, "allgather", name, np.concatenate, tensor.dtype)
    result.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[1:]))
    return result


def broadcast(tensor: Any, root_rank: int, name: str | None = None, **kwargs: Any) -> tf.Tensor:
    """Returns the tensor of rank 0, the only root there is here."""
    check_root("broadcast", root_rank)
    tensor = tf.convert_to_tensor(tensor)
    if _alone():
        return tensor
    result = _exchanged(tensor, "broadcast", name, lambda values: values[0], tensor.dtype)
    result.set_shape(tensor.shape)
    return result


def _alone() -> bool:
    _ranks()
    return _State.exchange is None


def check_root(function: str, root_rank: int) -> None:
    """Raises ConfigError if the root of a broadcast is not rank 0."""
    if root_rank != 0:
        raise ConfigError("horovod_root", f"hvd.{function}: got root_rank={root_rank}; allowed: 0, the chief, which "
                          "prepares the parameters")


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> tf.Operation:
    """Returns the operation after which all workers have the values of rank 0.

    Those of a graph that a DistributedOptimizer trains are on the ps: there is one copy. The operation waits for rank 0
    to prepare it.
    """
    check_root("broadcast_variables", root_rank)
    state = graphs.state_of(tf.get_default_graph())
    if _alone() or state is None:
        return tf.no_op("horovod_broadcast")
    if state.is_trained:
        op = tf.no_op("horovod_broadcast")
    else:
        op = tf.group(*(variable.assign(broadcast(variable, root_rank, variable.op.name)) for variable in variables))
    state.add_start(op)
    return op


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Returns `broadcast_variables` of all global variables."""
    return broadcast_variables(tf.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.train.SessionRunHook):
    """Runs `broadcast_global_variables` in each new session."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Takes the root, which must be 0; the device does nothing."""
        check_root("BroadcastGlobalVariablesHook", root_rank)
        self._op: tf.Operation | None = None

    def begin(self) -> None:
        """Builds the operation."""
        if self._op is None or self._op.graph is not tf.get_default_graph():
            self._op = broadcast_global_variables(0)

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        session.run(self._op)


def broadcast_object(obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, **kwargs: Any) -> Any:
    """Returns the object of rank 0; it is pickled."""
    check_root("broadcast_object", root_rank)
    return allgather_object(obj, session, name or "object")[0]


def allgather_object(obj: Any, session: Any = None, name: str | None = None, **kwargs: Any) -> list:
    """Returns the objects of all workers, by rank; they are pickled."""
    if _alone():
        return [obj]
    return _State.exchange.values(f"object/{name or 'object'}", obj)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if f"{NAME}.{name}" in SUBMODULES:
        return sys.modules[__name__]
    raise MissingNameError("horovod_name_missing", f"hvd.{name} ({script_line()}): ps_train has no stand-in for this "
                           "name of Horovod; docs/migrate_horovod.md lists those that it has")
