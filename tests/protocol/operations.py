"""What the operations of a TensorFlow graph do, on values in memory.

    STATELESS   type -> function of the node and its inputs
    STATEFUL    type -> function of a Store, the node and its inputs; BLOCKED if it has to wait
    Store       the variables, accumulators and locks of one process
"""

from __future__ import annotations

import collections
from typing import Any, Callable

import numpy as np

BLOCKED = object()  # the operation has to wait, as that of an empty accumulator
Node = Any  # `interpreter.Node`


class NotReadyError(Exception):
    """A variable has no value."""


class AssertionFailedError(Exception):
    """An Assert of the graph failed."""


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


def _gather(node: Node, value: Any, indices: Any, axis: Any) -> Any:
    return np.take(value, indices, axis=int(axis))


def _scatter_nd(node: Node, indices: Any, updates: Any, shape: Any) -> Any:
    value = np.zeros(tuple(int(size) for size in shape), np.asarray(updates).dtype)
    np.add.at(value, tuple(np.moveaxis(np.asarray(indices), -1, 0)), updates)
    return value


def _draw(node: Node, shape: Any, key: Any, counter: Any, algorithm: Any) -> Any:
    return np.random.default_rng(np.asarray(key).ravel()).random(tuple(shape), np.float32)


def _select(condition: Any, then: Any, otherwise: Any) -> Any:
    if isinstance(then, bytes):  # a scalar string is bytes in the twin
        return then if condition else otherwise
    return np.where(condition, then, otherwise)


_NUMPY = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply,
    "Maximum": np.maximum, "Minimum": np.minimum,
    "Neg": np.negative, "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less, "LessEqual": np.less_equal,
    "Greater": np.greater, "GreaterEqual": np.greater_equal, "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not, "SelectV2": _select, "Select": _select,
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
    "Rank": lambda node, value: np.int32(np.ndim(value)),
    "Sum": lambda node, value, axis: np.sum(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Prod": lambda node, value, axis: np.prod(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Squeeze": lambda node, value: np.squeeze(value, tuple(node.attrs["squeeze_dims"]) or None),
    "Max": lambda node, value, axis: np.max(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Min": lambda node, value, axis: np.min(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "Any": lambda node, value, axis: np.any(value, axis=_axes(axis), keepdims=node.attrs["keep_dims"]),
    "ArgMin": lambda node, value, axis: np.int64(np.argmin(value)),
    "ArgMax": lambda node, value, axis: np.int64(np.argmax(value)),
    "Reshape": lambda node, value, shape: np.reshape(value, tuple(int(size) for size in shape)),
    "Where": lambda node, value: np.argwhere(value).astype(np.int64),
    "GatherV2": _gather,
    "ScatterNd": _scatter_nd,
    "StatelessRandomGetKeyCounter": lambda node, seed: (np.abs(np.asarray(seed, np.int64)), np.zeros(2, np.int64)),
    "StatelessRandomGetAlg": lambda node: np.int32(1),
    "StatelessRandomUniformV2": _draw,
    "FIFOQueueV2": lambda node: ((node.ps, node.name),),
    "GatherNd": lambda node, value, indices: value[tuple(np.moveaxis(indices, -1, 0))],
    "ConcatV2": lambda node, *values: np.concatenate(values[:-1], axis=int(values[-1])),
    "ExpandDims": lambda node, value, axis: np.expand_dims(value, int(axis)),
    "OneHot": _one_hot,
    "ZerosLike": lambda node, value: np.zeros_like(value),
    "OnesLike": lambda node, value: np.ones_like(value),
    **{name: (lambda node, *values, function=function: function(*values)) for name, function in _NUMPY.items()},
}


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

    def taken_from(self, name: str) -> list[tuple[Any, int]] | None:
        """Returns what the caller has taken from the accumulator whose name begins so, or None."""
        return next((pushed for full_name, pushed in self.taken.items() if full_name.startswith(f"{name}_")), None)


class Store:
    """The variables, accumulators and queues of one process."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        """Creates an empty store; `draw(most)` returns a random number from 1 to `most` - 1."""
        self.values: dict[str, Any] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.locks: dict[str, Any] = {}
        self.queues: dict[str, collections.deque] = {}
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


def _queue(store: Store, handle: Any) -> collections.deque:
    return store.queues.setdefault(handle[1], collections.deque())


def _enqueue(store: Store, node: Node, handle: Any, *components: Any) -> tuple:
    _queue(store, handle).append(components)
    return (None,)


def _dequeue(store: Store, node: Node, handle: Any) -> Any:
    queue = _queue(store, handle)
    return tuple(queue.popleft()) if queue else BLOCKED


def _dequeue_many(store: Store, node: Node, handle: Any, number: Any) -> Any:
    queue = _queue(store, handle)
    if len(queue) < number:
        return BLOCKED
    elements = [queue.popleft() for _ in range(int(number))]
    return tuple(np.array([element[slot] for element in elements]).reshape([-1, *output.shape.as_list()[1:]])
                 for slot, output in enumerate(node.op.outputs))


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
    "QueueEnqueueV2": _enqueue,
    "QueueDequeueV2": _dequeue,
    "QueueDequeueManyV2": _dequeue_many,
    "QueueSizeV2": lambda store, node, handle: np.int32(len(_queue(store, handle))),
    "MutexLock": _lock,
    "ConsumeMutexLock": _unlock,
    "RandomUniformInt": lambda store, node, shape, least, most: np.int64(store.draw(int(most))),
}
