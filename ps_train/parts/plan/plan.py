"""The variables that a training will place on each ps, and the tensors of each step: `ps_train plan`.

    flags --print_plan--> graph of a worker --make_plan--> TrainingPlan --plan_lines, plan_record--> text or JSON
                                            --sent_in_step--> the tensors that one task makes and another one uses

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
from ps_train.runtime import logs
from ps_train.tasks import setup, worker
from ps_train.tasks.settings import worker_settings
from ps_train.training.replica_graph import TrainGraph

# Not sent: they refer to the place of something, and their readers run there.
_BOUND = (tf.resource, tf.variant)
_FLOAT_BYTES = 4
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

    def moved(self, *, pulled: bool) -> list[Sent]:
        """Returns the tensors that a worker receives from the ps, or those that it sends."""
        return [tensor for tensor in self.sent
                if tensor.sender.startswith("ps:") == pulled and tensor not in self.between_ps]

    @property
    def between_ps(self) -> list[Sent]:
        """The tensors that the ps send each other, such as the constants of an optimizer."""
        return [tensor for tensor in self.sent if tensor.sender.startswith("ps:") and tensor.receiver.startswith("ps:")]


def make_plan(
    graph: TrainGraph, worker: str, *, num_ps: int, num_steps: int, process_bytes: int, ps_process_bytes: int
) -> TrainingPlan:
    """Returns the plan of the graph of a worker, such as `worker:0`; see `TrainingPlan` for the other arguments."""
    trainable = {id(variable) for variable in graph.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)}
    trained = [variable.op.name for variable in graph.savers.variables if id(variable) in trainable]
    placed = [PlacedVariable(variable.op.name, _kind(variable, id(variable) in trainable, trained),
                             _ps(variable.device), placement.variable_bytes(variable.op))
              for variable in graph.savers.variables]
    known = {variable.op.name for variable in graph.savers.variables}
    placed += [share for spec in graph.rows.specs.values() for share in _shares(spec, num_ps)]
    working: collections.Counter[int] = collections.Counter({ps: 0 for ps in range(num_ps)})
    for op in graph.graph.get_operations():
        if op.type in ("VarHandleOp", "VariableV2") and op.name not in known and devices.is_on_ps(op.device):
            working[_ps(op.device)] += _static_bytes(op)
    sent = sent_in_step([graph.steps.several.progress, graph.steps.several.loss], worker)
    return TrainingPlan(placed, working, sent, num_steps, process_bytes, ps_process_bytes)


def _ps(device: str) -> int:
    return devices.task_of(device)[1] or 0


def _kind(variable: tf.Variable, is_trained: bool, trained: Sequence[str]) -> str:
    if is_trained:
        return PARAMETER
    return SLOT if any(variable.op.name.startswith(f"{name}/") for name in trained) else STATE


def _static_bytes(op: tf.Operation) -> int:
    """Returns the size of a variable; one of unknown shape, such as the rows of a table, counts nothing here."""
    shape = tf.TensorShape(op.get_attr("shape"))
    return (shape.num_elements() or 0) * op.get_attr("dtype").size if shape.rank is not None else 0


def _shares(spec: Any, num_ps: int) -> list[PlacedVariable]:
    """Returns the share of each ps in an embedding table: the rows that it has room for, with slots."""
    row_bytes = _FLOAT_BYTES * (spec.dim + spec.rule.num_slots(spec.dim))
    num_rows = spec.rows_on_each(num_ps)
    return [PlacedVariable(spec.name, TABLE, ps, None if num_rows is None else row_bytes * num_rows)
            for ps in range(num_ps)]


def plan_record(plan: TrainingPlan) -> dict[str, Any]:
    """Returns the plan as JSON has it: bytes everywhere, None where only training determines them."""
    return {
        "placed": [variable._asdict() for variable in plan.placed],
        "ps": [{"ps": ps, "bytes": plan.ps_bytes(ps), "working_bytes": plan.working_bytes[ps],
                "memory_bytes": plan.ps_process_bytes + plan.ps_bytes(ps)} for ps in sorted(plan.working_bytes)],
        "between_ps": _moved_record(plan.between_ps),
        "worker": {"steps_per_run": plan.num_steps, "memory_bytes": plan.process_bytes + sum(_totals(plan)),
                   "pulls": _moved_record(plan.moved(pulled=True)), "pushes": _moved_record(plan.moved(pulled=False))},
    }


def _moved_record(moved: Sequence[Sent]) -> dict[str, Any]:
    return {"transfers": len(moved), "bytes": sum(tensor.num_bytes or 0 for tensor in moved),
            "transfers_of_unknown_size": sum(tensor.num_bytes is None for tensor in moved),
            "tensors": [tensor._asdict() for tensor in moved]}


def _totals(plan: TrainingPlan) -> tuple[int, int]:
    """Returns the known bytes that a worker pulls and pushes."""
    pulled, pushed = (sum(tensor.num_bytes or 0 for tensor in plan.moved(pulled=way)) for way in (True, False))
    return pulled, pushed


def plan_lines(plan: TrainingPlan) -> list[str]:
    """Returns the plan as a report to read."""
    width = max((len(variable.name) for variable in plan.placed), default=8)
    lines = [f"{'variable':{width}}  {'kind':14}  {'ps':>4}  {'bytes':>15}"]
    lines += [f"{variable.name:{width}}  {variable.kind:14}  {variable.ps:>4}  {_shown(variable.num_bytes):>15}"
              for variable in plan.placed]
    lines += ["", "Each ps:"]
    for ps in sorted(plan.working_bytes):
        lines.append(f"  ps:{ps}  {plan.ps_bytes(ps):,} bytes, {plan.working_bytes[ps]:,} of them for the updates; "
                     f"memory from {_megabytes(plan.ps_process_bytes + plan.ps_bytes(ps))}")
    a_run = "step" if plan.num_steps == 1 else f"run of {plan.num_steps} mini-batches"
    lines += ["", f"Each worker, in each {a_run}:"]
    lines += [_moved_line("pulls", plan.moved(pulled=True)), _moved_line("pushes", plan.moved(pulled=False))]
    lines += [_moved_line("and the ps send each other", plan.between_ps)] if plan.between_ps else []
    lines.append(f"  memory from {_megabytes(plan.process_bytes + sum(_totals(plan)))}, and that of the model's values")
    return lines


def _moved_line(verb: str, moved: Sequence[Sent]) -> str:
    unknown = sum(tensor.num_bytes is None for tensor in moved)
    return (f"  {verb} {sum(tensor.num_bytes or 0 for tensor in moved):,} bytes in {len(moved)} transfers"
            + (f"; the size of {unknown} of them depends on the mini-batch" if unknown else ""))


def _shown(num_bytes: int | None) -> str:
    return "grows" if num_bytes is None else f"{num_bytes:,}"


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
    config, plugins = _with_data(config)
    graph = worker.build_graph(
        worker_settings(config, cluster), cluster, plugins, table.make_parts(config, cluster))
    per_run = config.steps_per_execution * config.communication_period
    plan = make_plan(graph, cluster.task.name, num_ps=len(cluster.ps), num_steps=per_run,
                     process_bytes=_used_bytes(), ps_process_bytes=ps_process_bytes)
    logs.show(json.dumps(plan_record(plan)) if is_json else "\n".join(plan_lines(plan)))


def _with_data(config: Config) -> tuple[Config, setup.LoadedPlugins]:
    """Returns the flags and the plug-ins of a training with its data: those that `launch` would use."""
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
    with contextlib.suppress(OSError):  # on Linux; getrusage keeps the peak of before an exec, of the parent's memory
        status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
