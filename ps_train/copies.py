"""Copies of a step's operations, which may run one after another in a session run (execution.py).

A copy shares with the first step what outlives a session run, such as variables and iterators, and the constants. It
begins, on each task, when the step before has done there all that it does with these, or that has an effect by itself,
as a Python function may have; the worker besides when the parameters have come. So no order costs a transfer.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import transfer
from ps_train.errors import UserCodeError

_SEED_STEP = 1_000_003  # between the seeds of a random operation and of its copies
_BRANCHES = ("Switch", "RefSwitch")
_ENTERS = ("Enter", "RefEnter")  # begin the frames of a while loop, which are told apart by name
Task = tuple[str, int]
Own = Mapping[tf.Operation, tf.Operation]  # of the first step --> of one of its copies, or itself


def of_tensor(own: Own, tensor: tf.Tensor) -> tf.Tensor:
    """Returns a copy's tensor for one of the first step."""
    return own[tensor.op].outputs[tensor.value_index]


def task_of(device: str) -> Task:
    """Returns the job and the index of the task that a device is of."""
    spec = tf.DeviceSpec.from_string(device)
    return spec.job, spec.task


class Step:
    """What a step consists of, and in which order its copies may follow one another."""

    def __init__(self, ops: Iterable[tf.Operation], pulled: Iterable[transfer.View]) -> None:
        """Looks at the first step: `ops` is all that it runs."""
        self._ops = [op for op in ops if not _is_shared(op)]
        _refuse_old_kind(self._ops)
        _refuse_functions_with_seeds(self._ops)
        self._users = _users(self._ops)
        self._firsts = _firsts(self._ops)
        self._arrivals: dict[Task, tf.Operation] = {}  # from each ps
        for variable, value in pulled:
            if value.op in self._ops:
                self._arrivals.setdefault(task_of(variable.device), value.op)

    def itself(self) -> Own:
        """Returns the first step."""
        return {op: op for op in self._ops}

    def copy(self, number: int) -> Own:
        """Returns a copy; `number` is another one for each."""
        nodes = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
        names = {op.name for op in self._ops}
        shared: dict[str, tf.Tensor] = {}
        for op in self._ops:
            node = nodes.node.add()
            node.CopyFrom(op.node_def)
            _set_apart(node, number)
            node.input[:] = [tensor.name for tensor in op.inputs]
            node.input.extend(f"^{before.name}" for before in op.control_inputs if before.name in names)
            shared.update({tensor.name: tensor for tensor in op.inputs if tensor.op.name not in names})
        with tf.device(None), tf.control_dependencies(None):
            made = tf.import_graph_def(nodes, shared, [op.name for op in self._ops], name=f"step_{number}")
        return dict(zip(self._ops, made))

    def end(
        self, own: Own, last: tf.Operation, besides: Mapping[Task, tf.Operation]
    ) -> dict[Task, tf.Operation]:
        """Returns of each task the operation after which a step has done there all that the next one waits for.

        Args:
          last: the last operation of the step.
          besides: of a task, what else is to be done by then.
        """
        ends = {}
        for task, users in self._users.items():
            # The last operation runs after all of them.
            done = [own[user.op] if user.runs_always else last for user in users]
            done += [besides[task]] if task in besides else []
            with tf.device(None), tf.device(users[0].device), tf.control_dependencies(list(dict.fromkeys(done))):
                ends[task] = tf.no_op()
        return ends

    def begin_after(self, own: Own, ends: Mapping[Task, tf.Operation]) -> None:
        """Lets a step begin when another one has ended; see `end`."""
        # What has come from a ps was read there after the end: so the worker need not be told of it by a transfer.
        arrived = [own[self._arrivals[task]] if task in self._arrivals else end
                   for task, end in ends.items() if task[0] == "ps"]
        for task, ops in self._firsts.items():
            before = [end for end in (ends.get(task),) if end] + (arrived if task[0] != "ps" else [])
            for op in ops:
                own[op]._add_control_inputs(before)  # noqa: SLF001 (there is no public name for it)


class _User(NamedTuple):
    """An operation that uses what is shared, or has an effect by itself.

    Attributes:
      op: of the first step.
      device: where TensorFlow runs it, which is where that is.
      runs_always: whether no branch or loop decides if, and how often, it runs.
    """

    op: tf.Operation
    device: str
    runs_always: bool


def _users(ops: Sequence[tf.Operation]) -> dict[Task, list[_User]]:
    """Returns the users, by their task."""
    followers, holders = collections.defaultdict(list), collections.defaultdict(list)
    for op in ops:
        for tensor in op.inputs:
            followers[tensor.op].append(op)
            if _is_handle(tensor):
                holders[tensor.op].append(op)
        for before in op.control_inputs:
            followers[before].append(op)
    decided = _reached((op for op in ops if op.type in _BRANCHES), followers)
    devices = {op: op.device for op in ops if op.op_def.is_stateful}
    for shared in filter(_is_shared, list(holders)):
        devices.update((op, shared.device) for op in _reached(holders[shared], holders))
    found: dict[Task, list[_User]] = {}
    for op, device in devices.items():
        runs_always = op not in decided and not transfer.is_enclosed(op)
        found.setdefault(task_of(device), []).append(_User(op, device, runs_always))
    return found


def _firsts(ops: Sequence[tf.Operation]) -> dict[Task, list[tf.Operation]]:
    """Returns, by their task, what has a shared handle, or needs nothing of the step: that would run too early."""
    inside = set(ops)
    found: dict[Task, list[tf.Operation]] = {}
    for op in ops:
        handles = [tensor.op for tensor in op.inputs if _is_handle(tensor) and _is_shared(tensor.op)]
        if handles or inside.isdisjoint([*(tensor.op for tensor in op.inputs), *op.control_inputs]):
            found.setdefault(task_of((handles or [op])[0].device), []).append(op)
    return found


def _reached(
    begins: Iterable[tf.Operation], followers: Mapping[tf.Operation, Sequence[tf.Operation]]
) -> dict[tf.Operation, None]:
    """Returns these operations and all that follow them, in an order that is the same each time."""
    found: dict[tf.Operation, None] = {}
    waiting = list(begins)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found[op] = None
            waiting += followers.get(op, ())
    return found


def _is_shared(op: tf.Operation) -> bool:
    """Tells whether it stands for something that outlives a session run, or is a constant."""
    if transfer.is_enclosed(op):
        return False
    if op.type == "Const":
        return not op.control_inputs
    # That of a TensorArray, say, has no shared name: it is of one session run.
    return "shared_name" in op.node_def.attr and any(map(_is_handle, op.outputs))


def _is_handle(tensor: tf.Tensor) -> bool:
    return tensor.dtype == tf.resource


def _refuse_old_kind(ops: Sequence[tf.Operation]) -> None:
    referred = [op for op in ops if any(tensor.dtype._is_ref_dtype for tensor in op.outputs)]  # noqa: SLF001 (no other)
    made = [op for op in referred if not op.inputs]
    if referred:
        name = (made or referred)[0].name
        raise UserCodeError(f"--steps_per_execution: {name} is of TensorFlow's old kind (use_resource=False), which "
                            "copies of a step cannot share in order; make it by tf.compat.v1.get_variable, or leave "
                            "the flag out")


def _refuse_functions_with_seeds(ops: Sequence[tf.Operation]) -> None:
    """A seed in a function would be the same in each copy, which draws by itself: all would draw the same numbers."""
    graph = tf.get_default_graph()
    called = {name for op in ops for name in _functions_of(op.node_def) if graph._is_function(name)}  # noqa: SLF001
    if not called:
        return
    bodies = {body.signature.name: body.node_def for body in graph.as_graph_def().library.function}
    known: set[str] = set()
    while called:
        name = called.pop()
        known.add(name)
        for node in bodies.get(name, ()):
            if _has_seed(node):
                raise UserCodeError(f"--steps_per_execution: the model's function {name} draws random numbers by a "
                                    "seed, and copies of a step would all draw the same ones; leave the seed and "
                                    "--seed out, draw outside of the function, or leave the flag out")
            called |= _functions_of(node) - known


def _functions_of(node: tf.NodeDef) -> set[str]:
    attributes = node.attr.values()
    return {node.op, *(one.func.name for one in attributes if one.HasField("func")),
            *(function.name for one in attributes for function in one.list.func)} - {""}


def _has_seed(node: tf.NodeDef) -> bool:
    """Tells whether it draws the same numbers each time that it begins; else it draws others."""
    return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)


def _set_apart(node: tf.NodeDef, number: int) -> None:
    """Changes what may not be the same in two steps of one session run."""
    node.attr.pop("_class", None)  # where it was to be, by the name of another operation: it has a device
    if node.op in _ENTERS:
        node.attr["frame_name"].s += f"/step_{number}".encode()
    if _has_seed(node):
        node.attr["seed2"].i += _SEED_STEP * number
