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

from tests.protocol.operations import BLOCKED, STATEFUL, STATELESS
from tests.tensorflow_mode import tf

_DEAD = object()  # the output of the branch that is not taken
ROOT: tuple = ()
_FLOW = {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
         "RefNextIteration", "LoopCond", "ControlTrigger", "Fed"}
_SERVER: frozenset[int | None] = frozenset([None])


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
            raise TypeError(f"the twin has no {op.type} ({op.name})")
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
        # TensorFlow gives them in an order of its own, which may differ in another process.
        for control in sorted(node.op.control_inputs, key=lambda op: op.name):
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
