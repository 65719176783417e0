"""`tf.contrib.graph_editor`'s `util` and `select`: lists of operations and tensors, filters, and walks through a graph.

A walk forward follows tensors from an operation to its consumers, one backward those to the operations that make its
inputs. Walks return a list, in the order of the walk, so that every task that builds the graph gets the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf

_OPS_MARK, _TS_MARK = "(?#ops)", "(?#ts)"  # beginnings of regular expressions: for operations, or for tensors, only


class ControlOutputs:
    """The operations that wait for an operation by a control input."""

    def __init__(self, graph: tf.Graph) -> None:
        """Takes the graph."""
        if not isinstance(graph, tf.Graph):
            raise TypeError(f"ControlOutputs: got {graph!r}; give a tf.Graph")
        self.graph = graph

    def update(self) -> ControlOutputs:
        """Returns itself: the graph is asked anew each time."""
        return self

    def get(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns those of one operation."""
        return list(op._control_outputs)  # noqa: SLF001 (no public name)

    def get_all(self) -> dict[tf.Operation, list[tf.Operation]]:
        """Returns operation -> those that wait for it, without the operations for which none waits."""
        return {op: outputs for op in self.graph.get_operations() if (outputs := self.get(op))}


def _items(given: Any) -> list[Any]:
    """Returns a list of one thing, or of an iterable; a tensor is one thing."""
    is_one = isinstance(given, (tf.Tensor, tf.Operation, str, re.Pattern)) or not isinstance(given, Iterable)
    return [given] if is_one else list(given)


def _list_of(given: Any, kind: type, ignored: type | None, check_graph: bool) -> list[Any]:
    items = [item for item in _items(given) if ignored is None or not isinstance(item, ignored)]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"got {item!r}; give a {kind.__name__}, or a list of them")
    if check_graph and len({id(item.graph) for item in items}) > 1:
        raise ValueError(f"{items[0].name} and others are in different graphs; give those of one graph")
    return items


def make_list_of_op(tops: Any, check_graph: bool = True, allow_graph: bool = True,
                    ignore_ts: bool = False) -> list[tf.Operation]:
    """Returns a list of operations: of one, of an iterable, or of a graph; TypeError for anything else."""
    if allow_graph and isinstance(tops, tf.Graph):
        return tops.get_operations()
    return _list_of(tops, tf.Operation, tf.Tensor if ignore_ts else None, check_graph)


def make_list_of_t(ts: Any, check_graph: bool = True, allow_graph: bool = True,
                   ignore_ops: bool = False) -> list[tf.Tensor]:
    """Returns a list of tensors: of one, of an iterable, or of a graph; TypeError for anything else."""
    if allow_graph and isinstance(ts, tf.Graph):
        return get_tensors(ts)
    return _list_of(ts, tf.Tensor, tf.Operation if ignore_ops else None, check_graph)


def get_tensors(graph: tf.Graph) -> list[tf.Tensor]:
    """Returns all tensors that the operations of a graph make."""
    return [tensor for op in graph.get_operations() for tensor in op.outputs]


def get_generating_ops(ts: Any) -> list[tf.Operation]:
    """Returns the operations that make the tensors, each once."""
    return list(dict.fromkeys(tensor.op for tensor in make_list_of_t(ts, allow_graph=False)))


def get_consuming_ops(ts: Any) -> list[tf.Operation]:
    """Returns the operations that read one of the tensors, each once."""
    return list(dict.fromkeys(op for tensor in make_list_of_t(ts, allow_graph=False) for op in tensor.consumers()))


def filter_ops(ops: Any, positive_filter: Any) -> list[tf.Operation]:
    """Returns the operations for which a function returns True; all if True is given in its place."""
    ops = make_list_of_op(ops)
    return ops if positive_filter is True else [op for op in ops if positive_filter(op)]


def filter_ops_from_regex(ops: Any, regex: Any) -> list[tf.Operation]:
    """Returns the operations in whose names the expression is found."""
    return filter_ops(ops, lambda op: re.search(regex, op.name))


def get_name_scope_ops(ops: Any, scope: str) -> list[tf.Operation]:
    """Returns the operations in a name scope, and the one of that name."""
    name = re.escape(scope.rstrip("/"))
    return filter_ops_from_regex(ops, f"^{name}(/.*)?$") if name else make_list_of_op(ops)


def filter_ts(ops: Any, positive_filter: Any) -> list[tf.Tensor]:
    """Returns the inputs and outputs of operations, each once, as `filter_ops` does; no handles of resources."""
    # Scripts for reference variables take all that they find for values: gradients end at a handle that is copied.
    tensors = dict.fromkeys(tensor for op in make_list_of_op(ops) for tensor in (*op.inputs, *op.outputs)
                            if tensor.dtype != tf.resource)
    return [tensor for tensor in tensors if positive_filter is True or positive_filter(tensor)]


def filter_ts_from_regex(ops: Any, regex: Any) -> list[tf.Tensor]:
    """Returns the inputs and outputs of operations in whose names, "scope/op:0", the expression is found."""
    return filter_ts(ops, lambda tensor: re.search(regex, tensor.name))


def _select(args: Any, graph: tf.Graph | None, is_searched: Callable[[str], bool],
            search: Callable[[tf.Graph, Any], list], make_list: Callable[[Any], list],
            positive_filter: Callable[[Any], bool] | None) -> list[Any]:
    """Returns what expressions find in the graph, and the items of the lists, each once."""
    found: list[Any] = []
    for arg in args:
        if not isinstance(arg, (str, re.Pattern)):
            found += make_list(arg)
        elif graph is None:
            raise ValueError(f"the expression {arg!r} needs a graph; give graph=tf.get_default_graph()")
        elif is_searched(arg if isinstance(arg, str) else arg.pattern):
            found += search(graph, arg)
    return [item for item in dict.fromkeys(found) if positive_filter is None or positive_filter(item)]


def select_ops(*args: Any, graph: tf.Graph | None = None, positive_filter: Any = None,
               restrict_ops_regex: bool = False) -> list[tf.Operation]:
    """Returns the operations among the arguments, and those whose names match its expressions; tensors are left out."""
    def is_searched(pattern: str) -> bool:
        return pattern.startswith(_OPS_MARK) or not (restrict_ops_regex or pattern.startswith(_TS_MARK))

    return _select(args, graph, is_searched, filter_ops_from_regex,
                   lambda arg: make_list_of_op(arg, ignore_ts=True), positive_filter)


def select_ts(*args: Any, graph: tf.Graph | None = None, positive_filter: Any = None,
              restrict_ts_regex: bool = False) -> list[tf.Tensor]:
    """Returns the tensors among the arguments, and those whose names match its expressions; operations are left out."""
    def is_searched(pattern: str) -> bool:
        return pattern.startswith(_TS_MARK) or not (restrict_ts_regex or pattern.startswith(_OPS_MARK))

    return _select(args, graph, is_searched, filter_ts_from_regex,
                   lambda arg: make_list_of_t(arg, ignore_ops=True), positive_filter)


def select_ops_and_ts(*args: Any, graph: tf.Graph | None = None,
                      positive_filter: Any = None) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    """Returns the operations and the tensors among the arguments; an expression for tensors begins with "(?#ts)"."""
    return (select_ops(*args, graph=graph, positive_filter=positive_filter),
            select_ts(*args, graph=graph, positive_filter=positive_filter, restrict_ts_regex=True))


def compute_boundary_ts(ops: Any) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """Returns three lists of tensors, each in the order of the operations.

    Those that come from others; those that others read, or nobody; those that the operations make and read.
    """
    ops = make_list_of_op(ops)
    inside = set(ops)
    read = list(dict.fromkeys(tensor for op in ops for tensor in op.inputs))
    made = [tensor for op in ops for tensor in op.outputs]
    outputs = [tensor for tensor in made if not tensor.consumers() or not inside.issuperset(tensor.consumers())]
    return [tensor for tensor in read if tensor.op not in inside], outputs, [
        tensor for tensor in read if tensor.op in inside]


def _walk(seeds: list[tf.Operation], neighbours: Callable[[tf.Operation], Iterable[tf.Operation]], inclusive: bool,
          within_ops: Any, within_ops_fn: Callable[[tf.Operation], bool] | None) -> list[tf.Operation]:
    within = None if within_ops is None else set(make_list_of_op(within_ops))

    def is_within(op: tf.Operation) -> bool:
        return (within is None or op in within) and (within_ops_fn is None or within_ops_fn(op))

    first = dict.fromkeys(op for op in seeds if within is None or op in within)
    found, wave = dict(first), list(first)
    while wave:
        near = dict.fromkeys(op for seen in wave for op in neighbours(seen))
        wave = [op for op in near if op not in found and is_within(op)]
        found.update(dict.fromkeys(wave))
    return [op for op in found if inclusive or op not in first]


def _seeds(given: Any, of_tensors: Callable[[Any], list[tf.Operation]]) -> list[tf.Operation]:
    return [op for item in _items(given) for op in (
        of_tensors(item) if isinstance(item, tf.Tensor) else make_list_of_op(item))]


def get_backward_walk_ops(seed_ops: Any, inclusive: bool = True, within_ops: Any = None, within_ops_fn: Any = None,
                          stop_at_ts: Any = (), control_inputs: Any = False) -> list[tf.Operation]:
    """Returns the operations that others depend on.

    Args:
      seed_ops: the operations, or tensors of them, where the walk begins.
      inclusive: whether these are returned, too.
      within_ops: operations that the walk does not leave; None for the whole graph.
      within_ops_fn: whether the walk may enter an operation; None for each.
      stop_at_ts: tensors that the walk does not follow.
      control_inputs: whether the walk follows control inputs.
    """
    stops = set(make_list_of_t(stop_at_ts))

    def makers(op: tf.Operation) -> list[tf.Operation]:
        return [tensor.op for tensor in op.inputs if tensor not in stops] + (
            list(op.control_inputs) if control_inputs else [])

    return _walk(_seeds(seed_ops, get_generating_ops), makers, inclusive, within_ops, within_ops_fn)


def get_forward_walk_ops(seed_ops: Any, inclusive: bool = True, within_ops: Any = None, within_ops_fn: Any = None,
                         stop_at_ts: Any = (), control_outputs: ControlOutputs | None = None) -> list[tf.Operation]:
    """Returns the operations that depend on others; the arguments are those of `get_backward_walk_ops`.

    A tensor in `seed_ops` stands for the operations that read it. Control inputs are followed if `control_outputs` are
    given.
    """
    stops = set(make_list_of_t(stop_at_ts))

    def readers(op: tf.Operation) -> list[tf.Operation]:
        return [reader for tensor in op.outputs if tensor not in stops for reader in tensor.consumers()] + (
            control_outputs.get(op) if control_outputs is not None else [])

    return _walk(_seeds(seed_ops, get_consuming_ops), readers, inclusive, within_ops, within_ops_fn)


def _both_walks(forward_seed_ops: Any, backward_seed_ops: Any, forward_inclusive: bool, backward_inclusive: bool,
                within_ops: Any, within_ops_fn: Any, control_inputs: Any, control_outputs: Any,
                control_ios: ControlOutputs | None) -> tuple[list[tf.Operation], list[tf.Operation]]:
    forward = get_forward_walk_ops(forward_seed_ops, forward_inclusive, within_ops, within_ops_fn,
                                   control_outputs=control_outputs or control_ios)
    backward = get_backward_walk_ops(backward_seed_ops, backward_inclusive, within_ops, within_ops_fn,
                                     control_inputs=control_inputs or control_ios is not None)
    return forward, backward


def get_walks_intersection_ops(
        forward_seed_ops: Any, backward_seed_ops: Any, forward_inclusive: bool = True, backward_inclusive: bool = True,
        within_ops: Any = None, within_ops_fn: Any = None, control_inputs: Any = False, control_outputs: Any = None,
        control_ios: ControlOutputs | None = None) -> list[tf.Operation]:
    """Returns the operations of a walk forward that are also in one backward: what lies between."""
    forward, backward = _both_walks(forward_seed_ops, backward_seed_ops, forward_inclusive, backward_inclusive,
                                    within_ops, within_ops_fn, control_inputs, control_outputs, control_ios)
    others = set(backward)
    return [op for op in forward if op in others]


def get_walks_union_ops(
        forward_seed_ops: Any, backward_seed_ops: Any, forward_inclusive: bool = True, backward_inclusive: bool = True,
        within_ops: Any = None, within_ops_fn: Any = None, control_inputs: Any = False, control_outputs: Any = None,
        control_ios: ControlOutputs | None = None) -> list[tf.Operation]:
    """Returns the operations of a walk forward and of one backward."""
    forward, backward = _both_walks(forward_seed_ops, backward_seed_ops, forward_inclusive, backward_inclusive,
                                    within_ops, within_ops_fn, control_inputs, control_outputs, control_ios)
    return list(dict.fromkeys([*forward, *backward]))
