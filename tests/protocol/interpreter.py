"""Runs a TensorFlow graph one operation on a variable at a time, on variables in memory.

The graphs are those of ps_train (blackboard, synchronous updates, step status): the twin of a ps runs the operations
that a real ps runs. So the order of the operations within one call is explored, too.

    plan = Plan(graph, fetches, feeds)      what a call needs, once a call
    run = Execution(plan, values)
    while not run.is_done: run.step(...)    one operation on a variable; all others are computed on the way
"""

from __future__ import annotations

import collections
from typing import Any, Callable, NamedTuple

import numpy as np

from tests.tensorflow_mode import tf

_DEAD = object()  # the output of the branch that is not taken
ROOT: tuple = ()
_SERVER: frozenset[int | None] = frozenset([None])
BLOCKED = object()  # the operation has to wait, as that of an empty accumulator


class NotReadyError(Exception):
    """A variable has no value."""


class AssertionFailedError(Exception):
    """An Assert of the graph failed."""


class Node:
    """An operation of a graph, prepared for its execution."""

    def __init__(self, op: tf.Operation) -> None:
        self.op, self.name, self.type = op, op.name, op.type
        self.device = op.device
        self.inputs: list[tuple[Node, int]] = []
        self.num_controls = 0
        self.data_consumers: list[tuple[int, Node, int]] = []
        self.control_consumers: list[Node] = []
        self.is_stateful = op.type in STATEFUL
        if op.type not in STATEFUL and op.type not in STATELESS and op.type not in _FLOW:
            raise NotImplementedError(f"the twin has no {op.type} ({op.name})")
        self.run: Callable = (STATEFUL.get(op.type) or STATELESS.get(op.type) or (lambda node: None))
        self.attrs = _attributes(op)
        self.ps = _ps_of(op.device)


def _attributes(op: tf.Operation) -> dict[str, Any]:
    if op.type == "Const":
        return {"value": _value_of(op)}
    names = {"VarHandleOp": ["shared_name"], "ResourceConditionalAccumulator": ["shared_name", "reduction_type"],
             "MutexV2": ["shared_name"], "Enter": ["frame_name", "is_constant"],
             "RefEnter": ["frame_name", "is_constant"],
             "StridedSlice": ["begin_mask", "end_mask", "shrink_axis_mask"], "Cast": ["DstT"], "Pack": ["axis"],
             "Unpack": ["axis"],
             "ArgMin": ["output_type"], "Sum": ["keep_dims"], "Min": ["keep_dims"], "Max": ["keep_dims"],
             "Any": ["keep_dims"], "Prod": ["keep_dims"], "Squeeze": ["squeeze_dims"],
             "OneHot": ["axis"], "RandomUniformInt": [], "Where": [], "Shape": ["out_type"],
             "Size": ["out_type"], "ConcatV2": []}.get(op.type, [])
    return {name: op.get_attr(name) for name in names}


def _value_of(op: tf.Operation) -> Any:
    value = tf.make_ndarray(op.get_attr("value"))
    return value if value.dtype != object else value[()] if value.shape == () else value


def _ps_of(device: str) -> int | None:
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.task if spec.job == "ps" else None


class Plan:
    """What a call of `Session.run` computes."""

    def __init__(self, graph: tf.Graph, fetches: list[Any], fed: list[tf.Tensor]) -> None:
        """Prunes the graph to what the fetches, tensors or operations, need."""
        self.fed = {tensor.name for tensor in fed}
        self._nodes: dict[str, Node] = {}
        self.fetches = [self._fetch(fetch) for fetch in fetches]
        self.nodes = list(self._nodes.values())
        self.roots = [node for node in self.nodes if not node.inputs and not node.num_controls]

    def _fetch(self, fetch: Any) -> tuple[Node, int | None]:
        if isinstance(fetch, tf.Operation):
            return self._node(fetch), None
        return self._node(fetch.op), fetch.value_index

    def _node(self, op: tf.Operation) -> Node:
        if op.name not in self._nodes:
            waiting = [self._nodes.setdefault(op.name, Node(op))]
            while waiting:
                self._connect(waiting.pop(), waiting)
        return self._nodes[op.name]

    def _connect(self, node: Node, waiting: list[Node]) -> None:
        if any(tensor.name in self.fed for tensor in node.op.outputs):
            node.type, node.is_stateful = "Fed", False
            return
        for slot, tensor in enumerate(node.op.inputs):
            producer = self._get(tensor.op, waiting)
            node.inputs.append((producer, tensor.value_index))
            producer.data_consumers.append((tensor.value_index, node, slot))
        for control in node.op.control_inputs:
            self._get(control, waiting).control_consumers.append(node)
            node.num_controls += 1

    def _get(self, op: tf.Operation, waiting: list[Node]) -> Node:
        if op.name not in self._nodes:
            self._nodes[op.name] = Node(op)
            waiting.append(self._nodes[op.name])
        return self._nodes[op.name]


class _Arrived:
    __slots__ = ("controls", "inputs", "is_dead", "missing", "is_done", "places")

    def __init__(self, node: Node) -> None:
        self.inputs = [None] * len(node.inputs)
        self.missing = len(node.inputs)
        self.controls = node.num_controls
        self.is_dead = False
        self.is_done = False
        self.places: frozenset[int | None] = frozenset()


class Instance(NamedTuple):
    """An operation on a variable that can run now.

    Attributes:
      node: the operation.
      tag: its place in loops.
      inputs: their values.
      places: the ps where the operations ran that it follows; None for the server that has the call's own values.
    """

    node: Node
    tag: tuple
    inputs: list[Any]
    places: frozenset[int | None]

    @property
    def ps(self) -> int | None:
        """The ps that runs it: that of its variable, wherever the operation was placed; None for the server itself."""
        is_handle = bool(self.inputs) and isinstance(self.inputs[0], tuple)
        return self.inputs[0][0] if is_handle else self.node.ps


class Execution:
    """One call: computes all that no variable is needed for, and offers the operations on variables one by one.

    Attributes:
      ready: the operations on variables that can run now; `step` runs one.
    """

    def __init__(self, plan: Plan, values: dict[str, Any]) -> None:
        """Begins; `values` is the value of each fed tensor by name."""
        self._plan, self._values = plan, values
        self._arrived: dict[tuple[Node, tuple], _Arrived] = {}
        self._constants: dict[tuple, list[tuple[Node, Any, frozenset[int | None]]]] = collections.defaultdict(list)
        self._outputs: dict[Node, tuple] = {}
        self._fetched = {node for node, _ in plan.fetches}
        self.ready: list[Instance] = []
        self._queue = collections.deque((node, ROOT, [], frozenset()) for node in plan.roots)
        self._advance()

    @property
    def is_done(self) -> bool:
        return len(self._outputs) == len(self._fetched)

    def results(self) -> list[Any]:
        """Returns the values of the fetches, None for operations."""
        return [None if slot is None else self._outputs[node][slot] for node, slot in self._plan.fetches]

    def step(self, instance: Instance, store: Any) -> bool:
        """Runs one operation of `ready` on a store; returns false if it has to wait."""
        outputs = instance.node.run(store, instance.node, *instance.inputs)
        if outputs is BLOCKED:
            return False
        self.ready.remove(instance)
        self._finish(instance.node, instance.tag, outputs if isinstance(outputs, tuple) else (outputs,),
                     frozenset([instance.ps]))
        self._advance()
        return True

    def _advance(self) -> None:
        while self._queue:
            node, tag, inputs, places = self._queue.popleft()
            if inputs is _DEAD:
                self._finish(node, tag, _DEAD, places)
            elif node.type == "Fed":
                self._finish(node, tag, (self._values[node.op.outputs[0].name],), _SERVER)
            elif node.is_stateful:
                self.ready.append(Instance(node, tag, inputs, places))
            else:
                self._finish(node, tag, _compute(node, inputs), places)

    def _finish(self, node: Node, tag: tuple, outputs: Any, places: frozenset[int | None]) -> None:
        kind = node.type
        if kind in ("Enter", "RefEnter"):
            inner = (*tag, (node.attrs["frame_name"], 0))
            if node.attrs["is_constant"] and outputs is not _DEAD:
                self._constants[inner[:-1], inner[-1][0]].append((node, outputs, places))
            self._deliver(node, inner, outputs, places)
            return
        if kind in ("Exit", "RefExit"):
            if outputs is not _DEAD:
                self._deliver(node, tag[:-1], outputs, places)
            return
        if kind in ("NextIteration", "RefNextIteration"):
            if outputs is not _DEAD:
                frame, number = tag[-1]
                inner = (*tag[:-1], (frame, number + 1))
                if (inner, "begun") not in self._constants:
                    self._constants[inner, "begun"] = []
                    for constant, value, origin in self._constants[tag[:-1], frame]:
                        self._deliver(constant, inner, value, origin)
                self._deliver(node, inner, outputs, places)
            return
        self._deliver(node, tag, outputs, places)

    def _deliver(self, node: Node, tag: tuple, outputs: Any, places: frozenset[int | None]) -> None:
        if tag == ROOT and node in self._fetched and outputs is not _DEAD:
            self._outputs[node] = outputs
        for slot, consumer, position in node.data_consumers:
            value = _DEAD if outputs is _DEAD else outputs[slot]
            self._arrive(consumer, tag, position, value, places)
        for consumer in node.control_consumers:
            self._arrive(consumer, tag, None, _DEAD if outputs is _DEAD else None, places)

    def _arrive(
        self, node: Node, tag: tuple, position: int | None, value: Any, places: frozenset[int | None]
    ) -> None:
        key = (node, tag)
        arrived = self._arrived.get(key)
        if arrived is None:
            arrived = self._arrived[key] = _Arrived(node)
        if not arrived.places >= places:
            arrived.places |= places
        is_merge = node.type in ("Merge", "RefMerge")
        if position is None:
            arrived.controls -= 1
            arrived.is_dead |= value is _DEAD and not is_merge
        else:
            arrived.missing -= 1
            arrived.inputs[position] = value
            if value is _DEAD:
                arrived.is_dead |= not is_merge
        if arrived.is_done or arrived.controls > 0:
            return
        if is_merge:
            live = [number for number, each in enumerate(arrived.inputs) if each is not None and each is not _DEAD]
            if live:
                arrived.is_done = True
                self._queue.append((node, tag, [arrived.inputs[live[0]], live[0]], arrived.places))
            elif not arrived.missing:
                arrived.is_done = True
                self._queue.append((node, tag, _DEAD, arrived.places))
        elif not arrived.missing:
            arrived.is_done = True
            self._queue.append((node, tag, _DEAD if arrived.is_dead else arrived.inputs, arrived.places))


def _compute(node: Node, inputs: list[Any]) -> tuple:
    kind = node.type
    if kind in ("Switch", "RefSwitch"):
        data, predicate = inputs
        return (_DEAD, data) if predicate else (data, _DEAD)
    if kind in ("Merge", "RefMerge"):
        return (inputs[0], inputs[1])
    if kind in _FLOW:
        return tuple(inputs) or (None,)
    outputs = node.run(node, *inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


# Operations without a variable ---------------------------------------------------------------------------------------

def _slice(node: Node, value: Any, begin: Any, end: Any, strides: Any) -> Any:
    shrink, begin_mask, end_mask = (node.attrs[f"{name}_mask"] for name in ("shrink_axis", "begin", "end"))
    index = []
    for axis in range(len(begin)):
        if shrink >> axis & 1:
            index.append(int(begin[axis]))
        else:
            index.append(slice(None if begin_mask >> axis & 1 else int(begin[axis]),
                               None if end_mask >> axis & 1 else int(end[axis]), int(strides[axis])))
    return value[tuple(index)]


def _axes(value: Any) -> Any:
    axes = np.asarray(value)
    return int(axes) if axes.ndim == 0 else tuple(int(axis) for axis in axes)


def _one_hot(node: Node, indices: Any, depth: Any, on_value: Any, off_value: Any) -> Any:
    return np.where(np.arange(depth) == np.asarray(indices)[..., None], on_value, off_value)


_NUMPY = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply,
    "Maximum": np.maximum, "Minimum": np.minimum,
    "Neg": np.negative, "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less, "LessEqual": np.less_equal,
    "Greater": np.greater, "GreaterEqual": np.greater_equal, "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not, "SelectV2": np.where, "Select": np.where,
}
STATELESS: dict[str, Callable] = {
    "Const": lambda node: node.attrs["value"],
    "NoOp": lambda node: (None,),
    "Identity": lambda node, value: value,
    "StopGradient": lambda node, value: value,
    "IdentityN": lambda node, *values: tuple(values),
    "PlaceholderWithDefault": lambda node, value: value,
    "Placeholder": lambda node: (_ for _ in ()).throw(KeyError(f"{node.name} is not fed")),
    "VarHandleOp": lambda node: ((node.ps, node.attrs["shared_name"].decode() or node.name),),
    "MutexV2": lambda node: ((node.ps, node.attrs["shared_name"].decode()),),
    "Cast": lambda node, value: np.asarray(value).astype(node.attrs["DstT"].as_numpy_dtype),
    "StridedSlice": _slice,
    "Pack": lambda node, *values: np.stack(values, axis=node.attrs["axis"]),
    "Unpack": lambda node, value: tuple(np.moveaxis(value, node.attrs["axis"], 0)),
    "Range": lambda node, begin, end, step: np.arange(begin, end, step),
    "Fill": lambda node, shape, value: np.full(tuple(int(size) for size in shape), value),
    "Shape": lambda node, value: np.array(np.shape(value), node.attrs["out_type"].as_numpy_dtype),
    "Size": lambda node, value: node.attrs["out_type"].as_numpy_dtype(np.size(value)),
    "Sum": lambda node, value, axis: np.sum(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Prod": lambda node, value, axis: np.prod(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Squeeze": lambda node, value: np.squeeze(value, tuple(node.attrs["squeeze_dims"]) or None),
    "Max": lambda node, value, axis: np.max(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Min": lambda node, value, axis: np.min(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Any": lambda node, value, axis: np.any(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "ArgMin": lambda node, value, axis: np.int64(np.argmin(value)),
    "Reshape": lambda node, value, shape: np.reshape(value, tuple(int(size) for size in shape)),
    "Where": lambda node, value: np.argwhere(value).astype(np.int64),
    "GatherV2": lambda node, value, indices, axis: np.take(value, indices, axis=int(axis)),
    "GatherNd": lambda node, value, indices: value[tuple(np.moveaxis(indices, -1, 0))],
    "ConcatV2": lambda node, *values: np.concatenate(values[:-1], axis=int(values[-1])),
    "ExpandDims": lambda node, value, axis: np.expand_dims(value, int(axis)),
    "OneHot": _one_hot,
    "ZerosLike": lambda node, value: np.zeros_like(value),
    "OnesLike": lambda node, value: np.ones_like(value),
    **{name: (lambda node, *values, function=function: function(*values)) for name, function in _NUMPY.items()},
}
_FLOW = {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
         "RefNextIteration", "LoopCond", "ControlTrigger", "Fed"}


# Operations on the variables of a store ------------------------------------------------------------------------------

class Caller:
    """Who runs operations.

    Attributes:
      number: no other caller has it.
      taken: accumulator -> the gradients that the caller has taken from it: who has pushed each, for which step.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken: dict[str, list[tuple[Any, int]]] = {}


class Store:
    """The variables and accumulators of one process."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        """Creates an empty store; `draw(most)` returns a random number from 1 to `most` - 1."""
        self.values: dict[str, Any] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.locks: dict[str, Any] = {}
        self.draw = draw
        self.caller: Any = Caller(0)  # whose operation runs

    def read(self, name: str) -> Any:
        if name not in self.values:
            raise NotReadyError(f"Could not find variable {name}. It is not initialized.")
        return self.values[name]


class Accumulator:
    """A ConditionalAccumulator."""

    def __init__(self, is_mean: bool) -> None:
        self.is_mean, self.total, self.count, self.step = is_mean, None, 0, 0
        self.pushed: list[tuple[Any, int]] = []

    def apply(self, gradient: Any, step: int, caller: Any) -> None:
        if step < self.step:
            return
        self.pushed.append((caller, step))
        self.total = np.array(gradient, copy=True) if self.total is None else self.total + gradient
        self.count += 1

    def take(self, required: int, name: str, caller: Any) -> Any:
        if self.count < required:
            return BLOCKED
        caller.taken[name], self.pushed = self.pushed, []
        value = self.total / self.count if self.is_mean else self.total
        self.total, self.count = None, 0
        self.step += 1
        return np.asarray(value)


def _scatter(change: Callable) -> Callable:
    def run(store: Store, node: Node, handle: Any, indices: Any, updates: Any) -> tuple:
        value = np.array(store.read(handle[1]), copy=True)
        change(value, indices, updates)
        store.values[handle[1]] = value
        return (None,)

    return run


def _assign(store: Store, node: Node, handle: Any, value: Any) -> tuple:
    store.values[handle[1]] = value
    return (None,)


def _assign_add(store: Store, node: Node, handle: Any, value: Any) -> tuple:
    store.values[handle[1]] = store.read(handle[1]) + value
    return (None,)


def _accumulator(store: Store, node: Node) -> tuple:
    name = node.attrs["shared_name"].decode() or node.name
    if name not in store.accumulators:
        store.accumulators[name] = Accumulator(node.attrs["reduction_type"].decode() == "MEAN")
    return ((node.ps, name),)


def _set_step(store: Store, node: Node, handle: Any, step: Any) -> tuple:
    store.accumulators[handle[1]].step = int(step)
    return (None,)


def _apply(store: Store, node: Node, handle: Any, step: Any, gradient: Any) -> tuple:
    store.accumulators[handle[1]].apply(gradient, int(step), store.caller)
    return (None,)


def _descend(store: Store, node: Node, handle: Any, rate: Any, delta: Any) -> tuple:
    store.values[handle[1]] = store.read(handle[1]) - rate * delta
    return (None,)


def _lock(store: Store, node: Node, handle: Any) -> Any:
    if store.locks.get(handle[1]):
        return BLOCKED
    store.locks[handle[1]] = True
    return (handle,)


def _unlock(store: Store, node: Node, handle: Any) -> tuple:
    store.locks[handle[1]] = False
    return (None,)


def _add_at(value: Any, indices: Any, updates: Any) -> None:
    np.add.at(value, indices, updates)


def _raise_at(value: Any, indices: Any, updates: Any) -> None:
    np.maximum.at(value, indices, updates)


def _set_at(value: Any, indices: Any, updates: Any) -> None:
    value[indices] = updates


def _assert(store: Store, node: Node, condition: Any, *data: Any) -> tuple:
    if not condition:
        raise AssertionFailedError(str(data))
    return (None,)


STATEFUL: dict[str, Callable] = {
    "Assert": _assert,
    "ReadVariableOp": lambda store, node, handle: store.read(handle[1]),
    "ResourceGather": lambda store, node, handle, indices: store.read(handle[1])[indices],
    "VarIsInitializedOp": lambda store, node, handle: np.bool_(handle[1] in store.values),
    "AssignVariableOp": _assign,
    "AssignAddVariableOp": _assign_add,
    "ResourceScatterUpdate": _scatter(_set_at),
    "ResourceScatterAdd": _scatter(_add_at),
    "ResourceScatterMax": _scatter(_raise_at),
    "ResourceApplyGradientDescent": _descend,
    "ResourceConditionalAccumulator": _accumulator,
    "ResourceAccumulatorSetGlobalStep": _set_step,
    "ResourceAccumulatorApplyGradient": _apply,
    "ResourceAccumulatorTakeGradient": lambda store, node, handle, required: (
        store.accumulators[handle[1]].take(int(required), handle[1], store.caller)),
    "ResourceAccumulatorNumAccumulated": lambda store, node, handle: np.int32(store.accumulators[handle[1]].count),
    "MutexLock": _lock,
    "ConsumeMutexLock": _unlock,
    "RandomUniformInt": lambda store, node, shape, least, most: np.int64(store.draw(int(most))),
}
