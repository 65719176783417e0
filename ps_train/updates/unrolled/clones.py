"""Copies of a step's operations, which may run one after another in a session run (steps.py).

A copy shares with the first step what outlives a session run, such as variables and iterators, and the constants. On
each task it uses these after the step before has used them there for the last time; on the worker also after its
parameters have come. So no order costs a transfer. A step with any other state or effect is refused, and one with
TensorFlow 1's control flow, whose operations run seldom or often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import transfer
from ps_train.graph.devices import task_of

_SEED_STEP = 1_000_003  # between the seeds of a random operation and of its copies
_CONTROL_FLOW = {f"{kind}{name}" for kind in ("", "Ref")
                 for name in ("Enter", "Exit", "Switch", "Merge", "NextIteration")} | {"LoopCond"}
_HARMLESS = {"Assert", "Print", "PrintV2", "CheckNumerics", "CheckNumericsV2"}  # stateful only so that they are run
Task = tuple[str, int]
Own = Mapping[tf.Operation, tf.Operation]  # of the first step --> of one of its copies, or itself


def of_tensor(own: Own, tensor: tf.Tensor) -> tf.Tensor:
    """Returns a copy's tensor for one of the first step."""
    return own[tensor.op].outputs[tensor.value_index]


class Step:
    """What a step consists of, and in which order its copies may follow one another."""

    def __init__(self, ops: Iterable[tf.Operation], pulled: Iterable[transfer.View]) -> None:
        """Looks at the first step: `ops` is all that it runs.

        Raises:
          UserCodeError: it cannot be repeated.
        """
        self._ops = [op for op in ops if not _is_shared(op)]
        for op in self._ops:
            if problem := _problem_of(op):
                raise UserCodeError(f"--steps_per_execution: {op.name} ({op.type}) {problem}, which several steps in "
                                    "one session run cannot repeat; leave the flag out")
        # Of what is shared, by its task: TensorFlow runs them where that is.
        self._users: dict[Task, list[tf.Operation]] = {}
        self._devices: dict[Task, str] = {}
        for op in self._ops:
            handles = {task_of(tensor.op.device): tensor.op for tensor in op.inputs if tensor.dtype == tf.resource}
            for task, handle in handles.items():
                self._users.setdefault(task, []).append(op)
                self._devices.setdefault(task, handle.device)
        self._arrivals: dict[Task, tf.Operation] = {}  # from each ps
        for variable, value in pulled:
            if value.op in self._ops:
                self._arrivals.setdefault(task_of(variable.device), value.op)

    def itself(self) -> Own:
        """Returns the first step."""
        return {op: op for op in self._ops}

    def copy_after(self, before: Own, number: int, done: tf.Operation, first_ps: str) -> Own:
        """Returns a copy that begins, on each task, when the step before it is done there.

        Args:
          number: another one for each copy.
          done: has counted the step before, on ps 0.
          first_ps: the device of ps 0.
        """
        ends = {}
        for task, users in self._users.items():
            waited_for = [before[op] for op in users] + ([done] if task == task_of(first_ps) else [])
            with tf.device(None), tf.device(self._devices[task]), tf.control_dependencies(waited_for):
                ends[task] = tf.no_op()
        own = self._copy(number)
        # What has come from a ps was read there after the end: so the worker need not be told of it by a transfer.
        arrived = [own[self._arrivals[task]] if task in self._arrivals else end
                   for task, end in ends.items() if task[0] == "ps"]
        for task, users in self._users.items():
            for op in users:
                own[op]._add_control_inputs([ends[task], *(arrived if task[0] != "ps" else [])])  # noqa: SLF001 (no other)
        return own

    def _copy(self, number: int) -> Own:
        nodes = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
        names = {op.name for op in self._ops}
        shared: dict[str, tf.Tensor] = {}
        for op in self._ops:
            node = nodes.node.add()
            node.CopyFrom(op.node_def)
            node.attr.pop("_class", None)  # where it was to be, by the name of another operation: it has a device
            if _has_seed(node):
                node.attr["seed2"].i += _SEED_STEP * number
            node.input[:] = [tensor.name for tensor in op.inputs]
            node.input.extend(f"^{before.name}" for before in op.control_inputs if before.name in names)
            shared.update({tensor.name: tensor for tensor in op.inputs if tensor.op.name not in names})
        with tf.device(None), tf.control_dependencies(None):
            made = tf.import_graph_def(nodes, shared, [op.name for op in self._ops], name=f"step_{number}")
        return dict(zip(self._ops, made))


def _is_shared(op: tf.Operation) -> bool:
    """Tells whether it stands for something that outlives a session run, or is a constant."""
    if op.type == "Const":
        return not op.control_inputs
    return "shared_name" in op.node_def.attr and any(tensor.dtype == tf.resource for tensor in op.outputs)


def _problem_of(op: tf.Operation) -> str | None:
    """Returns why an operation cannot be repeated, or None."""
    if op.type in _CONTROL_FLOW:
        return "is of a tf.while_loop or tf.cond"
    if any(tensor.dtype._is_ref_dtype for tensor in op.outputs):  # noqa: SLF001 (there is no public name for it)
        return "is of TensorFlow's old kind of variables (use_resource=False)"
    if any(tensor.dtype == tf.resource for tensor in op.outputs):
        return "makes a resource of a single step"
    if not op.op_def.is_stateful or op.type in _HARMLESS or "seed2" in op.node_def.attr:
        return None
    calls = any(attribute.HasField("func") for attribute in op.node_def.attr.values())  # nobody knows what
    has_handle = any(tensor.dtype == tf.resource for tensor in op.inputs)
    return None if has_handle and not calls else "has a state or an effect of its own"


def _has_seed(node: tf.NodeDef) -> bool:
    """Tells whether it draws the same numbers each time that it begins; else it draws others."""
    return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)
