"""`tf.contrib.graph_editor`'s `subgraph`, `reroute` and `edit`: parts of a graph, and changes of what they read.

    reroute    A0 -> B0   A1 -> B1   becomes   A0 -> B0, A0 -> B1; nobody reads A1
    swap       A0 -> B0   A1 -> B1   becomes   A0 -> B1, A1 -> B0

Change a graph before a session runs it: TensorFlow refuses to run a changed operation that a session has run before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names import graph_editor_selection as selection

_PLACEHOLDER_PREFIX = "geph"


class SubGraphView:
    """Operations of a graph, with the tensors that they read from others and those that others may read from them.

    Attributes:
      ops: the operations.
      inputs: tensors from other operations; then tensors that pass through.
      outputs: tensors that other operations read, or nobody; then tensors that pass through.
      passthroughs: tensors that the view was given and that no operation of it reads or makes.
    """

    def __init__(self, inside_ops: Any = (), passthrough_ts: Any = ()) -> None:
        """Takes lists of operations and of tensors."""
        self.ops = selection.make_list_of_op(inside_ops)
        inputs, outputs, inside = selection.compute_boundary_ts(self.ops)
        connected = {*inputs, *outputs, *inside}
        self.passthroughs = [tensor for tensor in dict.fromkeys(selection.make_list_of_t(passthrough_ts))
                             if tensor not in connected]
        self.inputs, self.outputs = inputs + self.passthroughs, outputs + self.passthroughs

    @property
    def graph(self) -> tf.Graph | None:
        """The graph; None if the view is empty."""
        return next((item.graph for item in (*self.ops, *self.passthroughs)), None)

    @property
    def connected_inputs(self) -> list[tf.Tensor]:
        """The inputs without those that pass through."""
        return [tensor for tensor in self.inputs if tensor not in self.passthroughs]

    @property
    def connected_outputs(self) -> list[tf.Tensor]:
        """The outputs without those that pass through."""
        return [tensor for tensor in self.outputs if tensor not in self.passthroughs]

    def op(self, op_id: int) -> tf.Operation:
        """Returns the operation at a position."""
        return self.ops[op_id]

    def input_index(self, t: tf.Tensor) -> int:
        """Returns the position of an input."""
        return self.inputs.index(t)

    def output_index(self, t: tf.Tensor) -> int:
        """Returns the position of an output."""
        return self.outputs.index(t)

    def consumers(self) -> list[tf.Operation]:
        """Returns the operations outside of the view that read an output."""
        return [op for op in selection.get_consuming_ops(self.outputs) if op not in self.ops]

    def remap_inputs(self, new_input_indices: Sequence[int]) -> SubGraphView:
        """Returns a view that has some of the inputs, in another order."""
        return self._with("inputs", [self.inputs[index] for index in new_input_indices])

    def remap_outputs(self, new_output_indices: Sequence[int]) -> SubGraphView:
        """Returns a view that has some of the outputs, in another order."""
        return self._with("outputs", [self.outputs[index] for index in new_output_indices])

    def _with(self, name: str, tensors: list[tf.Tensor]) -> SubGraphView:
        view = SubGraphView(self.ops, self.passthroughs)
        vars(view).update(vars(self), **{name: tensors})
        return view


def make_view(*args: Any, **kwargs: Any) -> SubGraphView:
    """Returns the view given, or one of operations, tensors and expressions as `select_ops_and_ts` takes them."""
    if args and isinstance(args[0], SubGraphView):
        return args[0]
    return SubGraphView(*selection.select_ops_and_ts(*args, **kwargs))


def make_view_from_scope(scope: str, graph: tf.Graph) -> SubGraphView:
    """Returns a view of the operations in a name scope."""
    return SubGraphView(selection.get_name_scope_ops(graph, scope))


sgv, sgv_scope = make_view, make_view_from_scope


def _exchange(ts0: Any, ts1: Any, is_swap: bool, can_modify: Any, cannot_modify: Any) -> int:
    """Lets the readers of each second tensor read the first; in a swap also the other way. Returns the changes."""
    firsts, seconds = (selection.make_list_of_t(ts, allow_graph=False) for ts in (ts0, ts1))
    if len(firsts) != len(seconds):
        raise ValueError(f"got {len(firsts)} tensors to read in place of {len(seconds)}; give as many as those")
    allowed = None if can_modify is None else set(selection.make_list_of_op(can_modify))
    refused = set(selection.make_list_of_op(cannot_modify or ()))
    changes = 0
    for first, second in zip(firsts, seconds):
        if first is second:
            continue
        moves = [(op, place, first) for op, place in _places(second)]
        moves += [(op, place, second) for op, place in _places(first)] if is_swap else []
        for op, place, tensor in moves:
            if op not in refused and (allowed is None or op in allowed):
                op._update_input(place, tensor)  # noqa: SLF001 (no public name)
                changes += 1
    return changes


def _places(tensor: tf.Tensor) -> list[tuple[tf.Operation, int]]:
    return [(op, place) for op in tensor.consumers() for place, read in enumerate(op.inputs) if read is tensor]


def reroute_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Lets the operations that read the second tensors read the first ones; returns how many inputs it changed.

    Args:
      ts0: the tensors to read.
      ts1: as many tensors, which are read now.
      can_modify: operations that may be changed; None for all.
      cannot_modify: operations that must stay as they are.
    """
    return _exchange(ts0, ts1, False, can_modify, cannot_modify)


def swap_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Lets the readers of each pair of tensors read the other one; otherwise as `reroute_ts`."""
    return _exchange(ts0, ts1, True, can_modify, cannot_modify)


def _exchange_inputs(sgv0: Any, sgv1: Any, is_swap: bool) -> tuple[SubGraphView, SubGraphView]:
    view0, view1 = make_view(sgv0), make_view(sgv1)
    readers = [op for view in (view0, view1) for op in (*view.ops, *selection.get_consuming_ops(view.passthroughs))]
    _exchange(view0.inputs, view1.inputs, is_swap, readers, None)
    view0.inputs, view1.inputs = list(view1.inputs if is_swap else view0.inputs), list(view0.inputs)
    return view0, view1


def _exchange_outputs(sgv0: Any, sgv1: Any, is_swap: bool) -> tuple[SubGraphView, SubGraphView]:
    view0, view1 = make_view(sgv0), make_view(sgv1)
    _exchange(view0.outputs, view1.outputs, is_swap, None, view0.ops + view1.ops)
    return view0, view1


def reroute_inputs(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Lets the second view read what the first one reads; returns both."""
    return _exchange_inputs(sgv0, sgv1, False)


def reroute_outputs(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Lets the operations outside that read from the second view read from the first one; returns both."""
    return _exchange_outputs(sgv0, sgv1, False)


def reroute_ios(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Lets the second view read what the first one reads, and its readers read from the first one; returns both."""
    return reroute_outputs(*reroute_inputs(sgv0, sgv1))


def swap_inputs(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Lets each of two views read what the other one reads; returns both."""
    return _exchange_inputs(sgv0, sgv1, True)


def swap_outputs(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Lets the operations outside that read from one of two views read from the other one; returns both."""
    return _exchange_outputs(sgv0, sgv1, True)


def swap_ios(sgv0: Any, sgv1: Any) -> tuple[SubGraphView, SubGraphView]:
    """Exchanges the inputs and the outputs of two views; returns both."""
    return swap_outputs(*swap_inputs(sgv0, sgv1))


def add_control_inputs(op: tf.Operation, cops: Any) -> None:
    """Lets an operation wait for others; ValueError if it waits for one of them already."""
    added = _checked(op, cops)
    if known := [cop.name for cop in added if cop in op.control_inputs]:
        raise ValueError(f"{op.name} has the control inputs {', '.join(known)} already")
    op._add_control_inputs(added)  # noqa: SLF001 (no public name)


def remove_control_inputs(op: tf.Operation, cops: Any) -> None:
    """Lets an operation no longer wait for others; ValueError if it does not wait for one of them."""
    removed = _checked(op, cops)
    if unknown := [cop.name for cop in removed if cop not in op.control_inputs]:
        raise ValueError(f"{op.name} has no control inputs {', '.join(unknown)}")
    kept = [cop for cop in op.control_inputs if cop not in removed]
    op._remove_all_control_inputs()  # noqa: SLF001 (no public name)
    op._add_control_inputs(kept)  # noqa: SLF001


def _checked(op: tf.Operation, cops: Any) -> list[tf.Operation]:
    if not isinstance(op, tf.Operation):
        raise TypeError(f"got {op!r}; give a tf.Operation")
    return selection.make_list_of_op(cops, allow_graph=False)


def placeholder_name(t: tf.Tensor | None = None, scope: str | None = None, prefix: str = _PLACEHOLDER_PREFIX) -> str:
    """Returns "scope/geph__op_0" for the tensor "op:0"; its own scope if none is given."""
    if t is None:
        return f"{scope}/{prefix}" if scope else prefix
    own, _, name = t.op.name.rpartition("/")
    folder = own if scope is None else scope.rstrip("/")
    return f"{folder}/{prefix}__{name}_{t.value_index}".lstrip("/")


def make_placeholder_from_tensor(t: tf.Tensor, scope: str | None = None,
                                 prefix: str = _PLACEHOLDER_PREFIX) -> tf.Tensor:
    """Returns a placeholder of the type and shape of a tensor, in the default graph."""
    return tf.placeholder(t.dtype.base_dtype, t.shape, placeholder_name(t, scope, prefix))


def make_placeholder_from_dtype_and_shape(dtype: Any, shape: Any = None, scope: str | None = None,
                                          prefix: str = _PLACEHOLDER_PREFIX) -> tf.Tensor:
    """Returns a placeholder of a type and shape, in the default graph."""
    return tf.placeholder(dtype, shape, placeholder_name(None, scope, prefix))


ph = make_placeholder_from_dtype_and_shape


def connect_views(sgv0: Any, sgv1: Any, disconnect_first: bool = False) -> tuple[SubGraphView, SubGraphView]:
    """Lets the second view read the outputs of the first one, in order; returns both.

    Args:
      disconnect_first: whether others that read these outputs get placeholders instead.
    """
    view0, view1 = make_view(sgv0), make_view(sgv1)
    if disconnect_first:
        detach_outputs(view0)
    reroute_inputs(SubGraphView(passthrough_ts=view0.outputs), view1)
    return view0, view1


def detach_inputs(sgv: Any, control_inputs: bool = False) -> tuple[SubGraphView, list[tf.Tensor]]:
    """Lets a view read placeholders in place of its inputs; returns it and them.

    Args:
      control_inputs: whether its operations no longer wait for others either.
    """
    view = make_view(sgv)
    placeholders = _placeholders(view.graph, view.inputs)
    reroute_inputs(SubGraphView(passthrough_ts=placeholders), view)
    for op in view.ops if control_inputs else ():
        remove_control_inputs(op, [cop for cop in op.control_inputs if cop not in view.ops])
    return view, placeholders


def detach_outputs(sgv: Any) -> tuple[SubGraphView, list[tf.Tensor]]:
    """Lets the operations outside of a view read placeholders in place of its outputs; returns it and them."""
    view = make_view(sgv)
    placeholders = _placeholders(view.graph, view.outputs)
    _exchange(placeholders, view.outputs, False, None, view.ops)
    return view, placeholders


def detach(sgv: Any, control_inputs: bool = False) -> tuple[SubGraphView, list[tf.Tensor], list[tf.Tensor]]:
    """Detaches the inputs and the outputs of a view; returns it and the placeholders of both."""
    view, inputs = detach_inputs(sgv, control_inputs)
    return view, inputs, detach_outputs(view)[1]


def bypass(sgv: Any) -> tuple[SubGraphView, list[tf.Tensor]]:
    """Lets the operations that read the outputs of a view read its inputs; returns it and its placeholders."""
    view = make_view(sgv)
    inputs = list(view.inputs)
    view, placeholders = detach_inputs(view)
    reroute_ts(inputs, view.outputs)
    return view, placeholders


def _placeholders(graph: tf.Graph | None, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    if graph is None:
        return []
    with graph.as_default(), tf.name_scope(None):
        return [make_placeholder_from_tensor(tensor) for tensor in tensors]
