"""Decides which variable goes to which ps.

    on_cluster:   global variable --> the ps with the fewest bytes so far, in parts if it is large
                  anything else   --> this worker

The order in which a model creates its variables decides, so every worker comes to the same placement.
docs/decisions/placement.md says why variables are not assigned in turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.graph import devices
from ps_train.graph.row_sparse import partitioned_lookups

_MAX_SHOWN = 40


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

    `replica_device_setter` alone assigns variables in turn. In tensorflow/tensorflow#24953 four ps then got 0.7, 93.7,
    15.5 and 4.1 million parameters of one model.
    """

    def __init__(self, num_ps: int) -> None:
        self.load_bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the index of the (first) ps with the fewest bytes, and counts the variable's bytes there."""
        index = self.load_bytes.index(min(self.load_bytes))
        self.load_bytes[index] += variable_bytes(op)
        return index


class SamePlaces:
    """A `ps_strategy` for replica_device_setter, which puts each variable on the ps that has it in another graph."""

    def __init__(self, graph: tf.Graph) -> None:
        self._places = {op.name: index for op in graph.get_operations()
                        for job, index in [devices.task_of(op.device)] if job == "ps"}

    def __call__(self, op: tf.Operation) -> int:
        """Returns the index of the ps; 0 if the other graph has no such variable."""
        return self._places.get(op.name) or 0


def variable_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable in bytes; an unknown shape counts as one element, and a table as 0 bytes."""
    if "shape" not in op.node_def.attr:
        return 0
    return _bytes(tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype"))


def _bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    return (shape.num_elements() or 1) * dtype.size


def _cutting(num_ps: int, partition_bytes: int) -> Callable[..., Any]:
    """Returns a custom getter that splits large variables along their first dimension, into at most one part per ps."""
    # A partitioner for all would turn small variables into partitioned variables with one part, which models cannot use
    # as freely.
    def get(getter: Callable[..., Any], name: str, shape: Any = None, dtype: Any = tf.float32, **kwargs: Any) -> Any:
        known = tf.TensorShape(shape)
        # Not an optimizer's slots, which are as long as the part of the variable to which they belong.
        is_model = kwargs.get("trainable") is not False and kwargs.get("partitioner") is None
        if is_model and known.rank and known.is_fully_defined():
            parts = min(-(-_bytes(known, tf.as_dtype(dtype)) // partition_bytes), num_ps, known.as_list()[0])
            if parts > 1:
                kwargs["partitioner"] = tf.fixed_size_partitioner(parts)
                partitioned_lookups.note_cut(name)
        return getter(name, shape=shape, dtype=dtype, **kwargs)

    return get


def model_summary(variables: Sequence[tf.Variable], num_ps: int) -> str:
    """Returns a line with the size of the model, and of everything on the ps, including the optimizer's slots."""
    model = [variable for variable in variables if variable.trainable]
    num_parameters = sum(variable.shape.num_elements() or 1 for variable in model)
    num_variables = len({_logical_name(variable) for variable in model})
    model_bytes, all_bytes = (sum(_bytes(variable.shape, variable.dtype.base_dtype) for variable in some)
                              for some in (model, variables))
    return (f"{num_parameters:,} parameters in {num_variables} variable{'s' * (num_variables != 1)} "
            f"({readable_bytes(model_bytes)}); {readable_bytes(all_bytes)} with the optimizer's slots, on {num_ps} ps")


def _logical_name(variable: tf.Variable) -> str:
    part = variable._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; it has no public name)
    return part.full_name if part else variable.op.name


def readable_bytes(num_bytes: int) -> str:
    """Returns a size in powers of 1000 with three digits, such as `318 kB`."""
    size, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and units[1:]:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def variable_table(variables: Sequence[tf.Variable]) -> list[str]:
    """Returns the lines of a table of variable, ps and bytes, with a total per ps; of many variables, the largest."""
    rows = [(variable.op.name, devices.task_of(variable.device)[1] or 0,
             _bytes(variable.shape, variable.dtype.base_dtype)) for variable in variables]
    totals: dict[int, int] = {}
    for _, ps, size in rows:
        totals[ps] = totals.get(ps, 0) + size
    smallest_shown = sorted((size for _, _, size in rows), reverse=True)[:_MAX_SHOWN][-1:]
    shown = [row for row in rows if [row[2]] >= smallest_shown][:_MAX_SHOWN]
    if len(shown) < len(rows):
        shown.append((f"and {len(rows) - len(shown)} smaller ones", "", ""))
    shown += [("all", ps, totals[ps]) for ps in sorted(totals)]
    width = max(len(str(name)) for name, _, _ in shown)
    return [f"{'variable':{width}}  {'ps':>4}  {'bytes':>14}",
            *(f"{name:{width}}  {ps:>4}  {size:>14{',' if size else ''}}" for name, ps, size in shown)]


@contextlib.contextmanager
def on_cluster(
    cluster: Cluster, worker_device: str, plan: PlacementPlan = BY_BYTES, *, as_in: tf.Graph | None = None
) -> Iterator[None]:
    """Places what is created in this context: global variables on the ps, everything else on this worker.

    Args:
      as_in: a graph on the same cluster; each variable goes to the ps that has it there. None follows the plan.
    """
    by_plan = LeastBytes(len(cluster.ps)) if plan.strategy == "bytes" else None
    setter = tf.train.replica_device_setter(
        worker_device=worker_device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec(cluster.server_spec),
        ps_strategy=by_plan if as_in is None else SamePlaces(as_in),
    )
    getter = _cutting(len(cluster.ps), plan.partition_bytes) if plan.partition_bytes else None
    with (
        devices.replacing_workers(cluster),
        tf.device(setter),
        # replica_device_setter would put local variables (metrics, the state of iterators) on the ps too, where the
        # workers would share them (training/device_setter.py).
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
