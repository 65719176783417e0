"""Sends the dense variables of a ps together: one transfer each way per ps and step.

    ps      variables --flatten, join [, cast]--> one tensor --> worker --[cast,] split, shape--> what the model reads
    worker  gradients --flatten, join [, cast]--> one tensor --> ps     --[cast,] split, shape--> what is applied

A transfer costs about 75 us on loopback, however small it is, plus the latency of the network. The model is built on
its variables as usual. Then the operations of a training step that read dense variables get slices of the one tensor
instead. User code and checkpoints see no difference, and embeddings (sparse variables) are still looked up on the ps.
`simplify_graph` then removes transfers and reads from the finished graph. docs/decisions/transfers.md says more.

These functions are called inside `placement.on_cluster`, which places on the worker what is not placed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph.devices import task_of

# The types that may travel in fewer bits: not float16, which already has 16, and no integers.
_CASTABLE = (tf.float32, tf.float64)
_MAX_BYTES = 2**30  # of a transfer: TensorFlow sends no tensor of 2 GiB
_MAX_COPIED = 256  # elements of a constant
_COPIES, _UNFED = "ps_train/copies_of_constants", "ps_train/unfed"  # collections

Pair = tuple[Any, tf.Variable]  # (gradient or None, variable)
View = tuple[tf.Variable, tf.Tensor]  # (variable, the tensor to read instead of it)


class Wire(NamedTuple):
    """How dense variables travel.

    Attributes:
      dtype: the type to which floats are cast for the transfer, or None for no cast.
      is_fused: whether the variables of a ps travel together.
    """

    dtype: tf.DType | None = None
    is_fused: bool = True


class Group(NamedTuple):
    """Variables that travel together: those of one ps and one dtype, up to 1 GiB.

    Attributes:
      device: the device of the ps.
      variables: the variables, each with a known shape.
    """

    device: str
    variables: list[tf.Variable]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of all of them."""
        return self.variables[0].dtype.base_dtype


def group(variables: Sequence[tf.Variable], wire: Wire) -> list[Group]:
    """Returns the groups in which the variables travel; each variable is in one group."""
    groups: list[Group] = []
    last: dict[Any, tuple[Group, int]] = {}  # ps and dtype -> the group that is being filled, and its bytes
    for number, variable in enumerate(variables):
        together = wire.is_fused and variable.shape.is_fully_defined()
        key = (variable.device, variable.dtype.base_dtype) if together else number
        num_bytes = (variable.shape.num_elements() or 0) * variable.dtype.base_dtype.size
        filled, filled_bytes = last.get(key, (None, 0))
        if filled is None or filled_bytes + num_bytes > _MAX_BYTES:
            filled, filled_bytes = Group(variable.device, []), 0
            groups.append(filled)
        filled.variables.append(variable)
        last[key] = filled, filled_bytes + num_bytes
    return groups


def pull(group: Group, wire: Wire) -> list[tf.Tensor]:
    """Returns the values of a group's variables as tensors on the worker, which arrive in one transfer."""
    with tf.name_scope("pull"):
        with tf.device(group.device):
            sent = _cast(_join([variable.read_value() for variable in group.variables]), wire)
        return _split(tf.cast(tf.identity(sent), group.dtype), group)


def push(group: Group, values: Sequence[tf.Tensor], wire: Wire, share: tf.Tensor | None = None) -> list[tf.Tensor]:
    """Returns the values as tensors on the ps of the group, with the shapes of its variables, after one transfer.

    The worker adds the rounding error of a cast to fewer bits to the next transfer, so nothing is lost in the long run
    (error feedback; Seide et al. 2014, "1-Bit Stochastic Gradient Descent").

    Args:
      values: one value per variable, on the worker.
      share: float scalar on a ps, by which the values are multiplied there; None for 1.
    """
    with tf.name_scope("push"):
        joined = _join(values)
        sent = tf.identity(_cast_with_feedback(joined, wire) if _is_cast(joined, wire) else joined)
        with tf.device(group.device):
            arrived = tf.cast(sent, group.dtype)
            return _split(arrived if share is None else arrived * tf.cast(share, group.dtype), group)


def fuse(loss: tf.Tensor, gradients: Sequence[Pair], wire: Wire) -> tuple[list[Pair], list[View]]:
    """Makes a training step read and update its dense variables through fused transfers.

    Args:
      loss: scalar.
      gradients: (gradient or None, variable); a gradient is a tensor, or IndexedSlices, which stay as they are.

    Returns:
      (gradient or None, variable), with the dense gradients on the ps of their variable; and the dense variables with
      their values on the worker.
    """
    pairs = list(gradients)
    dense = [variable for gradient, variable in pairs if is_dense(gradient) and has_handle(variable)]
    gradients_by_variable = {variable.ref(): gradient for gradient, variable in pairs}
    arrived: dict[Any, tf.Tensor] = {}
    views: list[View] = []
    step = upstream([loss, *(part for gradient, _ in pairs for part in tensors_of(gradient))])
    for together in group(dense, wire):
        pulled = pull(together, wire)
        views += zip(together.variables, pulled)
        pushed = push(together, [gradients_by_variable[variable.ref()] for variable in together.variables], wire)
        arrived.update({variable.ref(): value for variable, value in zip(together.variables, pushed)})
    serve_reads(step, views)
    return [(arrived.get(variable.ref(), gradient), variable) for gradient, variable in pairs], views


def serve_reads(ops: Iterable[tf.Operation], views: Iterable[View]) -> None:
    """Makes the operations read views instead of variables, except in loops and branches and after control inputs."""
    values = {variable.handle.name: value for variable, value in views if has_handle(variable)}
    for op in ops:
        if is_enclosed(op):
            continue
        for index, tensor in enumerate(op.inputs):
            read = tensor.op
            if is_free_read(read) and read.inputs[0].name in values:
                set_input(op, index, values[read.inputs[0].name])


def take_batches_after(tensors: Sequence[tf.Tensor], begun: tf.Operation) -> None:
    """Delays the mini-batches from which these tensors are computed until an operation has run."""
    for op in upstream(tensors):
        if op.type == "IteratorGetNext" and not is_enclosed(op):
            add_control_input(op, begun)


def upstream(ends: Sequence[tf.Tensor | tf.Operation], *, is_by_data: bool = False) -> list[tf.Operation]:
    """Returns the operations that these tensors and operations need, or whose data they use, including their own."""
    reached: dict[tf.Operation, None] = {}
    waiting = [end if isinstance(end, tf.Operation) else end.op for end in ends]
    while waiting:
        op = waiting.pop()
        if op not in reached:
            reached[op] = None
            waiting += [*(tensor.op for tensor in op.inputs), *(() if is_by_data else op.control_inputs)]
    return list(reached)


def downstream(starts: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Returns the operations that need one of these, not including them."""
    reached: set[tf.Operation] = set()
    waiting = list(starts)
    while waiting:
        op = waiting.pop()
        users = [user for tensor in op.outputs for user in tensor.consumers()]
        users += op._control_outputs  # noqa: SLF001 (no public name)
        waiting += [user for user in users if user not in reached]
        reached.update(users)
    return reached


def is_dense(gradient: Any) -> bool:
    """Returns whether a gradient is a tensor, and neither None nor IndexedSlices."""
    # `tf.is_tensor` is true of IndexedSlices.
    return tf.is_tensor(gradient) and not isinstance(gradient, tf.IndexedSlices)


def has_handle(variable: tf.Variable) -> bool:
    """Returns whether it is a resource variable; TensorFlow's older kind has no operation for each read."""
    return not variable.dtype._is_ref_dtype  # noqa: SLF001 (no public name)


def tensors_of(gradient: Any) -> list[tf.Tensor]:
    """Returns the tensors of which a gradient consists; [] for None."""
    if gradient is None:
        return []
    return [gradient] if is_dense(gradient) else [gradient.values, gradient.indices]


def summed_by_row(gradient: tf.IndexedSlices, *, sorts_ids: bool) -> tf.IndexedSlices:
    """Returns the gradient with each row once, the sum of its gradients; `sorts_ids`: in ascending order."""
    ids, places = tf.unique(gradient.indices)
    if sorts_ids:
        order = tf.argsort(ids)
        ids, places = tf.gather(ids, order), tf.gather(tf.math.invert_permutation(order), places)
    return tf.IndexedSlices(
        tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids)), ids, gradient.dense_shape)


def is_free_read(op: tf.Operation) -> bool:
    """Returns whether an operation reads a variable at no particular moment."""
    return op.type == "ReadVariableOp" and not op.control_inputs


def is_enclosed(op: tf.Operation) -> bool:
    """Returns whether an operation is in a branch or a loop, where operations may only read from within."""
    return context_of(op) is not None


# TensorFlow has no public names for the next three.


def context_of(op: tf.Operation) -> Any:
    """Returns the branch or loop that an operation is in, or None."""
    return op._get_control_flow_context()  # noqa: SLF001


def set_input(op: tf.Operation, index: int, tensor: tf.Tensor) -> None:
    """Makes an operation read another tensor."""
    op._update_input(index, tensor)  # noqa: SLF001


def add_control_input(op: tf.Operation, before: tf.Operation) -> None:
    """Makes an operation wait for another one."""
    op._add_control_input(before)  # noqa: SLF001


def note_unfed(ops: Iterable[tf.Operation], reason: str) -> None:
    """Notes operations of the current graph for whose outputs a hook's feed would not count, and why."""
    tf.add_to_collection(_UNFED, (frozenset(ops), reason))


def complete_feed(graph: tf.Graph, feed: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a feed that has the copies of fed constants, too; raises UserCodeError where it would not count."""
    completed = {graph.as_graph_element(tensor) if isinstance(tensor, str) else tensor: value
                 for tensor, value in feed.items()}
    for tensor in completed:
        for ops, reason in graph.get_collection(_UNFED):
            if getattr(tensor, "op", None) in ops:
                raise UserCodeError("feed_not_used", f"a hook of the model feeds {tensor.name}, {reason}")
    completed.update({copy: completed[tensor] for tensor, copy in graph.get_collection(_COPIES) if tensor in completed})
    return completed


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns all elements of several values as one tensor [n]; a single value keeps its shape."""
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0) if len(values) > 1 else values[0]


def _split(joined: tf.Tensor, group: Group) -> list[tf.Tensor]:
    if len(group.variables) == 1:
        return [joined]
    sizes = [variable.shape.num_elements() for variable in group.variables]
    return [tf.reshape(part, one.shape) for part, one in zip(tf.split(joined, sizes), group.variables)]


def _is_cast(value: tf.Tensor, wire: Wire) -> bool:
    return wire.dtype is not None and value.dtype.base_dtype in _CASTABLE


def _cast(value: tf.Tensor, wire: Wire) -> tf.Tensor:
    """Returns the value in the dtype of the wire, rounded to the nearest; bfloat16 has the range of float32."""
    return tf.cast(value, wire.dtype) if _is_cast(value, wire) else value


def _cast_with_feedback(value: tf.Tensor, wire: Wire) -> tf.Tensor:
    error = tf.Variable(lambda: tf.zeros(value.shape, value.dtype), trainable=False, name="lost",
                        collections=[tf.GraphKeys.LOCAL_VARIABLES])
    exact = value + error.read_value()
    sent = _cast(exact, wire)
    lost = exact - tf.cast(sent, value.dtype)
    # Of an infinity it is NaN, as in a step that a dynamic loss scale leaves out, and would be in all later values.
    with tf.control_dependencies([error.assign(tf.where(tf.math.is_finite(lost), lost, tf.zeros_like(lost)))]):
        return tf.identity(sent)


def simplify_graph(graph: tf.Graph) -> None:
    """Removes redundant transfers and reads from a finished graph, which computes the same afterwards."""
    _copy_constants_to_their_readers(graph)
    _merge_reads(graph)


def _copy_constants_to_their_readers(graph: tf.Graph) -> None:
    """Gives each task its own copy of the small constants that its operations would read from another task."""
    # A transfer of 4 bytes takes as long as one of 100 kB. Adam's rates, which are constants of the worker, would cost
    # four transfers in each step.
    copies: dict[Any, tf.Tensor] = {}
    for op in graph.get_operations():
        for index, tensor in enumerate(op.inputs):
            there, here = task_of(tensor.op.device), task_of(op.device)
            if there != here and not is_enclosed(op) and _is_small_constant(tensor.op):
                key = tensor.ref(), here
                if key not in copies:
                    copies[key] = _copy(tensor, op.device)
                    graph.add_to_collection(_COPIES, (tensor, copies[key]))
                set_input(op, index, copies[key])


def _is_small_constant(op: tf.Operation) -> bool:
    return (op.type == "Const" and op.outputs[0].shape.num_elements() <= _MAX_COPIED and not is_enclosed(op)
            and not op.control_inputs)  # its readers may rely on the order that control inputs give


def _copy(constant: tf.Tensor, device: str) -> tf.Tensor:
    attributes = {name: constant.op.node_def.attr[name] for name in ("dtype", "value")}
    with tf.device(None), tf.device(device), tf.control_dependencies(None):
        return constant.graph.create_op(
            "Const", [], [constant.dtype], name=f"{constant.op.name}_here", attrs=attributes).outputs[0]


def _merge_reads(graph: tf.Graph) -> None:
    """Makes one read of several reads of a variable, unless control inputs order them differently."""
    # Adam reads its two powers again for each variable: in a model with 200 variables these were 400 of the 1400
    # operations that the ps runs in a step.
    first: dict[Any, tf.Tensor] = {}
    for read in graph.get_operations():
        if read.type != "ReadVariableOp":
            continue
        order = frozenset(read.control_inputs)
        key = read.inputs[0].ref(), read.get_attr("dtype"), read.device, context_of(read), order
        value = first.setdefault(key, read.outputs[0])
        if value is not read.outputs[0]:
            for consumer in read.outputs[0].consumers():
                for index, tensor in enumerate(consumer.inputs):
                    if tensor is read.outputs[0]:
                        set_input(consumer, index, value)
