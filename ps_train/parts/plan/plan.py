"""What a training will place on each ps and transfer in each step, as a value, as text and as JSON.

    worker's graph --make_plan--> TrainingPlan --plan_lines, plan_record--> what `ps_train plan` prints
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import devices, placement
from ps_train.parts.plan.transfers import Sent, sent_in_step
from ps_train.training.replica_graph import TrainGraph

_FLOAT_BYTES = 4
PARAMETER, SLOT, STATE, TABLE = "parameter", "optimizer slot", "state", "table"


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
    """What a training will place and transfer.

    Attributes:
      placed: on all ps.
      working_bytes: ps -> bytes of what is on it beside that: packed copies, and what the update mode needs.
      sent: what one worker receives and sends in `num_steps` steps, and what the ps send each other for it.
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
        return sum(one.num_bytes or 0 for one in self.placed if one.ps == ps) + self.working_bytes[ps]

    def moved(self, *, pulled: bool) -> list[Sent]:
        """Returns what a worker receives from the ps, or what it sends."""
        return [one for one in self.sent if one.sender.startswith("ps:") == pulled and one not in self.between_ps]

    @property
    def between_ps(self) -> list[Sent]:
        """What the ps send each other, such as the constants of an optimizer."""
        return [one for one in self.sent if one.sender.startswith("ps:") and one.receiver.startswith("ps:")]


def make_plan(
    graph: TrainGraph, worker: str, *, num_ps: int, num_steps: int, process_bytes: int, ps_process_bytes: int
) -> TrainingPlan:
    """Returns the plan of the graph of a worker, such as `worker:0`; see `TrainingPlan` for the other arguments."""
    own = {id(variable) for variable in graph.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)}
    trained = [variable.op.name for variable in graph.saved_variables if id(variable) in own]
    placed = [PlacedVariable(variable.op.name, _kind(variable, id(variable) in own, trained), _ps(variable.device),
                     placement.variable_bytes(variable.op)) for variable in graph.saved_variables]
    known = {variable.op.name for variable in graph.saved_variables}
    placed += [share for spec in graph.tables.specs.values() for share in _shares(spec, num_ps)]
    working: collections.Counter[int] = collections.Counter({ps: 0 for ps in range(num_ps)})
    for op in graph.graph.get_operations():
        if op.type in ("VarHandleOp", "VariableV2") and op.name not in known and devices.is_on_ps(op.device):
            working[_ps(op.device)] += _static_bytes(op)
    sent = sent_in_step([graph.several.progress, graph.several.loss], worker)
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
    """Returns the plan as JSON has it: bytes everywhere, None where only training says it."""
    return {
        "placed": [one._asdict() for one in plan.placed],
        "ps": [{"ps": ps, "bytes": plan.ps_bytes(ps), "working_bytes": plan.working_bytes[ps],
                "memory_bytes": plan.ps_process_bytes + plan.ps_bytes(ps)} for ps in sorted(plan.working_bytes)],
        "between_ps": _moved_record(plan.between_ps),
        "worker": {"steps_per_run": plan.num_steps, "memory_bytes": plan.process_bytes + sum(_totals(plan)),
                   "pulls": _moved_record(plan.moved(pulled=True)), "pushes": _moved_record(plan.moved(pulled=False))},
    }


def _moved_record(moved: Sequence[Sent]) -> dict[str, Any]:
    return {"transfers": len(moved), "bytes": sum(one.num_bytes or 0 for one in moved),
            "transfers_of_unknown_size": sum(one.num_bytes is None for one in moved),
            "tensors": [one._asdict() for one in moved]}


def _totals(plan: TrainingPlan) -> tuple[int, int]:
    """Returns the known bytes that a worker pulls and pushes."""
    pulled, pushed = (sum(one.num_bytes or 0 for one in plan.moved(pulled=way)) for way in (True, False))
    return pulled, pushed


def plan_lines(plan: TrainingPlan) -> list[str]:
    """Returns the plan as a report to read."""
    width = max((len(one.name) for one in plan.placed), default=8)
    lines = [f"{'variable':{width}}  {'kind':14}  {'ps':>4}  {'bytes':>15}"]
    lines += [f"{one.name:{width}}  {one.kind:14}  {one.ps:>4}  {_shown(one.num_bytes):>15}" for one in plan.placed]
    lines += ["", "Each ps:"]
    for ps in sorted(plan.working_bytes):
        lines.append(f"  ps:{ps}  {plan.ps_bytes(ps):,} bytes, {plan.working_bytes[ps]:,} of them for the updates; "
                     f"memory from {_megabytes(plan.ps_process_bytes + plan.ps_bytes(ps))}")
    a_run = "step" if plan.num_steps == 1 else f"run of {plan.num_steps} mini-batches"
    lines += ["", f"Each worker, in each {a_run}:"]
    lines += [_moved_line("pulls", plan.moved(pulled=True)), _moved_line("pushes", plan.moved(pulled=False))]
    lines += [_moved_line("and the ps send each other", plan.between_ps)] if plan.between_ps else []
    lines.append(f"  memory from {_megabytes(plan.process_bytes + sum(_totals(plan)))}, and what the model computes")
    return lines


def _moved_line(what: str, moved: Sequence[Sent]) -> str:
    unknown = sum(one.num_bytes is None for one in moved)
    return (f"  {what} {sum(one.num_bytes or 0 for one in moved):,} bytes in {len(moved)} transfers"
            + (f"; the size of {unknown} of them depends on the mini-batch" if unknown else ""))


def _shown(num_bytes: int | None) -> str:
    return "grows" if num_bytes is None else f"{num_bytes:,}"


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
