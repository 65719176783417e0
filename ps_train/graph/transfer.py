"""Dense variables travel fused: one transfer each way for each ps and step.

    ps      variables --flatten, join [, cast]--> one tensor --> worker --[cast,] split, shape--> what the model reads
    worker  gradients --flatten, join [, cast]--> one tensor --> ps     --[cast,] split, shape--> what is applied

Each transfer costs some 75 us on loopback, however small it is, and a network's latency besides. The model is built on
its variables as always; then the reads that a training step makes of dense variables are served from the one tensor.
So neither user code nor checkpoints see a difference, and sparse ones (embeddings) are looked up on the ps as ever.

Built under `placement.on_cluster`, which places on the worker whatever is not placed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

# What may travel in fewer bits: not float16, which has as few, and no integer.
_CASTABLE = (tf.float32, tf.float64)

Pair = tuple[Any, tf.Variable]  # of a gradient, or None
View = tuple[tf.Variable, tf.Tensor]  # what is read instead of a variable


class Wire(NamedTuple):
    """How dense variables travel.

    Attributes:
      dtype: what floats are cast to under way, or None to leave them as they are.
      is_fused: whether those of one ps travel together.
    """

    dtype: tf.DType | None = None
    is_fused: bool = True


class Group(NamedTuple):
    """Variables that travel together: of one ps and one dtype.

    Attributes:
      device: the ps's.
      variables: each of a shape that is known.
    """

    device: str
    variables: list[tf.Variable]

    @property
    def shapes(self) -> list[list[int]]:
        """The shape of each variable."""
        return [variable.shape.as_list() for variable in self.variables]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of all of them."""
        return self.variables[0].dtype.base_dtype


def group(variables: Sequence[tf.Variable], wire: Wire) -> list[Group]:
    """Returns the groups in which these variables travel, each variable in one of them."""
    groups: dict[Any, Group] = {}
    for number, variable in enumerate(variables):
        together = wire.is_fused and variable.shape.is_fully_defined()
        key = (variable.device, variable.dtype.base_dtype) if together else number
        groups.setdefault(key, Group(variable.device, [])).variables.append(variable)
    return list(groups.values())


def pull(group: Group, wire: Wire) -> list[tf.Tensor]:
    """Returns the values of a group's variables as tensors on the worker, after one transfer."""
    with tf.name_scope("pull"):
        with tf.device(group.device):
            sent = _cast(_join([variable.read_value() for variable in group.variables]), wire)
        return _split(tf.cast(tf.identity(sent), group.dtype), group)


def push(
    group: Group, values: Sequence[tf.Tensor], wire: Wire, share: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Returns values of the variables' shapes as tensors on their ps, after one transfer.

    What a cast to fewer bits loses is kept on the worker and added to what travels next (error feedback; Seide et al.
    2014, "1-Bit Stochastic Gradient Descent"), so that nothing is lost for ever.

    Args:
      share: float scalar on a ps, with which they are multiplied there; None for 1.
    """
    with tf.name_scope("push"):
        joined = _join(values)
        sent = tf.identity(_cast_with_feedback(joined, wire) if _is_cast(joined, wire) else joined)
        with tf.device(group.device):
            arrived = tf.cast(sent, group.dtype)
            return _split(arrived if share is None else arrived * tf.cast(share, group.dtype), group)


class Fused(NamedTuple):
    """What a training step does instead.

    Attributes:
      pairs: (gradient or None, variable), the dense gradients on the variables' ps.
      pulled: the dense variables' values on the worker.
    """

    pairs: list[Pair]
    pulled: list[View]


def fuse(loss: tf.Tensor, gradients: Sequence[Pair], wire: Wire) -> Fused:
    """Lets a training step read and update its dense variables through fused transfers.

    Args:
      loss: scalar.
      gradients: (gradient or None, variable); a gradient is a tensor, or IndexedSlices and then left as it is.
    """
    pairs = list(gradients)
    dense = [variable for gradient, variable in pairs if is_dense(gradient) and has_handle(variable)]
    of_variable = {variable.ref(): gradient for gradient, variable in pairs}
    arrived: dict[Any, tf.Tensor] = {}
    views: list[View] = []
    above = upstream([loss, *(part for gradient, _ in pairs for part in tensors_of(gradient))])
    for together in group(dense, wire):
        pulled = pull(together, wire)
        views += zip(together.variables, pulled)
        pushed = push(together, [of_variable[variable.ref()] for variable in together.variables], wire)
        arrived.update({variable.ref(): value for variable, value in zip(together.variables, pushed)})
    serve_reads(above, views)
    return Fused([(arrived.get(variable.ref(), gradient), variable) for gradient, variable in pairs], views)


def serve_reads(ops: Iterable[tf.Operation], views: Iterable[View]) -> None:
    """Makes these operations read views instead of variables, wherever nothing orders or encloses their reads."""
    values = {variable.handle.name: value for variable, value in views if has_handle(variable)}
    for op in ops:
        if is_enclosed(op):
            continue
        for index, tensor in enumerate(op.inputs):
            read = tensor.op
            if _is_free_read(read) and read.inputs[0].name in values:
                op._update_input(index, values[read.inputs[0].name])  # noqa: SLF001 (there is no public name for it)


def can_be_served(op: tf.Operation, step: Collection[tf.Operation]) -> bool:
    """Tells whether an operation reads a variable for operations of a step only, and those can be given a view instead.

    On a ps they could, too, but it would have to travel there.
    """
    return _is_free_read(op) and all(
        user in step and not is_enclosed(user) and tf.DeviceSpec.from_string(user.device).job != "ps"
        for user in op.outputs[0].consumers())


def take_batches_after(tensors: Sequence[tf.Tensor], begun: tf.Operation) -> None:
    """Lets what these tensors are computed from take its mini-batches after an operation only."""
    for op in upstream(tensors):
        if op.type == "IteratorGetNext" and not is_enclosed(op):
            op._add_control_input(begun)  # noqa: SLF001 (there is no public name for it)


def upstream(ends: Sequence[tf.Tensor | tf.Operation]) -> list[tf.Operation]:
    """Returns the operations that these need, their own among them."""
    found: dict[tf.Operation, None] = {}
    waiting = [end if isinstance(end, tf.Operation) else end.op for end in ends]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found[op] = None
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(found)


def is_dense(gradient: Any) -> bool:
    """Tells whether a gradient is a tensor: not None, and not IndexedSlices, which `tf.is_tensor` takes for one."""
    return tf.is_tensor(gradient) and not isinstance(gradient, tf.IndexedSlices)


def has_handle(variable: tf.Variable) -> bool:
    """Tells whether it is not of TensorFlow's old kind, whose reads have no operation of their own."""
    return not variable.dtype._is_ref_dtype  # noqa: SLF001 (there is no public name for it)


def tensors_of(gradient: Any) -> list[tf.Tensor]:
    """Returns the tensors that a gradient consists of; none of None."""
    if gradient is None:
        return []
    return [gradient] if is_dense(gradient) else [gradient.values, gradient.indices]


def _is_free_read(op: tf.Operation) -> bool:
    return op.type == "ReadVariableOp" and not op.control_inputs


def is_enclosed(op: tf.Operation) -> bool:
    """Tells whether it is in a branch or a loop."""
    return op._get_control_flow_context() is not None  # noqa: SLF001 (there is no public name for it)


def _join(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns [n], all elements one after another; a single value stays as it is."""
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0) if len(values) > 1 else values[0]


def _split(joined: tf.Tensor, group: Group) -> list[tf.Tensor]:
    if len(group.variables) == 1:
        return [joined]
    sizes = [variable.shape.num_elements() for variable in group.variables]
    return [tf.reshape(part, shape) for part, shape in zip(tf.split(joined, sizes), group.shapes)]


def _is_cast(value: tf.Tensor, wire: Wire) -> bool:
    return wire.dtype is not None and value.dtype.base_dtype in _CASTABLE


def _cast(value: tf.Tensor, wire: Wire) -> tf.Tensor:
    """Returns the value in the wire's dtype, rounded to the nearest; bfloat16 has the range of float32."""
    return tf.cast(value, wire.dtype) if _is_cast(value, wire) else value


def _cast_with_feedback(value: tf.Tensor, wire: Wire) -> tf.Tensor:
    lost = tf.Variable(lambda: tf.zeros(value.shape, value.dtype), trainable=False, name="lost",
                       collections=[tf.GraphKeys.LOCAL_VARIABLES])
    wanted = value + lost.read_value()
    sent = _cast(wanted, wire)
    with tf.control_dependencies([lost.assign(wanted - tf.cast(sent, value.dtype))]):
        return tf.identity(sent)
