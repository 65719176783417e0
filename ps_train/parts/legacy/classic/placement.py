"""Variables where a script's own device functions want them.

    def assign(op):
        return "/job:ps/task:0" if op.type == "Variable" else "/job:worker/task:1"

Such functions know the operations of TensorFlow 1's variables. Those of resource variables have another type: without
the change below each worker would hold, and train, variables of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.graph.devices import is_on_ps, task_of

_RESOURCE = "VarHandleOp"
_REFERENCES = ("VariableV2", "Variable")
_SETTER = "tensorflow.python.training.device_setter"
_KNOWN = {*_REFERENCES, "AutoReloadVariable"}


def placed_types(ps_ops: Sequence[str] | None) -> Sequence[str] | None:
    """Returns the operation types that go to the ps: those of resource variables, too, if others' do."""
    if not ps_ops or _RESOURCE in ps_ops or not _KNOWN.intersection(ps_ops):
        return ps_ops
    return [*ps_ops, _RESOURCE]


def share_parameters(graph: tf.Graph, cluster: Cluster, filters: Iterable[str] = ()) -> None:
    """Puts the parameters that a script has put on no device on the first ps.

    TensorFlow 1 put them on the first device of the cluster by name, the same for all tasks: that of a ps, if
    no task is called chief. Today it puts them on the task of the session, and each worker would wait for its own.

    Args:
      filters: the device filters of the session, which may keep it from that task; then they stay on no device.
    """
    if cluster.ps:
        _share_on(graph, cluster.ps[0].job, cluster.ps[0].index, filters)


def share_on_the_first_task(graph: tf.Graph, cluster: Cluster, filters: Iterable[str] = ()) -> None:
    """Does the same in a cluster without ps or workers: the first device by name is that of the first task.

    Often that is the chief. In a cluster of "ps" and "trainer" it is a ps. If there is one task only they stay on no
    device: a later session of the script, without a server, can use them, too.
    """
    if sum(map(len, cluster.addresses.values())) > 1:
        job = min(job for job, tasks in cluster.addresses.items() if tasks)  # a script may write "ps": []
        _share_on(graph, job, min(cluster.addresses[job]), filters)


def _share_on(graph: tf.Graph, job: str, index: int, filters: Iterable[str]) -> None:
    visible = {task_of(one) for one in filters}
    if visible and not {(job, index), (job, None)} & visible:
        return
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if variable.op.type in {_RESOURCE, *_KNOWN}:  # not tables, which are on the ps
            device = tf.DeviceSpec.from_string(variable.device or "")
            if device.job is None:  # it may say which kind of device
                shared = tf.DeviceSpec(job, None, index, device.device_type, device.device_index)
                variable.op._set_device(shared.to_string())  # noqa: SLF001 (no public name)


def device(original: Callable, graph: Any, device_name_or_function: Any) -> Any:
    """`tf.Graph.device`, which `tf.device` calls, for functions of a script and of `replica_device_setter`."""
    function = device_name_or_function
    is_own = callable(function) and _module_of(function) == _SETTER
    if is_own or callable(function) and not _module_of(function).startswith(("tensorflow", "ps_train")):
        def device_name_or_function(op: Any) -> Any:
            if not hasattr(op, "type"):  # Keras asks which device is set by an object that has nothing of an operation
                op = _Computation()
            return function(op) if is_own else _device_of(function, op)
    return original(graph, device_name_or_function)


class _Computation:
    """Stands for any operation that is no variable."""

    def __init__(self) -> None:
        self.type, self.name, self.device, self.inputs, self.outputs = "NoOp", "", "", (), ()
        self.node_def = tf.NodeDef(op=self.type)


def _module_of(function: Callable) -> str:
    return getattr(function, "__module__", None) or type(function).__module__


def _device_of(function: Callable[[Any], Any], op: Any) -> Any:
    """Returns what a function says of an operation, or of the variable of TensorFlow 1 in its place if that is a ps.

    A function that assigns the ps in turn is not asked again about what it has put on one.
    """
    answer = function(op)
    if op.type == _RESOURCE and not _names_ps(answer):
        for kind in _REFERENCES:
            other = function(_ReferenceVariable(op, kind))
            if _names_ps(other):
                return other
    return answer


def _names_ps(answer: Any) -> bool:
    text = answer.to_string() if hasattr(answer, "to_string") else answer
    return isinstance(text, str) and is_on_ps(text)


class _OfType:
    """An object, but for the attribute that has the type of the operation."""

    def __init__(self, owner: Any, name: str, kind: str) -> None:
        self._owner, self._kind = owner, kind
        setattr(self, name, kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)


class _ReferenceVariable(_OfType):
    """The operation of a resource variable, with the type that a reference variable's has."""

    def __init__(self, op: Any, kind: str) -> None:
        super().__init__(op, "type", kind)

    @property
    def node_def(self) -> _OfType:
        """The definition of the operation."""
        return _OfType(self._owner.node_def, "op", self._kind)
