"""`tf.contrib.graph_editor`'s `transform`: copies of parts of a graph, with other inputs.

`tf.import_graph_def` makes the copies. They keep attributes, devices, control inputs and, within the copy, colocation.
They read what the originals read, so a copied read of a variable reads the same variable. Of a loop of `tf.while_loop`
all is copied if a part is, and the contexts of loops and conditionals are copied, which gradients look at.
"""

from __future__ import annotations

import copy as copies
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names import graph_editor as views
from ps_train.parts.legacy.names import graph_editor_selection as selection

_COLOCATION = b"loc:@"


class TransformerInfo:
    """What a copy is made of.

    Attributes:
      sgv, graph, scope: the view that was copied, its graph, and the scope that its names were relative to.
      sgv_, graph_, scope_: the copy.
    """

    def __init__(self, view: views.SubGraphView, graph: tf.Graph, scopes: tuple[str, str],
                 ops: Mapping[tf.Operation, tf.Operation], tensors: Mapping[tf.Tensor, tf.Tensor]) -> None:
        """Takes original -> copy of operations, and of tensors, in which inputs have what is read instead."""
        self.sgv, self.graph, self.graph_ = view, view.graph, graph
        self.scope, self.scope_ = scopes
        self._transformed_ops, self._transformed_ts = dict(ops), dict(tensors)
        self.sgv_ = views.SubGraphView([ops[op] for op in view.ops])
        self.sgv_.inputs = [tensors.get(tensor, tensor) for tensor in view.inputs]
        self.sgv_.outputs = [tensors.get(tensor, tensor) for tensor in view.outputs]

    def transformed(self, original: Any, missing_fn: Callable[[Any], Any] | None = None) -> Any:
        """Returns the copies of a structure of tensors and operations; `missing_fn(original)`, or None, if none is."""
        return _looked_up(original, {**self._transformed_ops, **self._transformed_ts}, missing_fn)

    def original(self, transformed: Any, missing_fn: Callable[[Any], Any] | None = None) -> Any:
        """Returns the originals of a structure of copies; `missing_fn(copy)`, or None, for what is no copy."""
        known = {new: old for old, new in (*self._transformed_ops.items(), *self._transformed_ts.items())}
        return _looked_up(transformed, known, missing_fn)


def _looked_up(structure: Any, known: Mapping[Any, Any], missing_fn: Callable[[Any], Any] | None) -> Any:
    return tf.nest.map_structure(
        lambda item: known[item] if item in known else missing_fn and missing_fn(item), structure)


def copy(sgv: Any, dst_graph: tf.Graph | None = None, dst_scope: str = "", src_scope: str = "",
         reuse_dst_scope: bool = False) -> tuple[views.SubGraphView, TransformerInfo]:
    """Returns a copy of a view that reads new placeholders; the arguments are as in `copy_with_input_replacements`."""
    view = views.make_view(sgv)
    return _copied(view, lambda tensor, scope: views.make_placeholder_from_tensor(tensor, scope),
                   dst_graph, dst_scope, src_scope, reuse_dst_scope)


def copy_with_input_replacements(
        sgv: Any, replacement_ts: Mapping[tf.Tensor, Any], dst_graph: tf.Graph | None = None, dst_scope: str = "",
        src_scope: str = "", reuse_dst_scope: bool = False) -> tuple[views.SubGraphView, TransformerInfo]:
    """Returns a copy of a view, and a TransformerInfo with its operations.

    Args:
      sgv: the view, or operations, which are made a view.
      replacement_ts: input -> what the copy reads instead. It reads the other inputs as the original does, and in
        another graph placeholders.
      dst_graph: the graph of the copy; that of the view by default.
      dst_scope: name scope of the copies.
      src_scope: the part of the names that the copies do without.
      reuse_dst_scope: whether the scope may exist already; else it gets a number if it does.

    Raises:
      TypeError: the graph is none.
      ValueError: an operation is not in `src_scope`.
    """
    view = views.make_view(sgv)

    def read(tensor: tf.Tensor, scope: str) -> tf.Tensor:
        if tensor in replacement_ts:
            return tf.convert_to_tensor(replacement_ts[tensor])
        is_same = dst_graph is None or dst_graph is view.graph
        return tensor if is_same else views.make_placeholder_from_tensor(tensor, scope)

    return _copied(view, read, dst_graph, dst_scope, src_scope, reuse_dst_scope)


def graph_replace(target_ts: Any, replacement_ts: Mapping[tf.Tensor, Any], dst_scope: str = "", src_scope: str = "",
                  reuse_dst_scope: bool = False) -> Any:
    """Returns what the targets, a structure of tensors, would be with other tensors in place of some.

    Raises:
      ValueError: no target depends on a tensor that is replaced.
    """
    targets = tf.nest.flatten(target_ts)
    ops = selection.get_walks_intersection_ops(
        list(replacement_ts), targets, control_ios=selection.ControlOutputs(targets[0].graph))
    if not ops:
        raise ValueError(f"{targets[0].name} and the other targets do not depend on a tensor that is replaced")
    _, info = copy_with_input_replacements(ops, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    return info.transformed(target_ts, lambda tensor: tensor)


def _copied(view: views.SubGraphView, read: Callable[[tf.Tensor, str], tf.Tensor], dst_graph: tf.Graph | None,
            dst_scope: str, src_scope: str, reuse_dst_scope: bool) -> tuple[views.SubGraphView, TransformerInfo]:
    """Returns the copy, which reads `read(input, scope)` in place of each input."""
    graph = dst_graph or view.graph or tf.get_default_graph()
    if not isinstance(graph, tf.Graph):
        raise TypeError(f"dst_graph: got {graph!r}; give a tf.Graph")
    view = _with_whole_loops(view)
    read_now = dict.fromkeys([*view.inputs, *(tensor for op in view.ops for tensor in op.inputs)])
    with graph.as_default(), tf.name_scope(None), tf.control_dependencies(None):
        scope = dst_scope.rstrip("/")
        scope = graph.unique_name(scope) if scope and not reuse_dst_scope else scope
        inside = set(view.ops)
        tensors = {tensor: read(tensor, scope) for tensor in read_now if tensor.op not in inside}
        names = {op: graph.unique_name(_new_name(op, scope, src_scope.rstrip("/"))) for op in view.ops}
        frames = {frame: graph.unique_name(frame) for op in view.ops if (frame := _frame(op))}
        ops = _imported(view.graph, tensors, names, frames)
        tensors.update((old, new) for op in view.ops for old, new in zip(op.outputs, ops[op].outputs))
        _keep_places(ops)
        _copy_contexts(ops, tensors, frames)
    info = TransformerInfo(view, graph, (src_scope, scope), ops, tensors)
    return info.sgv_, info


def _new_name(op: tf.Operation, scope: str, src_scope: str) -> str:
    if src_scope and not op.name.startswith(src_scope + "/"):
        raise ValueError(f"src_scope: {op.name} is not in {src_scope}; give a scope of all operations, or none")
    name = op.name[len(src_scope) + 1 if src_scope else 0:]
    return f"{scope}/{name}" if scope else name


def _frame(op: tf.Operation) -> str:
    """Returns the name of the loop that an operation enters."""
    return op.get_attr("frame_name").decode() if op.type in ("Enter", "RefEnter") else ""


def _imported(source: tf.Graph | None, tensors: Mapping[tf.Tensor, tf.Tensor], names: Mapping[tf.Operation, str],
              frames: Mapping[str, str]) -> dict[tf.Operation, tf.Operation]:
    """Returns operation -> its copy, with new names and inputs; control inputs only within the copy."""
    if source is None or not names:
        return {}
    graph_def = tf.GraphDef(versions=source.graph_def_versions)
    if source is not tf.get_default_graph():
        graph_def.library.CopyFrom(source.as_graph_def().library)
    outside = {tensor: f"{tensor.op.name}.outside:{tensor.value_index}" for tensor in tensors}
    for op, name in names.items():
        node = graph_def.node.add()
        node.CopyFrom(op.node_def)
        node.name = name
        node.attr.pop("_class", None)  # the import accepts no colocation with others
        if frame := _frame(op):  # loops of one name would be one loop
            node.attr["frame_name"].s = frames[frame].encode()
        del node.input[:]
        node.input.extend(outside.get(tensor) or f"{names[tensor.op]}:{tensor.value_index}" for tensor in op.inputs)
        node.input.extend(f"^{names[other]}" for other in op.control_inputs if other in names)
    used = {tensor for op in names for tensor in op.inputs}
    copied = tf.import_graph_def(
        graph_def, name="", return_elements=list(names.values()),
        input_map={outside[tensor]: new for tensor, new in tensors.items() if tensor in used})
    return dict(zip(names, copied))


def _keep_places(ops: Mapping[tf.Operation, tf.Operation]) -> None:
    """Gives the copies the devices, the colocation and the control inputs from outside that the originals have."""
    names = {op.name.encode(): new.name.encode() for op, new in ops.items()}
    for op, new in ops.items():
        is_same = op.graph is new.graph
        new._set_device(op.device)  # noqa: SLF001 (no public name)
        if groups := [_COLOCATION + names.get(name, name) for name in _groups(op) if is_same or name in names]:
            new._set_attr("_class", tf.AttrValue(list={"s": groups}))  # noqa: SLF001 (no public name)
        if is_same and (others := [other for other in op.control_inputs if other not in ops]):
            new._add_control_inputs(others)  # noqa: SLF001 (no public name)


def _groups(op: tf.Operation) -> list[bytes]:
    """Returns the names of the operations beside which one is placed."""
    if "_class" not in op.node_def.attr:
        return []
    return [group[len(_COLOCATION):] for group in op.get_attr("_class") if group.startswith(_COLOCATION)]


def _context(op: tf.Operation) -> Any:
    return op._get_control_flow_context()  # noqa: SLF001 (no public name)


def _loops_of(op: tf.Operation) -> list[Any]:
    """Returns the contexts of the loops that an operation is in, the outermost one last."""
    context, loops = _context(op), []
    while context is not None:
        loops += [context] if context.IsWhileContext() else []
        context = context.outer_context
    return loops


def _with_whole_loops(view: views.SubGraphView) -> views.SubGraphView:
    """Returns a view with all that the results of its loops are made of: half of a loop does not run."""
    loops = list(dict.fromkeys(loops[-1] for op in view.ops if (loops := _loops_of(op))))
    if not loops:
        return view
    exits = [tensor for loop in loops for tensor in loop.loop_exits]
    ops = selection.get_backward_walk_ops(exits, within_ops_fn=lambda op: bool(set(_loops_of(op)) & set(loops)),
                                          control_inputs=True)
    return views.SubGraphView(dict.fromkeys([*view.ops, *ops]), view.passthroughs)


def _copy_contexts(ops: Mapping[tf.Operation, tf.Operation], tensors: Mapping[tf.Tensor, tf.Tensor],
                   frames: Mapping[str, str]) -> None:
    """Gives the copies copies of the contexts of loops and conditionals; in another graph they keep none."""
    contexts: dict[Any, Any] = {}
    names = {**{old.name: new.name for old, new in (*ops.items(), *tensors.items())}, **frames}

    def copied(value: Any) -> Any:
        """Returns what an attribute of a context is in its copy."""
        if hasattr(value, "IsWhileContext"):
            if value not in contexts:
                contexts[value] = copies.copy(value)
                vars(contexts[value]).update({key: copied(item) for key, item in vars(value).items()})
            return contexts[value]
        if isinstance(value, (list, set)):
            return type(value)(copied(item) for item in value)
        if isinstance(value, dict):
            return {copied(key): copied(item) for key, item in value.items()}
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, tf.Tensor):
            return tensors.get(value, value)
        return ops.get(value, value) if isinstance(value, tf.Operation) else value

    for op, new in ops.items():
        if op.graph is new.graph and _context(op) is not None:
            new._set_control_flow_context(copied(_context(op)))  # noqa: SLF001 (no public name)
