"""The variables that a training will place on each ps, and the tensors of each step: `ps_train plan`.

    flags --print_plan--> graph of a worker --make_plan--> TrainingPlan --plan_record--> JSON --plan_lines--> text

TensorFlow sends a tensor once to each task that uses it, for any number of operations that read it there.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import pathlib
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.errors import MissingDataError
from ps_train.graph import devices, placement, transfer
from ps_train.launch.preparation import fallback_dataset
from ps_train.parts import table
from ps_train.parts.readers.files import growing
from ps_train.runtime import logs
from ps_train.tasks import setup
from ps_train.tasks.setup import worker_settings
from ps_train.training.replica_graph import TrainGraph, build_train_graph

# Not sent: they refer to something on a device, and their readers run there.
_BOUND = (tf.resource, tf.variant)
PARAMETER, SLOT, STATE, TABLE = "parameter", "optimizer slot", "state", "table"
_log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """A tensor that travels in each step.

    Attributes:
      tensor: its name.
      sender: such as `ps:0`.
      receiver: such as `worker:0`.
      num_bytes: its size; None if it depends on the mini-batch.
    """

    tensor: str
    sender: str
    receiver: str
    num_bytes: int | None


def sent_in_step(fetches: Sequence[tf.Tensor], client: str) -> list[Sent]:
    """Returns the tensors sent when these are fetched, as far as the graph tells; constants are not sent.

    Messages that only report the end of an operation are left out.

    Args:
      client: the task that fetches them, such as `worker:0`.
    """
    step = transfer.upstream(fetches)
    sent = {(tensor.name, client): Sent(tensor.name, _task(tensor.op), client, tensor_bytes(tensor))
             for tensor in fetches if _task(tensor.op) not in ("", client)}
    for op in step:
        receiver = _task(op)
        for tensor in op.inputs:
            sender = _task(tensor.op)
            is_sent = sender and receiver and sender != receiver and tensor.dtype.base_dtype not in _BOUND
            # A constant is copied to its readers when the graph is prepared (grappler, constant folding).
            if is_sent and tensor.op.type != "Const":
                sent[tensor.name, receiver] = Sent(tensor.name, sender, receiver, tensor_bytes(tensor))
    return list(sent.values())


def tensor_bytes(tensor: tf.Tensor) -> int | None:
    """Returns the size of a tensor, or None if the graph does not determine it."""
    count = tensor.shape.num_elements()
    return None if count is None or not tensor.dtype.base_dtype.size else count * tensor.dtype.base_dtype.size


def _task(op: tf.Operation) -> str:
    """Returns the task that runs an operation: that of the variable or iterator that it uses, if it uses one."""
    for place in (*(held.op.device for held in _resources(op)), op.device):
        job, index = devices.task_of(place)
        if job is not None:
            return f"{job}:{index or 0}"
    return ""


def _resources(op: tf.Operation) -> Iterator[tf.Tensor]:
    yield from (tensor for tensor in op.inputs if tensor.dtype.base_dtype == tf.resource)


class PlacedVariable(NamedTuple):
    """A variable, a part of one, or a ps' share of an embedding table.

    Attributes:
      name: as in a checkpoint.
      kind: PARAMETER, SLOT, STATE of the training, or TABLE, whose bytes contain its slots.
      ps: the index of the ps.
      num_bytes: its size; None for a table that grows.
    """

    name: str
    kind: str
    ps: int
    num_bytes: int | None


class TrainingPlan(NamedTuple):
    """The variables that a training will place, and the tensors that it will transfer.

    Attributes:
      placed: on all ps.
      working_bytes: ps -> bytes of its other variables: packed copies, and those of the update mode.
      sent: the tensors that one worker receives and sends in `num_steps` steps, and those between the ps for it.
      num_steps: mini-batches in one session run.
      process_bytes: memory of a process with TensorFlow, the data and this graph, without any variable.
      ps_process_bytes: memory of a process with TensorFlow alone.
    """

    placed: Sequence[PlacedVariable]
    working_bytes: Mapping[int, int]
    sent: Sequence[Sent]
    num_steps: int
    process_bytes: int
    ps_process_bytes: int

    def ps_bytes(self, ps: int) -> int:
        """Returns the bytes of all variables on a ps; a table that grows counts nothing."""
        return sum(variable.num_bytes or 0 for variable in self.placed if variable.ps == ps) + self.working_bytes[ps]

    @property
    def between_ps(self) -> list[Sent]:
        """The tensors that the ps send each other, such as the constants of an optimizer."""
        return [tensor for tensor in self.sent if _is_ps(tensor.sender) and _is_ps(tensor.receiver)]

    @property
    def pulled(self) -> list[Sent]:
        """The tensors that the worker receives from the ps."""
        return [tensor for tensor in self.sent if _is_ps(tensor.sender) and not _is_ps(tensor.receiver)]

    @property
    def pushed(self) -> list[Sent]:
        """The tensors that the worker sends to the ps."""
        return [tensor for tensor in self.sent if not _is_ps(tensor.sender)]


def _is_ps(task: str) -> bool:
    return task.startswith("ps:")


def make_plan(
    graph: TrainGraph, worker: str, *, num_ps: int, num_steps: int, process_bytes: int, ps_process_bytes: int
) -> TrainingPlan:
    """Returns the plan of the graph of a worker, such as `worker:0`; see `TrainingPlan` for the other arguments."""
    trainable = {id(variable) for variable in graph.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)}
    parameters = [variable.op.name for variable in graph.savers.variables if id(variable) in trainable]
    placed = [PlacedVariable(variable.op.name, _kind(variable.op.name, parameters), _ps(variable.device),
                             placement.variable_bytes(variable.op)) for variable in graph.savers.variables]
    known = {variable.op.name for variable in graph.savers.variables}
    placed += [share for spec in graph.rows.specs.values() for share in _shares(spec, num_ps)]
    working: collections.Counter[int] = collections.Counter({ps: 0 for ps in range(num_ps)})
    for op in graph.graph.get_operations():
        if op.type in ("VarHandleOp", "VariableV2") and op.name not in known and devices.is_on_ps(op.device):
            working[_ps(op.device)] += _static_bytes(op)
    sent = sent_in_step([graph.steps.unrolled.progress, graph.steps.unrolled.loss], worker)
    return TrainingPlan(placed, working, sent, num_steps, process_bytes, ps_process_bytes)


def _ps(device: str) -> int:
    return devices.task_of(device)[1] or 0


def _kind(name: str, parameters: Sequence[str]) -> str:
    if name in parameters:
        return PARAMETER
    return SLOT if any(name.startswith(f"{parameter}/") for parameter in parameters) else STATE


def _static_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable; one of unknown shape, such as the rows of a table, counts nothing here."""
    shape = tf.TensorShape(op.get_attr("shape"))
    return (shape.num_elements() or 0) * op.get_attr("dtype").size if shape.rank is not None else 0


def _shares(spec: Any, num_ps: int) -> list[PlacedVariable]:
    """Returns the share of each ps in an embedding table: the rows that it has room for, with slots."""
    num_rows = spec.rows_on_each(num_ps)
    return [PlacedVariable(spec.name, TABLE, ps, None if num_rows is None else spec.row_format.stored_bytes * num_rows)
            for ps in range(num_ps)]


def plan_record(plan: TrainingPlan) -> dict[str, Any]:
    """Returns the plan for JSON: sizes in bytes, None where only training determines them."""
    pulls, pushes = _transfers(plan.pulled), _transfers(plan.pushed)
    return {
        "placed": [variable._asdict() for variable in plan.placed],
        "ps": [{"ps": ps, "bytes": plan.ps_bytes(ps), "working_bytes": plan.working_bytes[ps],
                "memory_bytes": plan.ps_process_bytes + plan.ps_bytes(ps)} for ps in sorted(plan.working_bytes)],
        "between_ps": _transfers(plan.between_ps),
        "worker": {"steps_per_run": plan.num_steps, "pulls": pulls, "pushes": pushes,
                   "memory_bytes": plan.process_bytes + pulls["bytes"] + pushes["bytes"]},
    }


def _transfers(sent: Sequence[Sent]) -> dict[str, Any]:
    return {"transfers": len(sent), "bytes": sum(tensor.num_bytes or 0 for tensor in sent),
            "transfers_of_unknown_size": sum(tensor.num_bytes is None for tensor in sent),
            "tensors": [tensor._asdict() for tensor in sent]}


def plan_lines(record: Mapping[str, Any]) -> list[str]:
    """Returns the value of `plan_record` as lines to read."""
    width = max((len(variable["name"]) for variable in record["placed"]), default=8)
    lines = [f"{'variable':{width}}  {'kind':14}  {'ps':>4}  {'bytes':>15}"]
    for variable in record["placed"]:
        size = "grows" if variable["num_bytes"] is None else f"{variable['num_bytes']:,}"
        lines.append(f"{variable['name']:{width}}  {variable['kind']:14}  {variable['ps']:>4}  {size:>15}")
    lines += _too_large(record["placed"])
    lines += ["", "Each ps:"]
    lines += [f"  ps:{ps['ps']}  {ps['bytes']:,} bytes, {ps['working_bytes']:,} of them for the updates; memory from "
              f"{_megabytes(ps['memory_bytes'])}" for ps in record["ps"]]
    worker, between_ps = record["worker"], record["between_ps"]
    num_steps = worker["steps_per_run"]
    lines += ["", f"Each worker, in each {'step' if num_steps == 1 else f'run of {num_steps} mini-batches'}:"]
    lines += [_transfers_line("pulls", worker["pulls"]), _transfers_line("pushes", worker["pushes"])]
    lines += [_transfers_line("and the ps send each other", between_ps)] if between_ps["transfers"] else []
    lines.append(f"  memory from {_megabytes(worker['memory_bytes'])}, and that of the model's values")
    return lines


def _too_large(placed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a line that names the variables that could not be saved, if there are any; a table is saved in pieces."""
    names = [variable["name"] for variable in placed
             if variable["kind"] != TABLE and (variable["num_bytes"] or 0) > placement.MOST_TENSOR_BYTES]
    return [f"{', '.join(names)}: cannot be saved or restored, because TensorFlow sends no tensor of 2 GiB; give "
            "--partition_bytes=1073741824, and so many ps that each has a part of less than 2 GiB, or make it an "
            "embedding_table"] if names else []


def _transfers_line(verb: str, transfers: Mapping[str, Any]) -> str:
    num_unknown = transfers["transfers_of_unknown_size"]
    return (f"  {verb} {transfers['bytes']:,} bytes in {transfers['transfers']} transfers"
            + (f"; the size of {num_unknown} of them depends on the mini-batch" if num_unknown else ""))


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"


def print_plan(config: Config, cluster: Cluster, is_json: bool) -> None:
    """Prints the plan of a training; starts nothing, opens no socket and writes no file.

    Raises:
      PsTrainError: a flag or a plug-in is wrong.
      Exception: from a plug-in.
    """
    setup.prepare_tensorflow(config.tf_log)
    ps_process_bytes = _used_bytes()  # a ps loads neither the data nor the model
    with growing() if getattr(config, "follow", False) else contextlib.nullcontext():  # a flag of another part
        config, plugins = _with_data(config)
        parts = table.make_parts(config, cluster)
        settings = parts.adjust(worker_settings(config, cluster))
        graph = build_train_graph(cluster, *plugins, settings.graph, parts=parts)
    per_run = config.steps_per_execution * config.communication_period
    plan = make_plan(graph, cluster.task.name, num_ps=len(cluster.ps), num_steps=per_run,
                     process_bytes=_used_bytes(), ps_process_bytes=ps_process_bytes)
    record = plan_record(plan)
    logs.show(json.dumps(record) if is_json else "\n".join(plan_lines(record)))


def _with_data(config: Config) -> tuple[Config, setup.LoadedPlugins]:
    """Returns the flags and plug-ins of a training, with the data that `launch` would use."""
    plugins = setup.load_plugins(config)
    try:
        plugins.dataset.prepare(plugins.dataset_params)
    except MissingDataError as error:
        name = fallback_dataset(config)
        if name is None:
            raise
        _log.warning("MNIST is not used (data_dir is %s): %s; this is the plan for --dataset=%s, on which `launch` "
                     "would train", config.data_dir, error.fault, name)
        config = dataclasses.replace(config, dataset=name, given=config.given | {"dataset"})
        plugins = setup.load_plugins(config)
        plugins.dataset.prepare(plugins.dataset_params)
    return config, plugins


def _used_bytes() -> int:
    """Returns the most memory that this process has used."""
    with contextlib.suppress(OSError):  # on Linux, where the peak of getrusage includes that of the parent
        status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
