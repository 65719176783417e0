"""Which variable goes on which ps.

`replica_device_setter` deals variables out in turn, by count: four ps then got 0.7, 93.7, 15.5 and 4.1 million
parameters of one model (tensorflow/tensorflow#24953). Here each variable goes to the ps with the fewest bytes so far,
and one that is larger than the rest together may be cut into parts. The order in which a model makes its variables
decides, so every worker comes to the same plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.errors import UserCodeError
from ps_train.graph import devices

_MOST_SHOWN = 40
_PASSING = ("Cast", "Identity", "Reshape")


class PlacementPlan(NamedTuple):
    """How variables are placed.

    Attributes:
      strategy: "bytes" gives each variable to the ps with the fewest bytes, "round_robin" to one after the other.
      partition_bytes: a variable larger than this is cut into parts along its first dimension; 0 cuts none.
    """

    strategy: str = "bytes"
    partition_bytes: int = 0


BY_BYTES = PlacementPlan()


class LeastBytes:
    """A `ps_strategy`: called with a variable's operation, returns the index of the ps that it goes to."""

    def __init__(self, num_ps: int) -> None:
        self.load_bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the ps with the fewest bytes, the first of equals, and counts the variable there."""
        index = self.load_bytes.index(min(self.load_bytes))
        self.load_bytes[index] += variable_bytes(op)
        return index


def variable_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable in bytes; a shape that is not known counts as one element, and a table as none."""
    if "shape" not in op.node_def.attr:
        return 0
    return _bytes(tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype"))


def _bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    return (shape.num_elements() or 1) * dtype.size


def _cutting(num_ps: int, partition_bytes: int) -> Callable[..., Any]:
    """Returns a custom getter that cuts large variables along their first dimension, into at most a part for each ps.

    A partitioner for all would make the small ones partitioned too, of one part, and models cannot use those as freely.
    """
    def get(getter: Callable[..., Any], name: str, shape: Any = None, dtype: Any = tf.float32, **kwargs: Any) -> Any:
        known = tf.TensorShape(shape)
        # Not an optimizer's slots, which are as long as the part of the variable that they belong to.
        is_model = kwargs.get("trainable") is not False and kwargs.get("partitioner") is None
        if is_model and known.rank and known.is_fully_defined():
            parts = min(-(-_bytes(known, tf.as_dtype(dtype)) // partition_bytes), num_ps, known.as_list()[0])
            if parts > 1:
                kwargs["partitioner"] = tf.fixed_size_partitioner(parts)
        return getter(name, shape=shape, dtype=dtype, **kwargs)

    return get


def summary(variables: Sequence[tf.Variable], num_ps: int) -> str:
    """Returns a line with the size of the model, and of all that the ps hold: an optimizer's slots too."""
    model = [variable for variable in variables if variable.trainable]
    num_parameters = sum(variable.shape.num_elements() or 1 for variable in model)
    num_variables = len({_logical_name(variable) for variable in model})
    model_bytes, all_bytes = (sum(_bytes(variable.shape, variable.dtype.base_dtype) for variable in some)
                              for some in (model, variables))
    return (f"{num_parameters:,} parameters in {num_variables} variable{'s' * (num_variables != 1)} "
            f"({_readable(model_bytes)}); {_readable(all_bytes)} with the optimizer's slots, on {num_ps} ps")


def _logical_name(variable: tf.Variable) -> str:
    part = variable._get_save_slice_info()  # noqa: SLF001 (what the Saver goes by; there is no public name)
    return part.full_name if part else variable.op.name


def _readable(num_bytes: int) -> str:
    """Returns `318 kB`, in powers of 1000, with three digits at least from 1 kB on."""
    size, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and units[1:]:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def table(variables: Sequence[tf.Variable]) -> list[str]:
    """Returns the lines of a table of variable, ps and bytes, with a total for each ps.

    Where there are very many variables, it shows the largest.
    """
    rows = [(variable.op.name, tf.DeviceSpec.from_string(variable.device).task or 0,
             _bytes(variable.shape, variable.dtype.base_dtype)) for variable in variables]
    totals: dict[int, int] = {}
    for _, ps, size in rows:
        totals[ps] = totals.get(ps, 0) + size
    smallest_shown = sorted((size for _, _, size in rows), reverse=True)[:_MOST_SHOWN][-1:]
    shown = [row for row in rows if [row[2]] >= smallest_shown][:_MOST_SHOWN]
    if len(shown) < len(rows):
        shown.append((f"and {len(rows) - len(shown)} smaller ones", "", ""))
    shown += [("all", ps, totals[ps]) for ps in sorted(totals)]
    width = max(len(str(name)) for name, _, _ in shown)
    return [f"{'variable':{width}}  {'ps':>4}  {'bytes':>14}",
            *(f"{name:{width}}  {ps:>4}  {size:>14{',' if size else ''}}" for name, ps, size in shown)]


def check_lookups(variables: Sequence[tf.Variable]) -> None:
    """Refuses lookups that deal the rows of a variable in parts out in turn.

    So does `embedding_lookup` unless it is told `partition_strategy="div"`: the row of an id would then depend on the
    number of parts, and a checkpoint would mean something else on another number of ps, and to the evaluation.

    Raises:
      UserCodeError: there is such a lookup.
    """
    for variable in variables:
        part = variable._get_save_slice_info()  # noqa: SLF001 (what the Saver goes by; there is no public name)
        if part is None:
            continue
        for gather in variable.handle.consumers():
            if gather.type == "ResourceGather" and _is_dealt_out(gather.inputs[1].op):
                raise UserCodeError(f"model_fn: embedding_lookup of {part.full_name}, which is cut into parts, needs "
                                    'partition_strategy="div"; else its rows would be others on another number of ps')


def _is_dealt_out(op: tf.Operation) -> bool:
    """Tells whether the ids come from a DynamicPartition by `id % parts`, as in embedding_ops.py."""
    if op.type in _PASSING:
        return _is_dealt_out(op.inputs[0].op)
    if op.type != "DynamicPartition":
        return False
    source = op.inputs[1].op
    while source.type in _PASSING:
        source = source.inputs[0].op
    return source.type == "FloorMod"


@contextlib.contextmanager
def on_cluster(cluster: Cluster, worker_device: str, plan: PlacementPlan = BY_BYTES) -> Iterator[None]:
    """Places what is made inside it: global variables on the ps, everything else on this worker.

    `replica_device_setter` would also put local variables (metrics, iterators' state) on the ps, where the workers
    would share them (training/device_setter.py); here they stay on the worker.
    """
    setter = tf.train.replica_device_setter(
        worker_device=worker_device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec(cluster.server_spec),
        ps_strategy=LeastBytes(len(cluster.ps)) if plan.strategy == "bytes" else None,
    )
    getter = _cutting(len(cluster.ps), plan.partition_bytes) if plan.partition_bytes else None
    with (
        devices.on_this_worker(cluster),
        tf.device(setter),
        tf.variable_creator_scope(_keep_local_on(worker_device)),
        tf.variable_scope(tf.get_variable_scope(), custom_getter=getter),
    ):
        yield


def _keep_local_on(worker_device: str) -> Callable[..., Any]:
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        collections = kwargs.get("collections") or ()
        if tf.GraphKeys.LOCAL_VARIABLES not in collections or tf.GraphKeys.GLOBAL_VARIABLES in collections:
            return next_creator(**kwargs)
        with tf.device(worker_device):
            return next_creator(**kwargs)

    return create
