"""Decides which variable goes to which ps.

    on_cluster:   global variable --> the ps with the fewest bytes so far, in parts if it is large
                  anything else   --> this worker

Workers create variables in the same order, so all come to the same placement; why, is in docs/decisions/placement.md.

Lookups in a variable that `--partition_bytes` has cut find the rows of the whole variable. `tf.nn.embedding_lookup` has
two strategies. By "div", the parts one after another are the whole variable. By "mod", its default, the row of an id
depends on the number of parts, so a checkpoint would mean something else on another number of ps, and in evaluation,
where nothing is cut. The model has asked for one variable and does not know of the parts; therefore its lookups by
"mod" get ids by which they find the same rows as lookups by "div".
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.errors import UserCodeError
from ps_train.graph import devices, transfer
from ps_train.runtime import logs

MOST_TENSOR_BYTES = 2**31 - 2**20  # that TensorFlow sends, less what goes with it (the limit of protocol buffers)
_CUT = "ps_train/cut_variables"  # collection of names
_ENTERING = ("Enter", "Switch")  # a loop, a branch
_PASSING = ("Cast", "Identity", "Reshape")
_log = logging.getLogger(__name__)


class PlacementPlan(NamedTuple):
    """How variables are placed.

    Attributes:
      strategy: "bytes" assigns each variable to the ps with the fewest bytes so far, "round_robin" to the ps in turn.
      partition_bytes: a larger variable is split along its first dimension; 0 splits none.
    """

    strategy: str = "bytes"
    partition_bytes: int = 0


BY_BYTES = PlacementPlan()


class LeastBytes:
    """A `ps_strategy` for replica_device_setter, which counts the bytes that it assigns to each ps.

    In turn, as by default, four ps got 0.7, 93.7, 15.5 and 4.1 million parameters (tensorflow/tensorflow#24953).
    """

    def __init__(self, num_ps: int) -> None:
        self.load_bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the index of the (first) ps with the fewest bytes, and counts the variable's bytes there."""
        index = self.load_bytes.index(min(self.load_bytes))
        self.load_bytes[index] += variable_bytes(op)
        return index


def variable_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable in bytes; an unknown shape counts as one element, and a table as 0 bytes."""
    if "shape" not in op.node_def.attr:
        return 0
    return shape_bytes(tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype"))


def shape_bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    """Returns the size of a tensor in bytes; an unknown shape counts as one element."""
    return (shape.num_elements() or 1) * dtype.size


def check_sizes(variables: Sequence[tf.Variable]) -> None:
    """Raises UserCodeError for a variable that TensorFlow cannot send to the chief, which saves it."""
    for variable in variables:
        if shape_bytes(variable.shape, variable.dtype.base_dtype) > MOST_TENSOR_BYTES:
            whole = _slice_of(variable)
            name, shape = (whole.full_name, whole.full_shape) if whole else (variable.op.name, variable.shape)
            num_bytes = shape_bytes(tf.TensorShape(shape), variable.dtype.base_dtype)
            raise UserCodeError(
                "variable_too_large", f"model_fn: variable {name} has {logs.readable_bytes(num_bytes)}; TensorFlow "
                "sends no tensor of 2 GiB, so it could not be saved; make it an embedding_table, or split it: give "
                f"--partition_bytes=1073741824 and at least {num_bytes // MOST_TENSOR_BYTES + 1} ps, which splits what "
                "get_variable makes, without a constraint or trainable=False")


def _cutting(num_ps: int, partition_bytes: int) -> Callable[..., Any]:
    """Returns a custom getter that splits large variables along their first dimension, into at most one part per ps."""
    # A partitioner for all would make small ones partitioned variables of one part, which models cannot use as freely.
    def get(getter: Callable[..., Any], name: str, shape: Any = None, dtype: Any = tf.float32, **kwargs: Any) -> Any:
        known = tf.TensorShape(shape)
        # Not the slots of an optimizer, which are as long as their part of a variable.
        is_model = kwargs.get("trainable") is not False and kwargs.get("partitioner") is None
        if is_model and known.rank and known.is_fully_defined():
            parts = min(-(-shape_bytes(known, tf.as_dtype(dtype)) // partition_bytes), num_ps, known.as_list()[0])
            if parts > 1 and kwargs.get("constraint"):
                _log.warning("%s stays in one part: it has a constraint, which is for the whole of it", name)
            elif parts > 1:
                kwargs["partitioner"] = tf.fixed_size_partitioner(parts)
                if callable(kwargs.get("initializer")):
                    kwargs["initializer"] = _by_part(kwargs["initializer"])
                regularizer = kwargs.pop("regularizer", None)
                variable = getter(name, shape=shape, dtype=dtype, **kwargs)
                if name not in tf.get_collection(_CUT):
                    tf.add_to_collection(_CUT, name)
                    _regularize(name, variable, regularizer)
                return variable
        return getter(name, shape=shape, dtype=dtype, **kwargs)

    return get


def _regularize(name: str, variable: Any, regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None) -> None:
    """Adds the loss of a whole variable, as TensorFlow's own would be that of each part, of which it may be no sum."""
    with tf.control_dependencies(None), tf.name_scope(f"{name}/Regularizer/"):  # in no loop: outside it is collected
        loss = regularizer(tf.convert_to_tensor(variable)) if regularizer else None
    if loss is not None:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, loss)


def _by_part(initializer: Callable[..., Any]) -> Callable[..., tf.Tensor]:
    """Returns an initializer of the parts of a variable, which together get what the whole variable would get."""
    make = initializer() if isinstance(initializer, type) else initializer
    # TensorFlow's own of an array, and of orthogonal rows, take the argument and ignore it.
    ignores = isinstance(make, tf.orthogonal_initializer) or hasattr(getattr(make, "value", None), "__len__")

    def initialize(shape: Sequence[int], dtype: tf.DType, partition_info: Any) -> tf.Tensor:
        if ignores or "partition_info" not in inspect.signature(make).parameters:
            return tf.slice(make(partition_info.full_shape, dtype=dtype), partition_info.var_offset, shape)
        of_part = copy.copy(make)
        if getattr(make, "seed", None) is not None:  # with the same seed, each part would draw the same numbers
            of_part.seed = make.seed + partition_info.var_offset[0]
        return of_part(shape, dtype=dtype, partition_info=partition_info)

    return initialize


def model_summary(variables: Sequence[tf.Variable], num_ps: int) -> str:
    """Returns a line with the size of the model, and of everything on the ps, including the optimizer's slots."""
    model = [variable for variable in variables if variable.trainable]
    num_parameters = sum(variable.shape.num_elements() or 1 for variable in model)
    num_variables = len({part.full_name if (part := _slice_of(variable)) else variable.op.name for variable in model})
    sizes = [logs.readable_bytes(sum(shape_bytes(variable.shape, variable.dtype.base_dtype) for variable in counted))
             for counted in (model, variables)]
    return (f"{num_parameters:,} parameters in {num_variables} variable{'s' * (num_variables != 1)} "
            f"({sizes[0]}); {sizes[1]} with the optimizer's slots, on {num_ps} ps")


@contextlib.contextmanager
def on_cluster(
    cluster: Cluster, worker_device: str, plan: PlacementPlan = BY_BYTES, *,
    strategy: Callable[[tf.Operation], int] | None = None,
) -> Iterator[None]:
    """Places what is created in this context: global variables on the ps, everything else on this worker.

    Args:
      strategy: returns the index of the ps for a variable, in place of the plan's strategy.
    """
    if strategy is None and plan.strategy == "bytes":
        strategy = LeastBytes(len(cluster.ps))
    setter = tf.train.replica_device_setter(
        worker_device=worker_device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec(cluster.server_spec),
        ps_strategy=strategy,
    )
    getter = _cutting(len(cluster.ps), plan.partition_bytes) if plan.partition_bytes else None
    with (
        devices.replacing_workers(cluster),
        tf.device(setter),
        # replica_device_setter would put local variables (metrics, iterator state) on the ps, where the workers would
        # share them (training/device_setter.py in TensorFlow).
        tf.variable_creator_scope(_keep_local_on(worker_device)),
        tf.variable_scope(tf.get_variable_scope(), custom_getter=getter),
    ):
        yield


def _keep_local_on(worker_device: str) -> Callable[..., Any]:
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        found = kwargs.get("collections")
        is_local = found and tf.GraphKeys.LOCAL_VARIABLES in found and tf.GraphKeys.GLOBAL_VARIABLES not in found
        of_keras = found == [] and kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ  # a metric
        with tf.device(worker_device) if is_local or of_keras else contextlib.nullcontext():
            return next_creator(**kwargs)

    return create


class _ByModulo(NamedTuple):
    """A lookup by "mod" (embedding_ops.py in TensorFlow).

    Attributes:
      part: the operation `ids % parts`.
      row: the operation `ids // parts`, or another one if the model itself has divided the ids.
      index: the index of the part that a gather reads.
    """

    part: tf.Operation
    row: tf.Operation
    index: int

    def can_be_changed(self, num_parts: int, index: int) -> bool:
        """Returns whether both have the same ids and the number of parts, for this part."""
        return (self.row.type == "FloorDiv" and self.row.inputs[0] is self.part.inputs[0] and self.index == index and
                all(tf.get_static_value(op.inputs[1]) == num_parts for op in (self.part, self.row)))


def remap_lookups(variables: Sequence[tf.Variable]) -> None:
    """Makes lookups by "mod" in cut variables find the rows of the whole variable.

    Raises:
      UserCodeError: the model looks up a variable by "mod" that it has partitioned by itself.
    """
    cut = set(tf.get_collection(_CUT))
    for name, parts in _parts_by_name(variables).items():
        connected: set[tf.Operation] = set()
        for index, part in enumerate(parts):
            for lookup in filter(None, (_by_modulo(gather.inputs[1]) for gather in _gathers(part.handle))):
                if name not in cut or not lookup.can_be_changed(len(parts), index):
                    raise UserCodeError(
                        "lookup_by_modulo", f"model_fn: embedding_lookup of {name}, which is partitioned, needs "
                        'partition_strategy="div"; otherwise its rows would depend on the number of parts')
                if lookup.part not in connected:
                    connected.add(lookup.part)
                    _connect(lookup, _slice_of(part).full_shape[0], len(parts))


def _parts_by_name(variables: Sequence[tf.Variable]) -> dict[str, list[tf.Variable]]:
    """Returns name -> the parts of each partitioned variable, in order."""
    parts_by_name: dict[str, list[tf.Variable]] = {}
    for variable in variables:
        if (part := _slice_of(variable)) is not None:
            parts_by_name.setdefault(part.full_name, []).append(variable)
    return {name: sorted(parts, key=lambda part: _slice_of(part).var_offset[0])
            for name, parts in parts_by_name.items()}


def _slice_of(variable: tf.Variable) -> Any:
    """Returns the SaveSliceInfo of a part of a partitioned variable; None for another variable."""
    return variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; no public name)


def _gathers(handle: tf.Tensor) -> list[tf.Operation]:
    """Returns the operations that look up rows of a variable, in branches and loops, too."""
    gathers = []
    for op in handle.consumers():
        if op.type == "ResourceGather":
            gathers.append(op)
        elif op.type in _ENTERING:
            gathers += [gather for tensor in op.outputs for gather in _gathers(tensor)]
    return gathers


def _by_modulo(ids: tf.Tensor) -> _ByModulo | None:
    """Returns the lookup whose DynamicPartition by `id % parts` makes the ids of a gather; None if none does."""
    partition = _origin(ids)
    if partition.op.type != "DynamicPartition":
        return None
    row, part = (_origin(tensor).op for tensor in partition.op.inputs)
    return _ByModulo(part, row, partition.value_index) if part.type == "FloorMod" else None


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type in _PASSING:
        tensor = tensor.op.inputs[0]
    return tensor


def _connect(lookup: _ByModulo, num_rows: int, num_parts: int) -> None:
    ids = lookup.part.inputs[0]
    with _in_context_of(lookup.part), tf.name_scope("whole_variable"):
        mapped_ids = _as_by_modulo(ids, num_rows, num_parts)
    for op in (lookup.part, lookup.row):
        transfer.set_input(op, 0, mapped_ids)


def _as_by_modulo(ids: tf.Tensor, num_rows: int, num_parts: int) -> tf.Tensor:
    """Returns the ids by which "mod" finds the rows that "div" finds by `ids` [n]."""
    size, extras = divmod(num_rows, num_parts)  # the first `extras` parts have a row more
    part = tf.maximum(ids // (size + 1), (ids - extras) // size)
    row = tf.where(part < extras, ids % (size + 1), (ids - extras) % size)
    # Other ids are out of range by "mod", too, so TensorFlow refuses them.
    return tf.where((ids >= 0) & (ids < num_rows), row * num_parts + part, ids)


@contextlib.contextmanager
def _in_context_of(op: tf.Operation) -> Iterator[None]:
    """Creates operations in the branch or loop, and on the device, of this one."""
    graph, device = op.graph, op.device
    outside = graph._get_control_flow_context()  # noqa: SLF001 (no public name)
    graph._set_control_flow_context(transfer.context_of(op))  # noqa: SLF001
    try:
        with tf.device(None), tf.device(device):
            yield
    finally:
        graph._set_control_flow_context(outside)  # noqa: SLF001
