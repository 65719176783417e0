"""Several steps in one session run (--steps_per_execution): copies of the operations of a step run one after another.

    ps 0     read --+    apply, count --> read --+    apply, count --> ... --> the progress of all steps
                    v    ^                       v    ^
    worker          step 1                       step 2

Each copy is a whole step: it pulls the current parameters and pushes its own gradients. The steps share only the fixed
cost of a session run, which is most of the time of a small model.

A clone shares with the first step what outlives a session run, such as variables and iterators, and the constants.
On each task, it uses these after the previous step has used them there for the last time; on the worker, also after its
own parameters have arrived. This order costs no transfer. A step is refused if it has any other state or effect, or if
it has control flow of TensorFlow 1, whose operations may never run. See docs/decisions/unrolled-steps.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.errors import UserCodeError
from ps_train.graph import transfer
from ps_train.graph.devices import task_of

_SEED_STEP = 1_000_003  # between the seeds of a random operation and of its clones
_CONTROL_FLOW = {"Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond"}
_HARMLESS = {"Assert", "Print", "PrintV2", "CheckNumerics", "CheckNumericsV2"}  # stateful only to be run
_HARMLESS.add("ConsumeMutexLock")  # acts on its lock, which is of the same clone
_JobAndIndex = tuple[Any, Any]  # of a device string, None for what it does not say
Clone = Mapping[tf.Operation, tf.Operation]  # operation of the first step --> its clone


def cloned_tensor(clone: Clone, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the clone of a tensor of the first step."""
    return clone[tensor.op].outputs[tensor.value_index]


class StepTemplate:
    """The operations of the first step, and the order in which its clones may follow one another."""

    def __init__(self, ops: Iterable[tf.Operation], pulled: Iterable[transfer.View]) -> None:
        """Examines all operations of a step, which has `pulled` these values; refuses one that cannot be repeated."""
        self._ops = [op for op in ops if not _is_shared(op)]
        transfer.note_unfed(self._ops, "which --steps_per_execution computes anew for each of several steps; feed a "
                            "placeholder, or leave the flag out")
        for op in self._ops:
            if problem := _problem_of(op):
                raise UserCodeError("step_not_repeatable", f"--steps_per_execution: {op.name} ({op.type}) {problem}, "
                                    "which several steps in one session run cannot repeat; leave the flag out")
        # By task: the operations that use what the steps share, and its device. They run where that is.
        self._users: dict[_JobAndIndex, list[tf.Operation]] = {}
        self._devices: dict[_JobAndIndex, str] = {}
        for op in self._ops:
            handles = {task_of(tensor.op.device): tensor.op for tensor in op.inputs if tensor.dtype == tf.resource}
            for task, handle in handles.items():
                self._users.setdefault(task, []).append(op)
                self._devices.setdefault(task, handle.device)
        # From each ps, one operation on the worker that runs when parameters of that ps have arrived.
        self._arrivals: dict[_JobAndIndex, tf.Operation] = {}
        for variable, value in pulled:
            if value.op in self._ops:
                self._arrivals.setdefault(task_of(variable.device), value.op)

    def first_step(self) -> Clone:
        """Returns the first step, as a clone of itself."""
        return {op: op for op in self._ops}

    def clone_after(self, previous: Clone, number: int, counted: tf.Operation, first_ps_device: str) -> Clone:
        """Returns a clone that begins, on each task, when the previous step is done there.

        Args:
          number: the number of the clone; each has another one.
          counted: the operation on ps 0 that has counted the previous step.
          first_ps_device: the device of ps 0.
        """
        ends = {}
        for task, users in self._users.items():
            awaited = [previous[op] for op in users] + ([counted] if task == task_of(first_ps_device) else [])
            with tf.device(None), tf.device(self._devices[task]), tf.control_dependencies(awaited):
                ends[task] = tf.no_op()
        clone = self._copy(number)
        # Parameters that have arrived from a ps were read there after the previous step's end. By waiting for them, the
        # worker knows of that end without another transfer.
        arrived = [clone[self._arrivals[task]] if task in self._arrivals else end
                   for task, end in ends.items() if task[0] == "ps"]
        for task, users in self._users.items():
            for op in users:
                awaited = [ends[task], *(arrived if task[0] != "ps" else [])]
                clone[op]._add_control_inputs(awaited)  # noqa: SLF001 (it has no public name)
        return clone

    def _copy(self, number: int) -> Clone:
        nodes = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
        names = {op.name for op in self._ops}
        shared: dict[str, tf.Tensor] = {}
        for op in self._ops:
            node = nodes.node.add()
            node.CopyFrom(op.node_def)
            node.attr.pop("_class", None)  # a colocation, by the name of an operation that is not here; it has a device
            # Without a seed, a random operation draws other numbers in each run.
            if "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
                node.attr["seed2"].i += _SEED_STEP * number
            node.input[:] = [tensor.name for tensor in op.inputs]
            node.input.extend(f"^{before.name}" for before in op.control_inputs if before.name in names)
            shared.update({tensor.name: tensor for tensor in op.inputs if tensor.op.name not in names})
        with tf.device(None), tf.control_dependencies(None):
            copied = tf.import_graph_def(nodes, shared, [op.name for op in self._ops], name=f"step_{number}")
        return dict(zip(self._ops, copied))


def _is_shared(op: tf.Operation) -> bool:
    """Returns whether all steps use the same operation: a value given to the run, or the handle of what outlives it."""
    if op.type in ("Const", "Placeholder"):
        return not op.control_inputs
    if op.type == "PlaceholderWithDefault":
        return _is_shared(op.inputs[0].op) and not op.control_inputs
    return "shared_name" in op.node_def.attr and any(tensor.dtype == tf.resource for tensor in op.outputs)


def _problem_of(op: tf.Operation) -> str | None:
    """Returns why an operation cannot be repeated in order, or None if it can."""
    if op.type in _CONTROL_FLOW:
        return "is of a tf.while_loop or tf.cond"
    if any(tensor.dtype._is_ref_dtype for tensor in op.outputs):  # noqa: SLF001 (it has no public name)
        return "is of TensorFlow's old kind of variables (use_resource=False)"
    if any(tensor.dtype == tf.resource for tensor in op.outputs):
        return "makes a resource of a single step"
    if not op.op_def.is_stateful or op.type in _HARMLESS or "seed2" in op.node_def.attr:
        return None
    # Nothing is known about the body of a function: it may use other state than the handles that it gets.
    calls_function = any(attribute.HasField("func") for attribute in op.node_def.attr.values())
    has_handle = any(tensor.dtype == tf.resource for tensor in op.inputs)
    return None if has_handle and not calls_function else "has a state or an effect that ps_train does not know"


class Execution(NamedTuple):
    """What a session run fetches.

    Attributes:
      num_steps: how many steps, or rounds of local steps, it makes.
      progress: int64 [num_steps, 6], a `replica_graph.StepStatus` after each step, read on ps 0. Fetching it trains.
      loss: scalar loss of the last mini-batch.
    """

    num_steps: int
    progress: tf.Tensor
    loss: tf.Tensor


def unroll(
    first: Execution, num_steps: int, *, pulled: Iterable[transfer.View], worker: int, first_ps_device: str
) -> tuple[Execution, tf.Tensor, tf.Operation]:
    """Adds copies of a step to the current graph.

    Args:
      first: the single step.
      num_steps: the number of steps in all, at least 2.
      pulled: what the step pulls.
      worker: the number of this worker.
      first_ps_device: the device of ps 0.

    Returns:
      The execution of all of them; how many steps a failed session run has made, or 0 if it succeeded, an int64 scalar
      whose reading resets it; and the operation that resets it.

    Raises:
      UserCodeError: the step uses something that cannot be copied.
    """
    template = StepTemplate(transfer.upstream([first.progress, first.loss]), pulled)
    step, rows, loss, counted = template.first_step(), [first.progress], first.loss, []
    for number in range(1, num_steps):
        with tf.device(None), tf.device(first_ps_device), tf.control_dependencies([rows[-1].op]):
            counted.append(variables.add_element("steps_in_run", worker, 1))
        step = template.clone_after(step, number, counted[-1], first_ps_device)
        rows.append(cloned_tensor(step, first.progress))
        loss = cloned_tensor(step, first.loss)
    with tf.device(None), tf.device(first_ps_device):
        with tf.control_dependencies([rows[-1].op, *counted]):
            reset = _reset(worker)
        with tf.control_dependencies([reset]):
            progress = tf.concat(rows, 0)
        return Execution(num_steps, progress, loss), _read_and_reset(worker), _reset(worker)


def _read_and_reset(worker: int) -> tf.Tensor:
    num_steps = variables.read("steps_in_run")[worker]
    with tf.control_dependencies([num_steps]):
        reset = _reset(worker)
    with tf.control_dependencies([reset]):
        return tf.identity(num_steps)


def _reset(worker: int) -> tf.Operation:
    return variables.write_element("steps_in_run", worker, 0)
