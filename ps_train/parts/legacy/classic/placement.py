"""Variables where a script's own device functions want them.

    def assign(op):
        return "/job:ps/task:0" if op.type == "Variable" else "/job:worker/task:1"

Such functions know the operations of TensorFlow 1's variables. Those of resource variables have another type: without
the change below each worker would hold, and train, variables of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_RESOURCE = "VarHandleOp"
_REFERENCES = ("VariableV2", "Variable", "AutoReloadVariable")


def placed_types(ps_ops: Sequence[str] | None) -> Sequence[str] | None:
    """Returns the operation types that go to the ps: those of resource variables, too, if others' do."""
    if not ps_ops or _RESOURCE in ps_ops or not set(_REFERENCES).intersection(ps_ops):
        return ps_ops
    return [*ps_ops, _RESOURCE]


def device(original: Callable, graph: Any, device_name_or_function: Any) -> Any:
    """`tf.Graph.device`, which `tf.device` calls, for functions of a script."""
    function = device_name_or_function
    if callable(function) and not _module_of(function).startswith(("tensorflow", "ps_train")):
        def device_name_or_function(op: Any) -> Any:
            return function(_ReferenceVariable(op) if op.type == _RESOURCE else op)
    return original(graph, device_name_or_function)


def _module_of(function: Callable) -> str:
    return getattr(function, "__module__", None) or type(function).__module__


class _VariableType(str):
    """The type of a variable's operation: equal to each of those that it has had."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other in _REFERENCES or other == _RESOURCE

    def __ne__(self, other: object) -> bool:
        return not self == other


class _OfType:
    """An object, but for the attribute that has the type of the operation."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        setattr(self, name, _VariableType(_REFERENCES[0]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)


class _ReferenceVariable(_OfType):
    """The operation of a resource variable, with the type that a reference variable's has."""

    def __init__(self, op: Any) -> None:
        super().__init__(op, "type")

    @property
    def node_def(self) -> _OfType:
        """The definition of the operation."""
        return _OfType(self._owner.node_def, "op")
